"""The gRPC services that the local server answers: predictions and the state of the model.

The generated servicers are not used: grpcio never lets go of a call whose request it cannot
parse, so requests arrive here as bytes. A method that is not listed is answered UNIMPLEMENTED.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator

import grpc
from google.protobuf import message as protobuf
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, predict_pb2

from serving.local_server import statuses
from serving.local_server.admission import Admission
from serving.local_server.versions import Versions

PREDICTION_SERVICE = "tensorflow.serving.PredictionService"
MODEL_SERVICE = "tensorflow.serving.ModelService"

_LOG = logging.getLogger(__name__)
_SIGNATURES = "signature_def"

# (request, seconds until the caller's deadline or None) -> response
Method = Callable[[protobuf.Message, float | None], protobuf.Message]


class Services:
    """TF Serving's two services over one model.

    Only predictions queue: the state of the model is answered at once.

    Args:
        versions: The model.
        admission: Bounds the predictions. Those that are joined wait for one another, and not for
            their turns: the batches bound what runs.
    """

    def __init__(self, versions: Versions, admission: Admission | None = None) -> None:
        self._versions, self._admission = versions, admission or Admission()

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """Returns the argument of `grpc.Server.add_generic_rpc_handlers`."""
        predictions = {
            "Predict": _handler(predict_pb2.PredictRequest, self.predict),
            "GetModelMetadata": _handler(
                get_model_metadata_pb2.GetModelMetadataRequest, self.metadata
            ),
        }
        states = {
            "GetModelStatus": _handler(get_model_status_pb2.GetModelStatusRequest, self.status)
        }
        return (
            grpc.method_handlers_generic_handler(PREDICTION_SERVICE, predictions),
            grpc.method_handlers_generic_handler(MODEL_SERVICE, states),
        )

    def predict(
        self, request: predict_pb2.PredictRequest, seconds: float | None
    ) -> predict_pb2.PredictResponse:
        """Runs a signature of the version asked for."""
        _require_spec(request)
        with (
            self._versions.use(request.model_spec) as (version, servable),
            self._turn(servable.joins(request), seconds) as left,
        ):
            response = servable.predict(request, left)
        response.model_spec.name = request.model_spec.name
        response.model_spec.version.value = version
        return response

    @contextlib.contextmanager
    def _turn(self, joined: bool, seconds: float | None) -> Iterator[float | None]:
        if joined:
            with self._admission.place():
                yield seconds
        else:
            with self._admission.turn(seconds) as left:
                yield left

    def metadata(
        self, request: get_model_metadata_pb2.GetModelMetadataRequest, _
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        """Returns the signatures of the version asked for."""
        _require_spec(request)
        if not request.metadata_field:
            raise statuses.invalid(
                "GetModelMetadataRequest must specify at least one metadata_field"
            )
        for name in request.metadata_field:
            if name != _SIGNATURES:
                raise statuses.invalid(f"Metadata field {name} is not supported")
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        signatures = get_model_metadata_pb2.SignatureDefMap()
        with self._versions.use(request.model_spec) as (version, servable):
            for name, signature in servable.signatures.items():
                signatures.signature_def[name].CopyFrom(signature)
        response.model_spec.name = request.model_spec.name
        response.model_spec.version.value = version
        response.metadata[_SIGNATURES].Pack(signatures)
        return response

    def status(
        self, request: get_model_status_pb2.GetModelStatusRequest, _
    ) -> get_model_status_pb2.GetModelStatusResponse:
        """Returns the state of the version asked for, or of all."""
        _require_spec(request)
        states = self._versions.states(request.model_spec)
        return get_model_status_pb2.GetModelStatusResponse(model_version_status=states)


def _handler(request_type: type[protobuf.Message], method: Method) -> grpc.RpcMethodHandler:
    def answer(content: bytes, context: grpc.ServicerContext) -> protobuf.Message:
        try:
            seconds = _seconds_left(context)
            if seconds == 0:  # it waited too long for its turn: nobody reads the answer
                raise statuses.StatusError(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline exceeded")
            return method(_parse(request_type, content), seconds)
        except Exception as error:
            status = statuses.of_exception(error)
            if status is not error and status.code == grpc.StatusCode.INTERNAL:
                _LOG.exception("A call failed")
        context.abort(status.code, statuses.cut(status.message))

    return grpc.unary_unary_rpc_method_handler(
        answer, response_serializer=lambda response: response.SerializeToString()
    )


def _parse(request_type: type[protobuf.Message], content: bytes) -> protobuf.Message:
    try:
        return request_type.FromString(content)
    except protobuf.DecodeError as error:
        raise statuses.StatusError(grpc.StatusCode.INTERNAL, f"No request: {error}") from error


def _require_spec(request: protobuf.Message) -> None:
    if not request.HasField("model_spec"):
        raise statuses.invalid("Missing ModelSpec")


def _seconds_left(context: grpc.ServicerContext) -> float | None:
    """Time until the caller's deadline; None without one."""
    seconds = context.time_remaining()
    return seconds if seconds is not None and math.isfinite(seconds) else None
