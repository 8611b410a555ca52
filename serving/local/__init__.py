"""The parts of the local server: statuses, one loaded version, all versions, the gRPC services.

They speak TF Serving's protocol over TensorFlow's session and know nothing of captions.
"""
