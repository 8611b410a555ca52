"""What teaches a captioner beside its captions: maps for attention, other captioners, rewards."""
