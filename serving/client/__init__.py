"""Client of a served captioner: `python -m serving.client`, `CaptionClient`; no model code."""

from serving.client.captions import Beam, CaptionClient, ServedCaption
from serving.client.channel import Connection, ServingError

__all__ = [
    "Beam",
    "CaptionClient",
    "Connection",
    "ServedCaption",
    "ServingError",
]
