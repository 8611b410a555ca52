"""What teaches a captioner beside its captions: rewards, other captioners, boxes, locators."""
