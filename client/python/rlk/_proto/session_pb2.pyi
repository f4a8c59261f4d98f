from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

ARENA_KIND_DEVICE: ArenaKind
ARENA_KIND_HOST_INPUT: ArenaKind
ARENA_KIND_HOST_OUTPUT: ArenaKind
ARENA_KIND_UNSPECIFIED: ArenaKind
DESCRIPTOR: _descriptor.FileDescriptor

class CloseArenaRequest(_message.Message):
    __slots__ = ["arena"]
    ARENA_FIELD_NUMBER: _ClassVar[int]
    arena: bytes
    def __init__(self, arena: _Optional[bytes] = ...) -> None: ...

class CloseArenaResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class CloseSessionRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class CloseSessionResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class FreeSlotRequest(_message.Message):
    __slots__ = ["arena", "generation"]
    ARENA_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    arena: bytes
    generation: int
    def __init__(self, arena: _Optional[bytes] = ..., generation: _Optional[int] = ...) -> None: ...

class FreeSlotResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class OpenArenaRequest(_message.Message):
    __slots__ = ["bytes", "device_uuid", "kind"]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_UUID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    device_uuid: str
    kind: ArenaKind
    def __init__(self, kind: _Optional[_Union[ArenaKind, str]] = ..., bytes: _Optional[int] = ..., device_uuid: _Optional[str] = ...) -> None: ...

class OpenArenaResponse(_message.Message):
    __slots__ = ["arena", "bytes", "device_uuid"]
    ARENA_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_UUID_FIELD_NUMBER: _ClassVar[int]
    arena: bytes
    bytes: int
    device_uuid: str
    def __init__(self, arena: _Optional[bytes] = ..., bytes: _Optional[int] = ..., device_uuid: _Optional[str] = ...) -> None: ...

class OpenSessionRequest(_message.Message):
    __slots__ = ["lease_ms"]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    lease_ms: int
    def __init__(self, lease_ms: _Optional[int] = ...) -> None: ...

class OpenSessionResponse(_message.Message):
    __slots__ = ["budget", "lease_ms", "server_id", "token"]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    budget: SessionBudget
    lease_ms: int
    server_id: str
    token: str
    def __init__(self, token: _Optional[str] = ..., lease_ms: _Optional[int] = ..., server_id: _Optional[str] = ..., budget: _Optional[_Union[SessionBudget, _Mapping]] = ...) -> None: ...

class RenewSessionRequest(_message.Message):
    __slots__ = ["lease_ms"]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    lease_ms: int
    def __init__(self, lease_ms: _Optional[int] = ...) -> None: ...

class RenewSessionResponse(_message.Message):
    __slots__ = ["budget", "lease_ms"]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    budget: SessionBudget
    lease_ms: int
    def __init__(self, lease_ms: _Optional[int] = ..., budget: _Optional[_Union[SessionBudget, _Mapping]] = ...) -> None: ...

class SessionBudget(_message.Message):
    __slots__ = ["arena_bytes", "arena_bytes_max", "arenas", "arenas_max", "calls_max", "resident_bytes", "resident_bytes_max", "tensors", "tensors_max"]
    ARENAS_FIELD_NUMBER: _ClassVar[int]
    ARENAS_MAX_FIELD_NUMBER: _ClassVar[int]
    ARENA_BYTES_FIELD_NUMBER: _ClassVar[int]
    ARENA_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    CALLS_MAX_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    TENSORS_MAX_FIELD_NUMBER: _ClassVar[int]
    arena_bytes: int
    arena_bytes_max: int
    arenas: int
    arenas_max: int
    calls_max: int
    resident_bytes: int
    resident_bytes_max: int
    tensors: int
    tensors_max: int
    def __init__(self, resident_bytes_max: _Optional[int] = ..., resident_bytes: _Optional[int] = ..., tensors_max: _Optional[int] = ..., tensors: _Optional[int] = ..., calls_max: _Optional[int] = ..., arena_bytes_max: _Optional[int] = ..., arena_bytes: _Optional[int] = ..., arenas_max: _Optional[int] = ..., arenas: _Optional[int] = ...) -> None: ...

class SideReply(_message.Message):
    __slots__ = ["close_arena", "error", "free_slot", "open_arena", "open_session", "take_slot"]
    CLOSE_ARENA_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    FREE_SLOT_FIELD_NUMBER: _ClassVar[int]
    OPEN_ARENA_FIELD_NUMBER: _ClassVar[int]
    OPEN_SESSION_FIELD_NUMBER: _ClassVar[int]
    TAKE_SLOT_FIELD_NUMBER: _ClassVar[int]
    close_arena: CloseArenaResponse
    error: bytes
    free_slot: FreeSlotResponse
    open_arena: OpenArenaResponse
    open_session: OpenSessionResponse
    take_slot: TakeSlotResponse
    def __init__(self, open_session: _Optional[_Union[OpenSessionResponse, _Mapping]] = ..., error: _Optional[bytes] = ..., open_arena: _Optional[_Union[OpenArenaResponse, _Mapping]] = ..., close_arena: _Optional[_Union[CloseArenaResponse, _Mapping]] = ..., take_slot: _Optional[_Union[TakeSlotResponse, _Mapping]] = ..., free_slot: _Optional[_Union[FreeSlotResponse, _Mapping]] = ...) -> None: ...

class SideRequest(_message.Message):
    __slots__ = ["close_arena", "free_slot", "open_arena", "open_session", "take_slot"]
    CLOSE_ARENA_FIELD_NUMBER: _ClassVar[int]
    FREE_SLOT_FIELD_NUMBER: _ClassVar[int]
    OPEN_ARENA_FIELD_NUMBER: _ClassVar[int]
    OPEN_SESSION_FIELD_NUMBER: _ClassVar[int]
    TAKE_SLOT_FIELD_NUMBER: _ClassVar[int]
    close_arena: CloseArenaRequest
    free_slot: FreeSlotRequest
    open_arena: OpenArenaRequest
    open_session: OpenSessionRequest
    take_slot: TakeSlotRequest
    def __init__(self, open_session: _Optional[_Union[OpenSessionRequest, _Mapping]] = ..., open_arena: _Optional[_Union[OpenArenaRequest, _Mapping]] = ..., close_arena: _Optional[_Union[CloseArenaRequest, _Mapping]] = ..., take_slot: _Optional[_Union[TakeSlotRequest, _Mapping]] = ..., free_slot: _Optional[_Union[FreeSlotRequest, _Mapping]] = ...) -> None: ...

class TakeSlotRequest(_message.Message):
    __slots__ = ["arena", "bytes"]
    ARENA_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    arena: bytes
    bytes: int
    def __init__(self, arena: _Optional[bytes] = ..., bytes: _Optional[int] = ...) -> None: ...

class TakeSlotResponse(_message.Message):
    __slots__ = ["bytes", "generation", "offset"]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    generation: int
    offset: int
    def __init__(self, generation: _Optional[int] = ..., offset: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class ArenaKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
