"""A connection to the side socket of a server on this host: packets and their answers."""

from __future__ import annotations

import array
import collections
import os
import socket
import struct
import threading
import weakref
from typing import Deque, List, Optional, Tuple

from google.protobuf.message import DecodeError

from rlk._proto import session_pb2
from rlk.errors import FailedPreconditionError, RlkError, UnavailableError, from_status_bytes

# Large arenas are zeroed and page-locked before the answer.
_SECONDS = 60.0
_TIMEVAL = struct.pack("@ll", int(_SECONDS), 0)
_PACKET_BYTES_MAX = 8192
# Systems without it have no servers; the package is imported there all the same.
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)

_connections: weakref.WeakSet[SideConnection] = weakref.WeakSet()


class SideConnection:
    """Thread-safe: one question at a time.

    It belongs to the process that made it. In a fork of that process it is closed without a word:
    the server has one client at the other end, and answers of one would be read by the other.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket: Optional[socket.socket] = connection
        self._lock = threading.Lock()
        # Slots that are free but not told: (arena, generation). What appends takes no lock.
        self._freed: Deque[Tuple[bytes, int]] = collections.deque()
        self._process = os.getpid()
        _connections.add(self)

    @staticmethod
    def connect(path: str) -> Optional[SideConnection]:
        """None where there is no such socket; UnavailableError where it cannot be reached now."""
        try:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise UnavailableError(f"the side socket {path}: {error}") from None
        # Before it is connected, so that a fork by another thread finds it.
        made = SideConnection(connection)
        try:
            # With Python's own time-out, a full queue of the server would be an error at once.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL)
            connection.connect(path)
            connection.settimeout(_SECONDS)
        except (FileNotFoundError, NotADirectoryError):
            made.close()
            return None
        except OSError as error:
            made.close()
            raise UnavailableError(f"the side socket {path}: {error}") from None
        return made

    @property
    def forked(self) -> bool:
        """Whether this process is a fork of the one that made it."""
        return self._process != os.getpid()

    def check_process(self) -> None:
        """FailedPreconditionError in a fork."""
        if self.forked:
            raise FailedPreconditionError(
                "this process is a fork of the one that shares memory with the server; arenas and "
                "their arrays are of no use in its calls. Make a client of its own",
                reason="PLACEMENT_UNAVAILABLE",
                field="arena",
                allowed="arenas of clients that were made after the fork",
            )

    def ask(
        self, request: session_pb2.SideRequest
    ) -> Tuple[session_pb2.SideReply, Optional[int]]:
        """The answer, and the descriptor that came with it, which is the caller's to close.

        Raises the server's error, or UnavailableError where it does not answer: the connection is
        of no use after that. FailedPreconditionError in a fork.
        """
        self.check_process()
        try:
            with self._lock:
                self._tell_freed()
                reply, descriptor = self._exchange(request)
        finally:
            self._flush()
        if reply.WhichOneof("reply") == "error":
            if descriptor is not None:
                os.close(descriptor)
            raise from_status_bytes(reply.error)
        return reply, descriptor

    def free(self, arena: bytes, generation: int) -> None:
        """Gives a slot back: now, or by whoever talks to the server now, when that is done.

        For finalizers: the garbage collector runs them at any allocation, in a thread that may be
        within a question. So this never waits for the lock, and leaves none behind.
        """
        if self.forked:
            return
        self._freed.append((arena, generation))
        self._flush()

    def _flush(self) -> None:
        # Who appends finds the lock free, or its holder comes here once it has released it.
        while self._freed and self._lock.acquire(blocking=False):
            try:
                self._tell_freed()
            finally:
                self._lock.release()

    def _tell_freed(self) -> None:
        """Under the lock."""
        while self._freed:
            arena, generation = self._freed.popleft()
            request = session_pb2.SideRequest()
            request.free_slot.arena = arena
            request.free_slot.generation = generation
            try:
                self._exchange(request)
            except RlkError:
                pass  # The session has ended, and so have its slots.

    def _exchange(
        self, request: session_pb2.SideRequest
    ) -> Tuple[session_pb2.SideReply, Optional[int]]:
        """Under the lock."""
        if self._socket is None:
            raise UnavailableError("the connection to the side socket is closed")
        received: List[int] = []
        try:
            try:
                self._socket.send(request.SerializeToString())
            except (BrokenPipeError, ConnectionResetError):
                pass  # A server that refuses a connection says why and closes it, maybe by now.
            try:
                data = _receive(self._socket, received)
            except ConnectionResetError:  # it stands before the packet
                data = _receive(self._socket, received)
            if not data:
                raise OSError("the server closed the connection")
            return session_pb2.SideReply.FromString(data), received[0] if received else None
        except BaseException as error:
            # A later answer would be taken for that of another question.
            self._socket.close()
            self._socket = None
            for descriptor in received:
                os.close(descriptor)
            if isinstance(error, (OSError, DecodeError)):
                raise UnavailableError(f"the side socket does not answer: {error}") from None
            raise

    def close(self) -> None:
        """Ends the session that it holds. Idempotent."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def _forget(self) -> None:
        """In a fork: the session is not to outlive the process that opened it."""
        # A thread that is not here may have held it.
        self._lock = threading.Lock()
        self._freed.clear()
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _receive(connection: socket.socket, received: List[int]) -> bytes:
    """A packet; its descriptor is added to ``received``, and no program that is started has it."""
    size = array.array("i").itemsize
    data, ancillary, _, _ = connection.recvmsg(
        _PACKET_BYTES_MAX, socket.CMSG_LEN(size), _CLOSE_ON_EXEC
    )
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors = array.array("i")
            descriptors.frombytes(content[: len(content) - len(content) % size])
            received.extend(descriptors)
    return data


def _after_fork() -> None:
    for connection in list(_connections):
        connection._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
