"""Errors: from a status with details, without, with other domains; text, pickling, classes."""

import pickle

import grpc
import pytest
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2

import rlk
from rlk import errors


class RpcError:
    """What grpc raises, as far as errors.py looks at it."""

    def __init__(self, code, details=(), message="message", metadata=()):
        status = status_pb2.Status(code=code.value[0], message=message)
        for detail in details:
            packed = any_pb2.Any()
            packed.Pack(detail)
            status.details.append(packed)
        self._code = code
        self._message = message
        self._metadata = [*metadata]
        if details:
            self._metadata.append(("grpc-status-details-bin", status.SerializeToString()))

    def code(self):
        return self._code

    def details(self):
        return self._message

    def trailing_metadata(self):
        return self._metadata


def info(domain="rlk", **metadata):
    return error_details_pb2.ErrorInfo(reason="DTYPE_NOT_ALLOWED", domain=domain, metadata=metadata)


def bad_request(field):
    violation = error_details_pb2.BadRequest.FieldViolation(field=field, description="why")
    return error_details_pb2.BadRequest(field_violations=[violation])


def test_all_details():
    retry = error_details_pb2.RetryInfo(
        retry_delay=duration_pb2.Duration(seconds=1, nanos=500_000_000)
    )
    details = [info(field="x", value="F64", allowed="F32, F16, BF16"), retry, bad_request("x")]
    error = errors.from_rpc_error(RpcError(grpc.StatusCode.INVALID_ARGUMENT, details))
    assert isinstance(error, rlk.InvalidArgumentError) and isinstance(error, ValueError)
    assert (error.code, error.reason) == ("INVALID_ARGUMENT", "DTYPE_NOT_ALLOWED")
    assert (error.field, error.value, error.allowed) == ("x", "F64", "F32, F16, BF16")
    assert error.retry_after == 1.5
    assert error.violations == (("x", "why"),)
    assert str(error) == "INVALID_ARGUMENT (DTYPE_NOT_ALLOWED): message"


def test_field_from_bad_request():
    error = errors.from_rpc_error(RpcError(grpc.StatusCode.INVALID_ARGUMENT, [bad_request("y")]))
    assert error.field == "y" and error.reason is None


def test_other_domains_say_nothing():
    details = [info("other.example", field="x")]
    error = errors.from_rpc_error(RpcError(grpc.StatusCode.INTERNAL, details))
    assert isinstance(error, rlk.InternalError)
    assert error.reason is None and error.field is None


@pytest.mark.parametrize("metadata", [[], None, [("grpc-status-details-bin", b"\xff\xff")]])
def test_without_readable_details(metadata):
    rpc = RpcError(grpc.StatusCode.UNAVAILABLE)
    rpc._metadata = metadata
    error = errors.from_rpc_error(rpc)
    assert isinstance(error, rlk.UnavailableError)
    assert error.reason is None and error.message == "message"


@pytest.mark.parametrize(
    "code, cls",
    [
        ("INVALID_ARGUMENT", rlk.InvalidArgumentError),
        ("FAILED_PRECONDITION", rlk.FailedPreconditionError),
        ("NOT_FOUND", rlk.NotFoundError),
        ("RESOURCE_EXHAUSTED", rlk.ResourceExhaustedError),
        ("UNAVAILABLE", rlk.UnavailableError),
        ("DATA_LOSS", rlk.DataLossError),
        ("UNAUTHENTICATED", rlk.UnauthenticatedError),
        ("PERMISSION_DENIED", rlk.PermissionDeniedError),
        ("DEADLINE_EXCEEDED", rlk.DeadlineExceededError),
        ("CANCELLED", rlk.CancelledError),
        ("UNIMPLEMENTED", rlk.UnimplementedError),
        ("INTERNAL", rlk.InternalError),
        ("ABORTED", rlk.RlkError),
    ],
)
def test_classes(code, cls):
    error = errors.from_rpc_error(RpcError(grpc.StatusCode[code], [info()]))
    assert type(error) is cls and error.code == code
    assert issubclass(cls, rlk.RlkError)


def test_time_outs_are_time_outs():
    error = errors.from_rpc_error(RpcError(grpc.StatusCode.DEADLINE_EXCEEDED))
    assert isinstance(error, TimeoutError) and error.reason == "DEADLINE_EXCEEDED"


def test_errors_travel_between_processes():
    details = [info(field="x", value="v", allowed="a"), bad_request("x")]
    error = errors.from_rpc_error(RpcError(grpc.StatusCode.INVALID_ARGUMENT, details))
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error)
    assert vars(again) == vars(error)
