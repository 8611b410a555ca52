"""The local server: TF Serving's protocol over TensorFlow's session; knows nothing of captions."""
