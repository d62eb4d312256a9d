"""How to reach etcd: its members, TLS, login and timeouts."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

from flymq.model.errors import InvalidSetting

_PORT = 2379


class Endpoint(NamedTuple):
    """The client address of one member."""

    host: str
    port: int
    is_tls: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class EtcdConfig:
    endpoints: tuple[Endpoint, ...]
    """All members, tried in this order."""
    prefix: str
    """All keys are under it, as `/flymq/<cluster>/`."""
    tls: ssl.SSLContext | None = None
    """For https endpoints; None: the system's certificates."""
    user: str = ""
    password: str = field(default="", repr=False)
    connect_timeout_s: float = 2.0
    response_timeout_s: float = 2.0
    """For one member: then a read goes to another one, and a write is indeterminate. A write that was on its way to a
    leader that died gets no response; the next leader is elected within this time."""
    timeout_s: float = 5.0
    """For a call, over all attempts."""

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise InvalidSetting("etcd needs at least one endpoint")
        if not self.prefix.endswith("/"):
            raise InvalidSetting(f"the prefix of the keys in etcd has to end with a slash: {self.prefix!r}")


def parse_endpoints(text: str) -> tuple[Endpoint, ...]:
    """Parse `http://host:port,…`. Without a scheme it is http, without a port 2379."""
    return tuple(_parse_endpoint(part.strip()) for part in text.split(",") if part.strip())


def _parse_endpoint(text: str) -> Endpoint:
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port or _PORT
    except ValueError as error:
        raise InvalidSetting(f"not the URL of an etcd member: {text!r} ({error})") from error
    if parts.scheme not in ("http", "https") or not host or parts.path.strip("/") or parts.username or parts.query:
        raise InvalidSetting(f"not the URL of an etcd member: {text!r}")
    return Endpoint(host, port, parts.scheme == "https")
