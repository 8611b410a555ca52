"""What `python -m training.inspect` finds out about a data set before anything is trained on it."""
