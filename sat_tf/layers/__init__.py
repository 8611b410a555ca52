"""Keras layers of a captioner: encoder, attention, decoder and their parts."""
