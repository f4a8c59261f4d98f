"""The client's session: opened when it is first needed, kept alive, closed at the end."""

from __future__ import annotations

import os
import threading
from typing import Any, Callable, List, Optional, Tuple

import numpy as np

from rlk._channel import Route, names_several
from rlk._proto import session_pb2
from rlk._side import SideConnection
from rlk.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
    RlkError,
    UnavailableError,
)

SERVICE = "/rlk.v1.SessionService/"
KEY = "rlk-session"
# What fits in a message; servers allow far less.
_LEASE_SECONDS_MAX = 1e12

# (rpc, request message, response class) -> response
Call = Callable[[str, Any, Any], Any]


def call_metadata(route: Route, session: Optional[str]) -> Optional[List[Tuple[str, str]]]:
    """The tokens that a call carries; None for none."""
    metadata = route.metadata()
    if session is not None:
        metadata.append((KEY, session))
    return metadata or None


def check_one_server(address: str) -> None:
    """A session belongs to one server: FailedPreconditionError for an address of several."""
    if names_several(address):
        raise FailedPreconditionError(
            "sessions, and tensors that stay or travel in streams, belong to one server; "
            f"{address} stands for several",
            reason="WRONG_SERVER",
            field="address",
            value=address,
            allowed="the address of one server",
        )


def lease_ms(lease: Optional[float]) -> int:
    """Milliseconds of a lease in seconds; 0 for None. InvalidArgumentError for what is no lease."""
    if lease is None:
        return 0
    # Also where it is NaN, or no number at all.
    if isinstance(lease, (int, float, np.number)) and 0 < lease < _LEASE_SECONDS_MAX:
        return max(round(float(lease) * 1000), 1)
    raise InvalidArgumentError(
        f"lease: {lease!r} is no lease; allowed: seconds above 0, None",
        reason="LIMIT_EXCEEDED",
        field="lease",
        value=repr(lease),
        allowed="seconds above 0, None",
    )


def open_request(lease: Optional[float]) -> session_pb2.OpenSessionRequest:
    """The request for a session with a lease of so many seconds; None takes the server's."""
    return session_pb2.OpenSessionRequest(lease_ms=lease_ms(lease))


def open_beside(address: str) -> Optional[Tuple[SideConnection, str]]:
    """A session on the side socket of a server at "unix:/path", or None where there is none.

    The session lives as long as the connection: it ends with this process, however that ends.

    Raises:
        UnavailableError, ResourceExhaustedError: there is one and it is not to be had now.
    """
    if not address.startswith("unix:"):
        return None
    connection = SideConnection.connect(address[len("unix:") :] + ".side")
    if connection is None:
        return None
    request = session_pb2.SideRequest(open_session=session_pb2.OpenSessionRequest())
    try:
        reply, _ = connection.ask(request)
        if reply.WhichOneof("reply") == "open_session":
            return connection, reply.open_session.token
    except (UnavailableError, ResourceExhaustedError):
        connection.close()
        raise
    except RlkError:
        pass  # Of another user, say: the call that opens the session says what is wrong.
    connection.close()
    return None


class SessionHolder:
    """Thread-safe. With a token the session is somebody else's: neither renewed nor closed."""

    def __init__(self, route: Route, token: Optional[str], lease: Optional[float]) -> None:
        self._route = route
        self._lease = lease
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._connection: Optional[SideConnection] = None
        # Why the side socket that there is was not to be had.
        self._missed: Optional[RlkError] = None
        self._own = False
        self._process = os.getpid()
        self.token = token

    def metadata(self) -> Optional[List[Tuple[str, str]]]:
        """What every call carries."""
        return call_metadata(self._route, self.token)

    def require(self, call: Call, beside_only: bool = False) -> str:
        """The token; opens the session with ``call`` if there is none.

        With ``beside_only`` no session is opened in another way than on the side socket where that
        could be had later: the error is raised.
        """
        with self._lock:
            if self.token is None:
                check_one_server(self._route.address)
                beside = None
                try:
                    self._missed = None
                    beside = open_beside(self._route.address)
                except RlkError as error:
                    self._missed = error
                    if beside_only:
                        raise
                if beside is not None:
                    self._connection, self.token = beside
                else:
                    response = call(
                        SERVICE + "OpenSession",
                        open_request(self._lease),
                        session_pb2.OpenSessionResponse,
                    )
                    self.token = response.token
                    self._own = True
                    interval = max(response.lease_ms / 3000, 0.001)
                    threading.Thread(
                        target=self._renew, args=(call, interval), name="rlk-session", daemon=True
                    ).start()
            token = self.token
        assert token is not None
        return token

    def require_side(self, call: Call) -> SideConnection:
        """The connection that holds the session; FailedPreconditionError where none does.

        UnavailableError or ResourceExhaustedError where the server has a side socket that could not
        be had: without a session, asking again later may help.
        """
        self.require(call, beside_only=True)
        if self._connection is None:
            if self._missed is not None:
                raise self._missed.with_traceback(None)
            raise FailedPreconditionError(
                "arenas are for clients that hold their session on the server's side socket",
                reason="PLACEMENT_UNAVAILABLE",
                field="address",
                value=self._route.address,
                allowed="unix:PATH with the side socket PATH.side, and a session of its own",
            )
        return self._connection

    def _renew(self, call: Call, interval: float) -> None:
        # A renewal that fails is tried again at the next turn: the lease has room for two.
        while not self._stop.wait(interval):
            try:
                call(
                    SERVICE + "RenewSession",
                    session_pb2.RenewSessionRequest(),
                    session_pb2.RenewSessionResponse,
                )
            except RlkError:
                pass

    def close(self, call: Call) -> None:
        """Ends a session of its own, unless this is a fork of who opened it. Idempotent."""
        if self._process != os.getpid():
            return
        with self._lock:
            self._stop.set()
            if self._connection is not None:
                self._connection.close()
                self._connection = None
                self.token = None
            elif self._own:
                self._own = False
                try:
                    call(
                        SERVICE + "CloseSession",
                        session_pb2.CloseSessionRequest(),
                        session_pb2.CloseSessionResponse,
                    )
                except RlkError:
                    pass
                self.token = None
