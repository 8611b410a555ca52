"""The experiments behind the figures of the documentation: one shell file and one table each."""
