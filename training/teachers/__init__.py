"""Teachers other than the captions: boxes, other captioners' predictions, rewards."""
