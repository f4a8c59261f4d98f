"""The blocking client."""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from concurrent import futures
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence, Tuple, Union

import grpc

from rlk import _checks, _codec, _session, _staging
from rlk._channel import Route, Tls, Token
from rlk._parity import ParityCalls
from rlk._proto import parity_check_pb2, server_pb2
from rlk._tensor_calls import TensorCalls
from rlk.arena import Arenas
from rlk.errors import (
    CancelledError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    RlkError,
    from_rpc_error,
)
from rlk.options import CallOptions, check_timeout, is_text
from rlk.report import Record, record_from_proto

SERVER_SERVICE = "/rlk.v1.ServerService/"
_keys = itertools.count(1)
_clients: weakref.WeakValueDictionary[int, Client] = weakref.WeakValueDictionary()


def list_request(name: Optional[str]) -> server_pb2.ListOperatorsRequest:
    """The request of ``operators``."""
    if name is not None and not is_text(name):
        raise InvalidArgumentError(
            f"{name!r} is no operator; allowed: text",
            reason="UNKNOWN_OPERATOR",
            field="operator",
            value=repr(name),
            allowed="text",
        )
    return server_pb2.ListOperatorsRequest(operator=name or "")


def connect(
    address: str,
    *,
    timeout: Optional[float] = None,
    inline_bytes_max: int = _codec.INLINE_BYTES_MAX,
    session: Optional[str] = None,
    session_lease: Optional[float] = None,
    tls: Union[None, bool, Tls] = None,
    token: Token = None,
    channel_options: Sequence[Tuple[str, Any]] = (),
) -> Client:
    """Makes a client for the server at ``address``.

    The connection is opened by the first call; :meth:`Client.wait_ready` waits for it.

    Args:
        address: "host:port" or "unix:/path"; or several servers: "ipv4:host:port,host:port",
            "ipv6:[host]:port,..." or "dns:///host:port". Calls are then spread over those that are
            healthy, and repeated elsewhere where a server is lost; sessions, and with them tensors
            that stay or travel in streams, belong to one server and are refused.
        timeout: seconds until a call fails with DeadlineExceededError, unless the call says
            otherwise; None waits for ever.
        inline_bytes_max: bytes of one request, tensors and the little around them; what is larger
            travels in streams. The server's flag of the same name is the bound.
        session: the token of a session that was opened elsewhere. By default the client opens one
            when it needs it, keeps it alive, and closes it.
        session_lease: seconds that the client's own session outlives it by, should it not be
            closed; None takes the server's default.
        tls: True, or a :class:`rlk.Tls`, for servers that speak TLS.
        token: the bearer token that every call carries, or a function that returns it. Refused
            without TLS, except to this host: others could read it.
        channel_options: further gRPC channel arguments.

    Raises:
        InvalidArgumentError: the address is not of one of these forms, a file of ``tls`` cannot be
            read, or the token would travel readable.
    """
    return Client(
        address,
        timeout=timeout,
        inline_bytes_max=inline_bytes_max,
        session=session,
        session_lease=session_lease,
        tls=tls,
        token=token,
        channel_options=channel_options,
    )


class CallFuture(futures.Future):
    """The future of a call. ``cancel()`` works until the reply is there, and cancels the RPC."""

    def __init__(self) -> None:
        super().__init__()
        self._rpc: Optional[grpc.Future] = None

    def cancel(self) -> bool:
        """Cancels the call; False when it is done already."""
        cancelled = super().cancel()
        if cancelled and self._rpc is not None:
            self._rpc.cancel()
        return cancelled


