"""Use of a trained model: exports, a client, a local server, a page, bulk captioning, LiteRT.

Imports `sat_tf`, never `training`.
"""
