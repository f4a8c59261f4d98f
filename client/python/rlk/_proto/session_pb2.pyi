from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CloseSessionRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class CloseSessionResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

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
    __slots__ = ["calls_max", "resident_bytes", "resident_bytes_max", "tensors", "tensors_max"]
    CALLS_MAX_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    TENSORS_MAX_FIELD_NUMBER: _ClassVar[int]
    calls_max: int
    resident_bytes: int
    resident_bytes_max: int
    tensors: int
    tensors_max: int
    def __init__(self, resident_bytes_max: _Optional[int] = ..., resident_bytes: _Optional[int] = ..., tensors_max: _Optional[int] = ..., tensors: _Optional[int] = ..., calls_max: _Optional[int] = ...) -> None: ...

class SideReply(_message.Message):
    __slots__ = ["error", "open_session"]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OPEN_SESSION_FIELD_NUMBER: _ClassVar[int]
    error: bytes
    open_session: OpenSessionResponse
    def __init__(self, open_session: _Optional[_Union[OpenSessionResponse, _Mapping]] = ..., error: _Optional[bytes] = ...) -> None: ...

class SideRequest(_message.Message):
    __slots__ = ["open_session"]
    OPEN_SESSION_FIELD_NUMBER: _ClassVar[int]
    open_session: OpenSessionRequest
    def __init__(self, open_session: _Optional[_Union[OpenSessionRequest, _Mapping]] = ...) -> None: ...
