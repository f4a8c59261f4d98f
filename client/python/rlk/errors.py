"""Errors of rlk: one class a status code, each with the reason and the field at fault.

Every error that the server returns carries ``google.rpc.ErrorInfo`` (domain ``rlk``); it becomes
the attributes of :class:`RlkError`. Errors that the client finds by itself (an unknown argument, a
tensor that is too large to send) use the same classes, reasons and attributes, so that callers
handle one kind of error.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Tuple, Type

import grpc
from google.rpc import error_details_pb2, status_pb2

ERROR_DOMAIN = "rlk"
_STATUS_DETAILS_KEY = "grpc-status-details-bin"


class RlkError(Exception):
    """A call that did not succeed. Nothing is lost: inputs are as they were.

    Attributes:
        code: the gRPC status code by name, for example ``"INVALID_ARGUMENT"``.
        reason: one of rlk's closed list of reasons, for example ``"DTYPE_NOT_ALLOWED"``; ``None``
            when the error did not come from rlk (an unreachable server).
        field: the request field at fault (``"x"``, ``"softcap"``, ``"options.contract"``), or
            ``None``.
        value: that field's value as text, or ``None``.
        allowed: what is allowed instead, as text, or ``None``.
        retry_after: seconds after which a retry can succeed, or ``None`` when a retry does not
            help.
        message: the message without code and reason.
        violations: ``(field, description)`` pairs, the first for ``field``.
    """

    code = "UNKNOWN"

    def __init__(
        self,
        message: str,
        *,
        code: Optional[str] = None,
        reason: Optional[str] = None,
        field: Optional[str] = None,
        value: Optional[str] = None,
        allowed: Optional[str] = None,
        retry_after: Optional[float] = None,
        violations: Tuple[Tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.message = message
        self.reason = reason
        self.field = field
        self.value = value
        self.allowed = allowed
        self.retry_after = retry_after
        self.violations = violations

    def __str__(self) -> str:
        label = self.code if self.reason is None else f"{self.code} ({self.reason})"
        return f"{label}: {self.message}"

    def __reduce__(self) -> Any:
        # Errors travel between processes (multiprocessing, concurrent.futures).
        return _rebuild, (type(self), self.message, self._arguments())

    def _arguments(self) -> Dict[str, Any]:
        names = ("code", "reason", "field", "value", "allowed", "retry_after", "violations")
        return {name: getattr(self, name) for name in names}


def _rebuild(cls: Type[RlkError], message: str, arguments: Mapping[str, Any]) -> RlkError:
    return cls(message, **arguments)


class InvalidArgumentError(RlkError, ValueError):
    """The request says something that no server accepts."""

    code = "INVALID_ARGUMENT"


class FailedPreconditionError(RlkError):
    """A contract, backend, claim or mode that is known but cannot be honoured here."""

    code = "FAILED_PRECONDITION"


class NotFoundError(RlkError):
    """An operator or tensor that this server does not have."""

    code = "NOT_FOUND"


class ResourceExhaustedError(RlkError):
    """A queue, byte budget or device memory is full; ``retry_after`` says when to retry."""

    code = "RESOURCE_EXHAUSTED"


class UnavailableError(RlkError):
    """The server cannot be reached, drains, or has lost its device."""

    code = "UNAVAILABLE"


class DataLossError(RlkError):
    """A verification found a wrong bit."""

    code = "DATA_LOSS"


class UnauthenticatedError(RlkError):
    """No credential, or a bad one."""

    code = "UNAUTHENTICATED"


class PermissionDeniedError(RlkError):
    """The caller may not do this."""

    code = "PERMISSION_DENIED"


class DeadlineExceededError(RlkError, TimeoutError):
    """The call's timeout passed."""

    code = "DEADLINE_EXCEEDED"


class CancelledError(RlkError):
    """The call was cancelled."""

    code = "CANCELLED"


class UnimplementedError(RlkError):
    """The server is older than this client and does not have the RPC."""

    code = "UNIMPLEMENTED"


class InternalError(RlkError):
    """A broken invariant of the server, or a reply that makes no sense."""

    code = "INTERNAL"


_CLASSES: Dict[str, Type[RlkError]] = {
    cls.code: cls
    for cls in (
        InvalidArgumentError,
        FailedPreconditionError,
        NotFoundError,
        ResourceExhaustedError,
        UnavailableError,
        DataLossError,
        UnauthenticatedError,
        PermissionDeniedError,
        DeadlineExceededError,
        CancelledError,
        UnimplementedError,
        InternalError,
    )
}

# Errors that gRPC makes on the client's side mean what the server's of the same code mean.
_LOCAL_REASONS = {"DEADLINE_EXCEEDED": "DEADLINE_EXCEEDED", "CANCELLED": "CANCELLED"}


def error_class(code: str) -> Type[RlkError]:
    """The class for a status code's name; RlkError itself for codes that rlk does not use."""
    return _CLASSES.get(code, RlkError)


def from_status_bytes(serialized: bytes) -> RlkError:
    """The error that a serialized google.rpc.Status says."""
    status = status_pb2.Status.FromString(serialized)
    code = next((c.name for c in grpc.StatusCode if c.value[0] == status.code), "UNKNOWN")
    return error_class(code)(status.message or code, code=code, **_parse_details(serialized))


def from_rpc_error(error: Any) -> RlkError:
    """Turns a ``grpc.RpcError`` (of the blocking or the asyncio API) into an RlkError."""
    status_code = error.code()
    code = status_code.name if isinstance(status_code, grpc.StatusCode) else "UNKNOWN"
    arguments: Dict[str, Any] = {"code": code, "reason": _LOCAL_REASONS.get(code)}
    message = error.details() or code
    for key, value in error.trailing_metadata() or ():
        if key == _STATUS_DETAILS_KEY:
            arguments.update(_parse_details(value))
    return error_class(code)(message, **arguments)


def _parse_details(serialized: bytes) -> Dict[str, Any]:
    """Attributes from a serialized google.rpc.Status; details of other domains are ignored."""
    try:
        status = status_pb2.Status.FromString(serialized)
    except Exception:  # DecodeError's class differs between protobuf versions.
        return {}
    found: Dict[str, Any] = {}
    info = error_details_pb2.ErrorInfo()
    retry = error_details_pb2.RetryInfo()
    request = error_details_pb2.BadRequest()
    for detail in status.details:
        if detail.Is(info.DESCRIPTOR):
            detail.Unpack(info)
            if info.domain == ERROR_DOMAIN:
                found["reason"] = info.reason or None
                for key in ("field", "value", "allowed"):
                    if key in info.metadata:
                        found[key] = info.metadata[key]
        elif detail.Is(retry.DESCRIPTOR):
            detail.Unpack(retry)
            found["retry_after"] = retry.retry_delay.seconds + retry.retry_delay.nanos * 1e-9
        elif detail.Is(request.DESCRIPTOR):
            detail.Unpack(request)
            found["violations"] = tuple((v.field, v.description) for v in request.field_violations)
    if "field" not in found and found.get("violations"):
        found["field"] = found["violations"][0][0]
    return found
