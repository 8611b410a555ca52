"""Captions by a captioner that was trained: images in, sentences and maps out."""
