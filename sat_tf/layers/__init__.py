"""Layers of the models: encoder, attention, decoder."""
