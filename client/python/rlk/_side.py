"""A connection to the side socket of a server on this host: packets and their answers."""

from __future__ import annotations

import os
import socket
import threading
from typing import List, Optional, Tuple

from google.protobuf.message import DecodeError

from rlk._proto import session_pb2
from rlk.errors import UnavailableError, from_status_bytes

# Large arenas are zeroed and page-locked before the answer.
_SECONDS = 60.0
_PACKET_BYTES_MAX = 8192


class SideConnection:
    """Thread-safe: one question at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket: Optional[socket.socket] = connection
        self._lock = threading.Lock()

    @staticmethod
    def connect(path: str) -> Optional[SideConnection]:
        """None where nobody listens at ``path``."""
        if not os.path.exists(path):
            return None
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.settimeout(_SECONDS)
            connection.connect(path)
        except OSError:
            connection.close()
            return None
        return SideConnection(connection)

    def ask(
        self, request: session_pb2.SideRequest
    ) -> Tuple[session_pb2.SideReply, Optional[int]]:
        """The answer, and the descriptor that came with it, which is the caller's to close.

        Raises the server's error, or UnavailableError where it does not answer: the connection is
        of no use after that.
        """
        with self._lock:
            if self._socket is None:
                raise UnavailableError("the connection to the side socket is closed")
            received: List[int] = []
            try:
                self._socket.send(request.SerializeToString())
                data, received, _, _ = socket.recv_fds(self._socket, _PACKET_BYTES_MAX, 1)
                if not data:
                    raise OSError("the server closed the connection")
                reply = session_pb2.SideReply.FromString(data)
            except (OSError, DecodeError) as error:
                # A later answer would be taken for that of another question.
                self._socket.close()
                self._socket = None
                for descriptor in received:
                    os.close(descriptor)
                raise UnavailableError(f"the side socket does not answer: {error}") from None
        if reply.WhichOneof("reply") == "error":
            raise from_status_bytes(reply.error)
        return reply, received[0] if received else None

    def close(self) -> None:
        """Ends the session that it holds. Idempotent."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None
