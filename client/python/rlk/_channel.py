"""What a client needs to reach a server, or several: address, TLS, token, balancing."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import os
import re
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import grpc

from rlk import _methods
from rlk.errors import InvalidArgumentError
from rlk.options import is_text

_FORMS = '"host:port", "unix:/path", "ipv4:host:port,host:port", "ipv6:...", "dns:///host:port"'
_HOST_PORT = re.compile(r".+:([0-9]{1,5})", re.DOTALL)
_TOKEN_KEY = "authorization"
_TOKEN_TEXT = re.compile(r"[A-Za-z0-9._~+/=-]{1,4096}")

Token = Union[None, str, Callable[[], str]]


@dataclasses.dataclass(frozen=True)
class Tls:
    """How a client speaks TLS. Files are PEM.

    Attributes:
        ca: file with the authorities of servers; None takes the system's.
        cert: file with the client's own certificate, for servers that ask for one.
        key: file with its key.
        server_name: the name that the server's certificate must have; None takes the host of the
            address.
    """

    ca: Optional[Union[str, "os.PathLike[str]"]] = None
    cert: Optional[Union[str, "os.PathLike[str]"]] = None
    key: Optional[Union[str, "os.PathLike[str]"]] = None
    server_name: Optional[str] = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise _wrong("tls", "a certificate without its key", "cert and key, or neither")

    def credentials(self) -> grpc.ChannelCredentials:
        """For a channel of gRPC."""
        key = _read(self.key, secret=True)
        return grpc.ssl_channel_credentials(_read(self.ca), key, _read(self.cert))


def _read(
    path: Optional[Union[str, "os.PathLike[str]"]], secret: bool = False
) -> Optional[bytes]:
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        # The path of a secret may be the secret itself, given in place of its file.
        said = f"key: {error.strerror}" if secret else str(error)
        raise _wrong("tls", said, "files that can be read") from None


def _wrong(field: str, value: str, allowed: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{field}: {value}; allowed: {allowed}",
        reason="UNKNOWN_OPTION",
        field=field,
        value=value,
        allowed=allowed,
    )


def _check_token(token: Any) -> str:
    # gRPC repeats a header that it cannot send in its error, and in some versions in its log.
    if isinstance(token, str) and _TOKEN_TEXT.fullmatch(token):
        return token
    raise _wrong(
        "token",
        "no token",
        "letters, digits and -._~+/=, at most 4096, without the line end of a file; or a function "
        "that returns such text",
    )


def check_address(address: Any) -> str:
    """The address, if it is one. gRPC would take port 99999 for 34463."""
    if is_text(address):
        unix = address.startswith("unix:")
        if address != "unix:" if unix else all(map(_is_host_port, _host_ports(address))):
            return str(address)
    raise InvalidArgumentError(
        f"{address!r} is no address; allowed: {_FORMS}",
        reason="ATTRIBUTE_OUT_OF_RANGE",
        field="address",
        value=repr(address),
        allowed=_FORMS,
    )


def names_several(address: str) -> bool:
    """Whether the address may stand for several servers: calls are spread over them."""
    if address.startswith(("ipv4:", "ipv6:")):
        return "," in address
    return address.startswith("dns:")


def _is_loopback(host_port: str) -> bool:
    host = host_port.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_host_port(text: str) -> bool:
    match = _HOST_PORT.fullmatch(text)
    return match is not None and 1 <= int(match[1]) <= 65535


def _host_ports(address: str) -> List[str]:
    """What should be the host and port of each server, for an address that is no Unix socket."""
    for prefix in ("ipv4:", "ipv6:"):
        if address.startswith(prefix):
            return address[len(prefix) :].split(",")
    for prefix in ("dns:///", "dns:"):
        if address.startswith(prefix):
            address = address[len(prefix) :]
            break
    # Only literals stand for several.
    return [address] if "," not in address else [""]


def _stays_on_host(address: str) -> bool:
    return address.startswith("unix:") or all(map(_is_loopback, _host_ports(address)))


def _target(address: str) -> str:
    # gRPC would cut a path at # and ?, and take %41 for A.
    if not address.startswith("unix:"):
        return address
    return address.replace("%", "%25").replace("#", "%23").replace("?", "%3F")


def _balancing_config() -> str:
    # Calls go to the servers that say they serve. One that none has begun, or that gives the same
    # bits again, is repeated: operators are pure. Streams and sessions are never repeated.
    services = sorted({method.path.split("/")[1] for method in _methods.all_methods().values()})
    names = [{"service": name} for name in services]
    names += [{"service": "rlk.v1.ServerService"}, {"service": "rlk.v1.ParityService"}]
    config: Dict[str, Any] = {
        "loadBalancingConfig": [{"round_robin": {}}],
        "healthCheckConfig": {"serviceName": ""},
        "methodConfig": [
            {
                "name": names,
                "retryPolicy": {
                    "maxAttempts": 4,
                    "initialBackoff": "0.05s",
                    "maxBackoff": "1s",
                    "backoffMultiplier": 2,
                    "retryableStatusCodes": ["UNAVAILABLE"],
                },
            }
        ],
    }
    return json.dumps(config)


class Route:
    """Where a client calls, and with which credentials."""

    def __init__(
        self,
        address: Any,
        tls: Union[None, bool, Tls],
        token: Token,
        inline_bytes_max: int,
        channel_options: Sequence[Tuple[str, Any]],
    ) -> None:
        self.address = check_address(address)
        self.tls = Tls() if tls is True else tls or None
        if self.tls is not None and not isinstance(self.tls, Tls):
            raise _wrong("tls", repr(tls), "None, True, or an rlk.Tls")
        if token is not None and not callable(token):
            _check_token(token)
        if token is not None and self.tls is None and not _stays_on_host(self.address):
            # Anybody on the way could read it.
            raise _wrong("token", "a token without TLS", "tls, a loopback address, a Unix socket")
        self._token = token
        # Tensors never go through an HTTP proxy.
        self.options: List[Tuple[str, Any]] = [("grpc.enable_http_proxy", 0)]
        if names_several(self.address):
            self.options += [
                ("grpc.service_config", _balancing_config()),
                # gRPC's own bound ends retries of requests above 256 KiB.
                ("grpc.per_rpc_retry_buffer_size", 2 * inline_bytes_max),
            ]
        if self.tls is not None and self.tls.server_name is not None:
            self.options.append(("grpc.ssl_target_name_override", self.tls.server_name))
        self.options += channel_options

    def metadata(self) -> List[Tuple[str, str]]:
        """The token of this moment, as metadata of a call."""
        if self._token is None:
            return []
        token = self._token() if callable(self._token) else self._token
        return [(_TOKEN_KEY, f"Bearer {_check_token(token)}")]

    def channel(self, api: Any) -> Any:
        """A channel by ``grpc`` or ``grpc.aio``."""
        target = _target(self.address)
        if self.tls is None:
            return api.insecure_channel(target, options=self.options)
        return api.secure_channel(target, self.tls.credentials(), options=self.options)
