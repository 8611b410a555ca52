"""The digit systems as Keras models, and their settings."""
