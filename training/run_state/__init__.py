"""State of a run: whose its folder is, checkpoints and exact resume, signals, logs."""
