"""The asyncio client: the same calls, awaited.

Example::

    async with rlk.aio.connect("127.0.0.1:50051") as client:
        result = await client.call("final_logit_softcap.forward", x=x)
"""

from __future__ import annotations

import asyncio
from typing import Any, Dict, Iterable, Iterator, Mapping, Optional, Sequence, Tuple, Union

import grpc
import grpc.aio

from rlk import _codec, _session, resident
from rlk._channel import Route, Tls, Token
from rlk._proto import server_pb2, session_pb2
from rlk._proto import tensor_service_pb2 as tensor_pb2
from rlk.client import SERVER_SERVICE, list_request
from rlk.errors import FailedPreconditionError, RlkError, from_rpc_error
from rlk.options import CallOptions, check_timeout
from rlk.report import Record, record_from_proto


def connect(
    address: str,
    *,
    timeout: Optional[float] = None,
    inline_bytes_max: int = _codec.INLINE_BYTES_MAX,
    session: Optional[str] = None,
    tls: Union[None, bool, Tls] = None,
    token: Token = None,
    channel_options: Sequence[Tuple[str, Any]] = (),
) -> AsyncClient:
    """Makes an asyncio client; arguments and errors are those of :func:`rlk.connect`.

    Call it where the event loop runs that will use the client.
    """
    return AsyncClient(
        address,
        timeout=timeout,
        inline_bytes_max=inline_bytes_max,
        session=session,
        tls=tls,
        token=token,
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
        session: Optional[str] = None,
        tls: Union[None, bool, Tls] = None,
        token: Token = None,
        channel_options: Sequence[Tuple[str, Any]],
    ) -> None:
        self._route = Route(address, tls, token, inline_bytes_max, channel_options)
        self.address = self._route.address
        self.timeout = timeout
        self.inline_bytes_max = inline_bytes_max
        self._channel = self._route.channel(grpc.aio)
        self._stubs: Dict[str, Any] = {}
        self._closed = False
        self._token = session
        self._beside: Optional[Any] = None
        self._renewal: Optional[asyncio.Task[None]] = None
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection and the client's own session, whose tensors go with it; calls in
        flight are cancelled. Idempotent."""
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None
            try:
                await self._message_call(
                    _session.SERVICE + "CloseSession",
                    session_pb2.CloseSessionRequest(),
                    session_pb2.CloseSessionResponse,
                )
            except RlkError:
                pass
        if self._beside is not None:
            self._beside.close()
            self._beside = None
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
        """Calls ``method``; arguments, result and errors are those of :meth:`rlk.Client.call`.

        Streams are not used: a request above ``inline_bytes_max`` raises, and outputs that are too
        large for the reply are :class:`rlk.Resident`.
        """
        request = _codec.build_request(method, options, arguments, self.inline_bytes_max, self)
        timeout = self.timeout if request.timeout is None else request.timeout
        data = await self._rpc(request.method.path, request.data, timeout)
        return _codec.parse_result(request, data)

    async def session(self) -> str:
        """As :meth:`rlk.Client.session`."""
        async with self._opening:
            if self._token is None:
                _session.check_one_server(self.address)
                try:
                    beside = _session.open_beside(self.address)
                except RlkError:
                    beside = None  # It is used for the session alone.
                if beside is not None:
                    self._beside, self._token = beside
                else:
                    response = await self._message_call(
                        _session.SERVICE + "OpenSession",
                        _session.open_request(None),
                        session_pb2.OpenSessionResponse,
                    )
                    self._token = response.token
                    self._renewal = asyncio.ensure_future(self._renew(response.lease_ms / 3000))
            return self._token

    async def _renew(self, interval: float) -> None:
        while True:
            await asyncio.sleep(interval)
            try:
                await self._message_call(
                    _session.SERVICE + "RenewSession",
                    session_pb2.RenewSessionRequest(),
                    session_pb2.RenewSessionResponse,
                )
            except RlkError:
                pass  # The lease has room for two.

    async def put(
        self,
        tensor: Any,
        *,
        device_uuid: Optional[str] = None,
        label: str = "",
        lease: Optional[float] = None,
        progress: Optional[resident.Progress] = None,
    ) -> resident.Resident:
        """As :meth:`rlk.Client.put`. ``get`` and ``release`` of the result are awaited."""
        await self.session()
        ready = resident.upload(tensor, device_uuid, label, lease, progress)

        def parts() -> Iterator[bytes]:
            yield from ready.parts()
            yield tensor_pb2.UploadRequest(digest=ready.digest()).SerializeToString()

        stub = self._channel.stream_unary(resident.SERVICE + "Upload")
        try:
            data = await stub(
                parts(), timeout=check_timeout(self.timeout), metadata=self._metadata()
            )
        except grpc.RpcError as error:
            raise (ready.raised or [from_rpc_error(error)])[0] from None
        response = tensor_pb2.UploadResponse.FromString(data)
        return resident.from_description(self, response.tensor, ready.source.torch_device)

    async def get(
        self,
        tensor: resident.Resident,
        *,
        verify: bool = True,
        progress: Optional[resident.Progress] = None,
    ) -> Any:
        """As :meth:`rlk.Client.get`."""
        resident.check_owner(tensor, self)
        download = resident.Download(progress, verify)
        request = tensor_pb2.DownloadRequest(handle=tensor._handle).SerializeToString()
        stub = self._channel.unary_stream(resident.SERVICE + "Download")
        try:
            async for part in stub(
                request, timeout=check_timeout(self.timeout), metadata=self._metadata()
            ):
                download.take(part)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
        return download.finish(tensor._torch_device)

    async def release(self, tensors: Union[resident.Resident, Iterable[resident.Resident]]) -> None:
        """As :meth:`rlk.Client.release`."""
        request = tensor_pb2.ReleaseTensorsRequest(handles=resident.handles(tensors))
        await self._message_call(
            resident.SERVICE + "ReleaseTensors", request, tensor_pb2.ReleaseTensorsResponse
        )

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
        return record_from_proto(await self._message_call(SERVER_SERVICE + rpc, request, reply))

    async def _message_call(self, path: str, request: Any, reply: Any) -> Any:
        data = await self._rpc(path, request.SerializeToString(), self.timeout)
        return reply.FromString(data)

    def _metadata(self) -> Optional[Sequence[Tuple[str, str]]]:
        return _session.call_metadata(self._route, self._token)

    async def _rpc(self, path: str, data: bytes, timeout: Optional[float]) -> bytes:
        if self._closed:
            raise FailedPreconditionError(f"the client of {self.address} is closed")
        seconds = check_timeout(timeout)
        stub = self._stubs.get(path)
        if stub is None:
            stub = self._stubs[path] = self._channel.unary_unary(path)
        try:
            return await stub(data, timeout=seconds, metadata=self._metadata())
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
