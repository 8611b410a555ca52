"""Calls of one served model, over one connection."""

from __future__ import annotations

from typing import Any, Self

from serving.client import protocol
from serving.client.channel import Connection


class ModelClient:
    """A connection to a served model, to be used in a `with`; threads may share it.

    Args:
        connection: The server.
        model: The model's name there.

    Raises:
        OSError: A certificate file cannot be read.
    """

    def __init__(self, connection: Connection | None = None, model: str = "captioner") -> None:
        self.connection, self.model = connection or Connection(), model
        self._channel = self.connection.open()
        self._predict = self._channel.unary_unary(
            protocol.PREDICT,
            request_serializer=protocol.PredictRequest.SerializeToString,
            response_deserializer=protocol.PredictResponse.FromString,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def predict(self, request: protocol.PredictRequest) -> Any:
        """Asks the model; see `Connection.call`.

        Raises:
            ServingError: The server gave no answer, or an error for one.
        """
        return self.connection.call(self._predict, request)
