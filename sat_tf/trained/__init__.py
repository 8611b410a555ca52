"""What is done with a trained captioner: found by name, loaded, captioned with, drawn."""
