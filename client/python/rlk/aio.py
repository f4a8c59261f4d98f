"""The asyncio client: the same calls, awaited.

Example::

    async with rlk.aio.connect("127.0.0.1:50051") as client:
        result = await client.call("final_logit_softcap.forward", x=x)
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Sequence, Tuple, Union

import grpc
import grpc.aio

from rlk import _codec
from rlk._proto import server_pb2
from rlk.client import (
    SERVER_SERVICE,
    channel_arguments,
    channel_target,
    check_address,
    list_request,
)
from rlk.errors import FailedPreconditionError, from_rpc_error
from rlk.options import CallOptions, check_timeout
from rlk.report import Record, record_from_proto


def connect(
    address: str,
    *,
    timeout: Optional[float] = None,
    inline_bytes_max: int = _codec.INLINE_BYTES_MAX,
    channel_options: Sequence[Tuple[str, Any]] = (),
) -> AsyncClient:
    """Makes an asyncio client; arguments and errors are those of :func:`rlk.connect`.

    Call it where the event loop runs that will use the client.
    """
    return AsyncClient(
        address,
        timeout=timeout,
        inline_bytes_max=inline_bytes_max,
        channel_options=channel_options,
    )


class AsyncClient:
    """A connection to one server, for one event loop. Any number of its tasks may use it.

    Cancelling a task that awaits a call cancels the RPC.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout: Optional[float],
        inline_bytes_max: int,
        channel_options: Sequence[Tuple[str, Any]],
    ) -> None:
        self.address = check_address(address)
        self.timeout = timeout
        self.inline_bytes_max = inline_bytes_max
        self._channel = grpc.aio.insecure_channel(
            channel_target(address), options=channel_arguments(channel_options)
        )
        self._stubs: Dict[str, Any] = {}
        self._closed = False

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection; calls in flight are cancelled. Idempotent."""
        self._closed = True
        await self._channel.close()

    async def wait_ready(self) -> None:
        """Returns when the server is reachable; bound it with ``asyncio.wait_for``."""
        await self._channel.channel_ready()

    async def call(
        self,
        method: str,
        *,
        options: Union[None, CallOptions, Mapping[str, Any]] = None,
        **arguments: Any,
    ) -> _codec.CallResult:
        """Calls ``method``; arguments, result and errors are those of :meth:`rlk.Client.call`."""
        request = _codec.build_request(method, options, arguments, self.inline_bytes_max)
        timeout = self.timeout if request.timeout is None else request.timeout
        data = await self._rpc(request.method.path, request.data, timeout)
        return _codec.parse_result(request, data)

    async def info(self) -> Record:
        """As :meth:`rlk.Client.info`."""
        return await self._server_call(
            "GetInfo", server_pb2.GetInfoRequest(), server_pb2.GetInfoResponse
        )

    async def operators(self, name: Optional[str] = None) -> Tuple[Record, ...]:
        """As :meth:`rlk.Client.operators`."""
        request = list_request(name)
        reply = await self._server_call("ListOperators", request, server_pb2.ListOperatorsResponse)
        return reply.methods

    async def _server_call(self, rpc: str, request: Any, reply: Any) -> Record:
        data = await self._rpc(SERVER_SERVICE + rpc, request.SerializeToString(), self.timeout)
        message = reply()
        message.ParseFromString(data)
        return record_from_proto(message)

    async def _rpc(self, path: str, data: bytes, timeout: Optional[float]) -> bytes:
        if self._closed:
            raise FailedPreconditionError(f"the client of {self.address} is closed")
        seconds = check_timeout(timeout)
        stub = self._stubs.get(path)
        if stub is None:
            stub = self._stubs[path] = self._channel.unary_unary(path)
        try:
            return await stub(data, timeout=seconds)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
