"""What the blocking client does with tensors that stay on the server."""

from __future__ import annotations

from typing import (
    Any,
    ContextManager,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Tuple,
    Union,
)

from rlk import _codec, _session, _staging, resident
from rlk._proto import tensor_service_pb2 as tensor_pb2
from rlk.arena import Arena, Arenas
from rlk.errors import InvalidArgumentError, RlkError
from rlk.options import check_timeout


class TensorCalls:
    """A part of :class:`rlk.Client`."""

    timeout: Optional[float]
    _channel: Any
    _session: _session.SessionHolder
    _arenas: Arenas
    _staging: _staging.Staging

    def _check_open(self) -> None:
        raise NotImplementedError

    def _errors(self) -> ContextManager[None]:
        raise NotImplementedError

    def _message_call(self, path: str, request: Any, reply: Any) -> Any:
        raise NotImplementedError

    def _request(self, method: str, options: Any, arguments: Dict[str, Any]) -> _codec.Request:
        raise NotImplementedError

    def _call_once(self, request: _codec.Request) -> _codec.CallResult:
        raise NotImplementedError

    def session(self) -> str:
        """The token of the client's session, which is opened if there is none. A secret."""
        self._check_open()
        return self._session.require(self._message_call)

    def arena(
        self, nbytes: int, kind: str = "input", *, device_uuid: Optional[str] = None
    ) -> Arena:
        """Memory that the server shares with this client: tensors in it are not sent.

        For clients on a Unix socket with the server's side socket beside it, of the server's user.

        Args:
            nbytes: its size.
            kind: "input", "output" or "device".
            device_uuid: of kind "device": the GPU, as ``client.info()`` reports it; by default the
                server's first.

        Raises:
            FailedPreconditionError: such arenas are not to be had here.
            ResourceExhaustedError: there is no room now, or this process cannot map it.
            UnavailableError: the side socket is not to be had now.
        """
        self._check_open()
        side = self._session.require_side(self._message_call)
        made = Arena(side, kind, nbytes, device_uuid or "")
        self._arenas.add(made)
        return made

    def put(
        self,
        tensor: Any,
        *,
        device_uuid: Optional[str] = None,
        label: str = "",
        lease: Optional[float] = None,
        reuse: bool = False,
        verify: bool = True,
        progress: Optional[resident.Progress] = None,
        timeout: Optional[float] = None,
    ) -> resident.Resident:
        """Uploads a tensor that stays on the server. A failed upload leaves nothing there, and is
        not repeated.

        Args:
            tensor: a numpy array or torch tensor, of any device; its bits are not changed.
            device_uuid: where it shall lie, as ``client.info()`` reports devices; by default on the
                server's first GPU, or its host.
            label: words for ``client.tensors()``.
            lease: seconds that the tensor lives; None: as long as the session.
            reuse: ask first whether the session has a tensor with these bits there; if so, nothing
                is sent. It then takes one more release to free it. A tensor with a lease of its own
                is never shared: with ``lease`` nothing is asked.
            verify: send the digest, so that the server compares it with what arrived.
            progress: called with the bytes sent, and all. What it raises ends the upload, and is
                raised here.
            timeout: as in ``call``.
        """
        self._session.require(self._message_call)
        ready = resident.upload(tensor, device_uuid, label, lease, progress)
        reuse = reuse and lease is None
        digest = ready.digest() if reuse or verify else ""
        place = ready.source.torch_device
        if reuse:
            request = tensor_pb2.FindTensorRequest(digest=digest, device_uuid=device_uuid or "")
            found = self._message_call(
                resident.SERVICE + "FindTensor", request, tensor_pb2.FindTensorResponse
            )
            if found.HasField("tensor"):
                return resident.from_description(self, found.tensor, place)

        def parts() -> Iterator[bytes]:
            yield from ready.parts()
            if verify:
                yield tensor_pb2.UploadRequest(digest=digest).SerializeToString()

        stub = self._channel.stream_unary(resident.SERVICE + "Upload")
        try:
            with self._errors():
                data = stub(
                    parts(),
                    timeout=check_timeout(self.timeout if timeout is None else timeout),
                    metadata=self._session.metadata(),
                )
        except RlkError:
            if ready.raised:
                raise ready.raised[0] from None
            raise
        response = tensor_pb2.UploadResponse.FromString(data)
        return resident.from_description(self, response.tensor, place)

    def get(
        self,
        tensor: resident.Resident,
        *,
        verify: bool = True,
        progress: Optional[resident.Progress] = None,
        timeout: Optional[float] = None,
    ) -> Any:
        """Downloads a resident tensor: a new numpy array, or a torch tensor where it came from one.

        Raises:
            DataLossError: with ``verify``, where the bytes that arrived have another digest.
        """
        resident.check_owner(tensor, self)
        download = resident.Download(progress, verify)
        request = tensor_pb2.DownloadRequest(handle=tensor._handle).SerializeToString()
        stub = self._channel.unary_stream(resident.SERVICE + "Download")
        with self._errors():
            for part in stub(
                request,
                timeout=check_timeout(self.timeout if timeout is None else timeout),
                metadata=self._session.metadata(),
            ):
                download.take(part)
        return download.finish(tensor._torch_device)

    def release(self, tensors: Union[resident.Resident, Iterable[resident.Resident]]) -> None:
        """Frees resident tensors: all of them or, where one is not there, none."""
        request = tensor_pb2.ReleaseTensorsRequest(handles=resident.handles(tensors))
        self._message_call(
            resident.SERVICE + "ReleaseTensors", request, tensor_pb2.ReleaseTensorsResponse
        )

    def tensors(self) -> Tuple[resident.Resident, ...]:
        """The tensors of the session, in the order of their ids."""
        found: List[resident.Resident] = []
        request = tensor_pb2.ListTensorsRequest()
        while True:
            page = self._message_call(
                resident.SERVICE + "ListTensors", request, tensor_pb2.ListTensorsResponse
            )
            found.extend(resident.from_description(self, tensor) for tensor in page.tensors)
            if not page.next_page_token:
                return tuple(found)
            request.page_token = page.next_page_token

    def load(
        self,
        path: str,
        manifest: Mapping[str, Mapping[str, Any]],
        *,
        device_uuid: Optional[str] = None,
        synthetic: str = "",
    ) -> Dict[str, resident.Resident]:
        """Loads tensors of safetensors files under the server's ``--weights-root``.

        Args:
            path: relative to that folder: the file of tensors that name none.
            manifest: what each tensor must be, by its key in the file: ``{"w": {"dtype": "bf16",
                "shape": (4, 8), "sha256": "..."}}``, and ``"path"`` where it lies in another file.
                Any difference is refused and nothing is kept.
            device_uuid: as in :meth:`put`.
            synthetic: how the files say that their values were made up; "" for weights of a model.
                Files that say another thing are refused.
        """
        self._session.require(self._message_call)
        request = tensor_pb2.LoadTensorsRequest(
            path=path, device_uuid=device_uuid or "", synthetic=synthetic
        )
        for key, expected in manifest.items():
            try:
                entry = request.manifest.add(
                    key=key,
                    shape=expected["shape"],
                    sha256=expected["sha256"],
                    path=expected.get("path", ""),
                )
                dtype = expected["dtype"]
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                allowed = "dtype, shape, sha256, and path where it lies in another file"
                raise InvalidArgumentError(
                    f"manifest[{key}]: {error!r}; allowed: {allowed}",
                    reason="MALFORMED_MESSAGE",
                    field=f"manifest[{key}]",
                    value=repr(expected),
                    allowed=allowed,
                ) from None
            number: Any = _codec.dtype_number(f"manifest[{key}].dtype", dtype)
            entry.dtype = number
        response = self._message_call(
            resident.SERVICE + "LoadTensors", request, tensor_pb2.LoadTensorsResponse
        )
        return {
            tensor.label: resident.from_description(self, tensor) for tensor in response.tensors
        }

    def _call_uploaded(
        self, method: str, options: Any, arguments: Dict[str, Any]
    ) -> _codec.CallResult:
        """Brings the large tensors of a call to the server, for the call alone: through memory that
        both share where there is some, and else in streams."""
        staged = self._staging.stage(self, arguments)
        if staged is not None:
            try:
                return self._call_once(self._request(method, options, staged.arguments))
            finally:
                self._staging.give_back(staged)
        uploaded: List[resident.Resident] = []

        def moved(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return [moved(item) for item in value]
            if not _staging.is_large(value) or self._arenas.find(value) is not None:
                return value
            uploaded.append(self.put(value, label="input of a call", verify=False))
            return uploaded[-1]

        try:
            smaller = {name: moved(value) for name, value in arguments.items()}
            return self._call_once(self._request(method, options, smaller))
        finally:
            if uploaded:
                self.release(uploaded)

    def _fetch_moved(self, result: _codec.CallResult) -> _codec.CallResult:
        """Outputs that nobody asked to keep come after the reply."""
        moved = [result[name] for name in result.report.moved_to_resident]
        if not moved:
            return result
        try:
            outputs = {
                name: value.get() if name in result.report.moved_to_resident else value
                for name, value in result.items()
            }
        finally:
            self.release(moved)
        return _codec.CallResult(outputs, result.report)
