"""A run: its configuration, its objects, its folder, exact resume and logs."""
