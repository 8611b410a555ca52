"""Client of a served captioner: `python -m serving.client`, `CaptionClient`; no model code."""

from serving.client.answers import Beam, ServedCaption
from serving.client.caption_client import CaptionClient
from serving.client.channel import Connection, ServingError

__all__ = [
    "Beam",
    "CaptionClient",
    "Connection",
    "ServedCaption",
    "ServingError",
]