class Client(TensorCalls, ParityCalls):
    """A connection to one server. Thread-safe; use it from as many threads as you like.

    Use it as a context manager, or call :meth:`close`. Made by :func:`rlk.connect`.

    Attributes:
        key: a number that names this client within the process (custom operators carry it).
    """

    def __init__(
        self,
        address: str,
        *,
        timeout: Optional[float],
        inline_bytes_max: int,
        session: Optional[str] = None,
        session_lease: Optional[float] = None,
        tls: Union[None, bool, Tls] = None,
        token: Token = None,
        channel_options: Sequence[Tuple[str, Any]],
    ) -> None:
        route = Route(address, tls, token, inline_bytes_max, channel_options)
        self.address = route.address
        self.timeout = timeout
        self.inline_bytes_max = inline_bytes_max
        self._channel = route.channel(grpc)
        self._stubs: Dict[str, Any] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._session = _session.SessionHolder(route, session, session_lease)
        self._arenas = Arenas()
        self._staging = _staging.Staging()
        self.key: int = next(_keys)
        _clients[self.key] = self

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection and the client's own session, whose tensors go with it; calls in
        flight fail with CancelledError. Idempotent."""
        if not self._closed:
            self._arenas.close()
            self._session.close(self._message_call)
        with self._lock:
            self._closed = True
        self._channel.close()

    def wait_ready(self, timeout: Optional[float] = None) -> None:
        """Returns when the server is reachable; DeadlineExceededError after ``timeout`` seconds."""
        self._check_open()
        try:
            grpc.channel_ready_future(self._channel).result(timeout)
        except grpc.FutureTimeoutError:
            raise DeadlineExceededError(
                f"no server answered at {self.address} within {timeout} s",
                reason="DEADLINE_EXCEEDED",
            ) from None

    def call(
        self,
        method: str,
        *,
        options: Union[None, CallOptions, Mapping[str, Any]] = None,
        **arguments: Any,
    ) -> _codec.CallResult:
        """Calls ``method`` ("operator.method") and waits for its result.

        Args:
            method: for example "final_logit_softcap.forward"; :meth:`operators` lists them.
            options: a :class:`CallOptions` or a mapping of its fields.
            arguments: tensors, attributes and options by name. Tensors are numpy arrays or torch
                tensors, all of one library and device; their bits are sent as they are, and they
                are never modified. A repeated tensor takes a list. Attributes are numbers, bools,
                enumerators as text, and dtypes as text, numpy or torch dtype; None takes the
                default. Options are the fields of :class:`CallOptions`; they go before ``options``.
                A tensor may be a :class:`rlk.Resident`: nothing of it is sent.

        Returns:
            The outputs by name, of the inputs' library and device, and the report. What is too
            large for a message travels in streams, unseen.

        Raises:
            RlkError: with code, reason, field, value and what is allowed.
        """
        try:
            request = self._request(method, options, arguments)
        except InvalidArgumentError as error:
            if error.reason != "MESSAGE_TOO_LARGE":
                raise
            return self._call_uploaded(method, options, arguments)
        return self._call_once(request)

    def _call_once(self, request: _codec.Request) -> _codec.CallResult:
        try:
            data = self._send(request)
        except InvalidArgumentError as error:
            too_large = error.reason == "MESSAGE_TOO_LARGE" and error.field == "reply"
            if not too_large or self._session.token is not None:
                raise
            # Nothing was computed. With a session the reply can stay on the server.
            self._session.require(self._message_call)
            data = self._send(request)
        return self._fetch_moved(_codec.parse_result(request, data))

    def _send(self, request: _codec.Request) -> bytes:
        timeout = self._timeout(request)
        with self._errors():
            return self._stub(request.method.path)(
                request.data, timeout=timeout, metadata=self._session.metadata()
            )

    def call_async(
        self,
        method: str,
        *,
        options: Union[None, CallOptions, Mapping[str, Any]] = None,
        **arguments: Any,
    ) -> CallFuture:
        """Like :meth:`call`, but returns a ``concurrent.futures.Future`` of the result.

        Streams are not used: a request above ``inline_bytes_max`` raises, and outputs that are too
        large for the reply are :class:`rlk.Resident`.

        Tensors are read before it returns. Arguments that cannot be put into a request raise here;
        every other error is the future's exception.
        """
        request = self._request(method, options, arguments)
        timeout = self._timeout(request)
        future = CallFuture()
        try:
            rpc = self._stub(request.method.path).future(
                request.data, timeout=timeout, metadata=self._session.metadata()
            )
        except ValueError as error:
            raise self._closed_error(error) from None
        future._rpc = rpc
        rpc.add_done_callback(lambda done: _settle(future, request, done))
        return future

    def check_parity(
        self,
        method: str,
        *,
        left: Union[None, str, Mapping[str, Any], _checks.Side] = None,
        right: Union[None, str, Mapping[str, Any], _checks.Side] = None,
        judgment: str = "parity",
        gradients: Union[bool, _checks.Gradients] = False,
        **arguments: Any,
    ) -> Record:
        """Runs one call on two sides and compares outputs, and gradients if asked.

        Args:
            method: a forward method with gradients; without, any method.
            left: a backend's name, a :class:`rlk.Side`, or a mapping of its fields.
            right: the same.
            judgment: "parity" and "invariance" compare bits; "accuracy" takes backend "golden" on
                one side and the tolerance contract.
            gradients: True, or a :class:`rlk.Gradients`.
            arguments: tensors and attributes by name, options that say where both sides run
                (``contract``, ``backend``, ``mode``, ``device_uuid``, ``wanted``), and ``timeout``:
                seconds until the check fails with DeadlineExceededError, by default the client's.

        Returns:
            The fields of ``CheckParityResponse``: ``passed``, ``first_difference``, ``outputs``
            (each with its ``comparison``), ``left``, ``right``, ``different_versions``, ... That
            something differs is no error.
        """
        timeout = _checks.take_timeout(arguments, self.timeout)
        uploads = _checks.Uploads(self)
        try:
            request = _checks.parity_request(
                self,
                uploads,
                method,
                _checks.as_side(left),
                _checks.as_side(right),
                judgment,
                gradients,
                arguments,
            )
            return self._check_call(
                "CheckParity", request, parity_check_pb2.CheckParityResponse, timeout
            )
        finally:
            uploads.release()

    def check_invariance(
        self,
        method: str,
        *,
        axes: Sequence[str] = (),
        seed: int = 123,
        repeats: int = 0,
        concurrency: int = 0,
        gradients: Union[bool, _checks.Gradients] = False,
        contracts: Sequence[str] = (),
        **arguments: Any,
    ) -> Record:
        """Runs one call with its rows in other layouts and compares bits.

        Args:
            method: as in :meth:`check_parity`.
            axes: of "repeat", "slice", "pad", "permute", "chunk", "neighbours", "concurrency";
                none takes all.
            seed: of the layouts and of what fills them.
            repeats: runs of "repeat"; 0 takes the server's default.
            concurrency: callers of "concurrency"; 0 takes the server's default.
            gradients: as in :meth:`check_parity`.
            contracts: each method takes the one that it has.
            arguments: as in :meth:`check_parity`.

        Returns:
            The fields of ``CheckInvarianceResponse``: ``passed`` and ``axes``, each with what it
            compared and the first layout that differs.
        """
        timeout = _checks.take_timeout(arguments, self.timeout)
        uploads = _checks.Uploads(self)
        try:
            request = _checks.invariance_request(
                self,
                uploads,
                method,
                axes,
                seed,
                repeats,
                concurrency,
                gradients,
                contracts,
                arguments,
            )
            return self._check_call(
                "CheckInvariance", request, parity_check_pb2.CheckInvarianceResponse, timeout
            )
        finally:
            uploads.release()

    def _check_call(self, rpc: str, request: Any, reply: Any, timeout: Optional[float]) -> Record:
        return record_from_proto(self._unary_call(_checks.SERVICE + rpc, request, reply, timeout))

    def info(self) -> Record:
        """What the server is: ``server_id``, ``provenance``, ``devices``, ``backends``, ``limits``,
        ``capabilities``, ``uptime_seconds``, as GetInfo reports them."""
        return self._server_call("GetInfo", server_pb2.GetInfoRequest(), server_pb2.GetInfoResponse)

    def operators(self, name: Optional[str] = None) -> Tuple[Record, ...]:
        """The methods of every operator, or of one: contracts with their claims and backends (and
        why one is not available), inputs, attributes and outputs.

        Raises:
            NotFoundError: the server has no operator of this name.
        """
        reply = self._server_call(
            "ListOperators", list_request(name), server_pb2.ListOperatorsResponse
        )
        return reply.methods

    def _request(self, method: str, options: Any, arguments: Dict[str, Any]) -> _codec.Request:
        self._check_open()
        return _codec.build_request(method, options, arguments, self.inline_bytes_max, self)

    def _timeout(self, request: _codec.Request) -> Optional[float]:
        return check_timeout(self.timeout if request.timeout is None else request.timeout)

    def _stub(self, path: str) -> Any:
        stub = self._stubs.get(path)
        if stub is None:
            stub = self._stubs[path] = self._channel.unary_unary(path)
        return stub

    def _server_call(self, rpc: str, request: Any, reply: Any) -> Record:
        return record_from_proto(self._message_call(SERVER_SERVICE + rpc, request, reply))

    def _message_call(self, path: str, request: Any, reply: Any) -> Any:
        """A unary call of messages."""
        return self._unary_call(path, request, reply, check_timeout(self.timeout))

    def _unary_call(self, path: str, request: Any, reply: Any, timeout: Optional[float]) -> Any:
        self._check_open()
        with self._errors():
            data = self._stub(path)(
                request.SerializeToString(), timeout=timeout, metadata=self._session.metadata()
            )
        return reply.FromString(data)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
        except ValueError as error:
            raise self._closed_error(error) from None

    def _check_open(self) -> None:
        if self._closed:
            raise FailedPreconditionError(f"the client of {self.address} is closed")

    def _closed_error(self, error: ValueError) -> RlkError:
        # The client's own, of a token that is none.
        if isinstance(error, RlkError):
            return error
        # gRPC raises ValueError for a channel that another thread closed meanwhile.
        return FailedPreconditionError(f"the client of {self.address} is closed: {error}")


def _settle(future: CallFuture, request: _codec.Request, rpc: Any) -> None:
    """Moves the outcome of an RPC into the caller's future."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(_codec.parse_result(request, rpc.result()))
    except grpc.RpcError as error:
        future.set_exception(from_rpc_error(error))
    except grpc.FutureCancelledError:
        # Not by the caller's cancel(): the channel was closed.
        future.set_exception(
            CancelledError("the client was closed during the call", reason="CANCELLED")
        )
    except Exception as error:  # A reply that makes no sense must not be lost with its thread.
        future.set_exception(error)


_default: Optional[Client] = None


def set_default_client(client: Optional[Client]) -> None:
    """Names the client of functions that are not given one (``rlk.torch``); None takes it back."""
    global _default
    _default = client


def get_default_client() -> Client:
    """The default client; FailedPreconditionError when there is none."""
    if _default is None:
        raise FailedPreconditionError(
            "no client was given and there is no default; call rlk.set_default_client(client)"
        )
    return _default


def client_by_key(key: int) -> Client:
    """The living client with this key; 0 means the default client."""
    if key == 0:
        return get_default_client()
    client = _clients.get(key)
    if client is None:
        raise FailedPreconditionError(f"client {key} does not exist any more")
    return client
