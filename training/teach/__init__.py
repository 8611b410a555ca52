"""Teachers of a captioner beside its captions: rewards, other captioners, boxes, locators."""
