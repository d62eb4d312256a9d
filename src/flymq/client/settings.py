"""Every setting of the SDK: its name, type, default and limits.

Each setting exists twice: in a frozen dataclass, which validates it, and in a `TypedDict`, which makes it a typed
keyword argument of every constructor. A test compares the two.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from flymq.client.encryption import Key
from flymq.client.partitioner import Partitioner
from flymq.client.serializers import Deserializer, Serializer
from flymq.model.delivery import Acks, Isolation
from flymq.model.errors import InvalidSetting
from flymq.record.compression import Compression, compression_named

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

DEFAULT_ADDRESS = "localhost:9092"
DEFAULT_PORT = 9092
ADDRESS_VARIABLE = "FLYMQ_BOOTSTRAP"
"""Environment variable with the bootstrap address, if none is given."""

Address = tuple[str, int]
C = TypeVar("C")


class ConnectionSettings(TypedDict, total=False):
    """How to connect to the brokers."""

    client_id: str
    tls_enabled: bool
    tls_ca_file: str | os.PathLike[str] | None
    tls_cert_file: str | os.PathLike[str] | None
    tls_key_file: str | os.PathLike[str] | None
    tls_context: ssl.SSLContext | None
    username: str | None
    password: str | None
    connect_timeout_ms: int
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int


class CodecSettings(TypedDict, total=False):
    """End-to-end encryption of values."""

    encryption_key: Key | None
    decryption_keys: Sequence[Key]
    encryption_required: bool


class TracingSettings(TypedDict, total=False):
    """OpenTelemetry tracing of sends and of processing."""

    tracing: bool | TracerProvider


class ProducerSettings(TypedDict, total=False):
    """How records are sent."""

    acks: str | int | Acks
    compression: str | Compression
    linger_ms: float
    batch_bytes_max: int
    buffer_bytes_max: int
    delivery_timeout_ms: int
    retries: int | None
    idempotent: bool | None
    partitioner: Partitioner | None
    key_serializer: Serializer | None
    value_serializer: Serializer | None


class ConsumerSettings(TypedDict, total=False):
    """How records are read."""

    start: str
    isolation: str | Isolation
    fetch_wait_ms: int
    fetch_bytes_min: int
    fetch_bytes_max: int
    partition_bytes_max: int
    prefetch_bytes: int
    prefetch_total_bytes: int
    poll_records_max: int
    on_corrupt_batch: str
    auto_commit: bool
    auto_commit_interval_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    rebalance_timeout_ms: int
    instance_id: str
    assignors: Sequence[str]
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None


class ClientSettings(ConnectionSettings, CodecSettings, TracingSettings, ProducerSettings, total=False):
    """Settings of a client: the connection, and how its own `produce` sends."""


@dataclass(frozen=True, slots=True)
class ConnectionConfig:
    """How to connect to the brokers, validated."""

    addresses: tuple[Address, ...] = (("localhost", DEFAULT_PORT),)
    client_id: str = "flymq-python"
    tls_enabled: bool = False
    tls_ca_file: str | os.PathLike[str] | None = None
    tls_cert_file: str | os.PathLike[str] | None = None
    tls_key_file: str | os.PathLike[str] | None = None
    tls_context: ssl.SSLContext | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000

    def __post_init__(self) -> None:
        _check_at_least(self, 1, "connect_timeout_ms", "request_timeout_ms", "retry_backoff_ms", "retry_backoff_max_ms")
        _check_at_least(self, 100, "metadata_max_age_ms")
        if (self.username is None) != (self.password is None):
            raise InvalidSetting("set both `username` and `password`, or neither")
        if self.tls_key_file is not None and self.tls_cert_file is None:
            raise InvalidSetting("`tls_key_file` needs `tls_cert_file`")

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS context, or None when TLS is off. Reads the certificate files."""
        if self.tls_context is not None:
            return self.tls_context
        if not (self.tls_enabled or self.tls_ca_file or self.tls_cert_file):
            return None
        try:
            context = ssl.create_default_context(
                cafile=None if self.tls_ca_file is None else os.fspath(self.tls_ca_file)
            )
            if self.tls_cert_file is not None:
                context.load_cert_chain(self.tls_cert_file, self.tls_key_file)
        except (OSError, ssl.SSLError) as error:
            raise InvalidSetting(f"`tls_ca_file`, `tls_cert_file` or `tls_key_file` cannot be used: {error}") from error
        return context


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """How records are sent, validated."""

    acks: Acks = Acks.LEADER
    compression: Compression = Compression.NONE
    linger_ms: float = 0
    batch_bytes_max: int = 512 << 10
    buffer_bytes_max: int = 32 << 20
    delivery_timeout_ms: int = 120_000
    retries: int | None = None
    idempotent: bool | None = None
    partitioner: Partitioner | None = None
    key_serializer: Serializer | None = None
    value_serializer: Serializer | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "acks", _parse_acks(self.acks))
        object.__setattr__(self, "compression", _parse_compression(self.compression))
        _check_at_least(self, 0, "linger_ms")
        _check_at_least(self, 1, "batch_bytes_max", "delivery_timeout_ms")
        _check_at_least(self, self.batch_bytes_max, "buffer_bytes_max")
        if self.retries is not None:
            _check_at_least(self, 0, "retries")
        if self.idempotent and self.acks is Acks.NONE:
            raise InvalidSetting("`idempotent` needs acknowledgements: use acks 'leader' or 'all'")


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """How records are read, validated."""

    start: str = "earliest"
    isolation: Isolation = Isolation.READ_COMMITTED
    fetch_wait_ms: int = 500
    fetch_bytes_min: int = 1
    fetch_bytes_max: int = 16 << 20
    partition_bytes_max: int = 1 << 20
    prefetch_bytes: int = 2 << 20
    prefetch_total_bytes: int = 64 << 20
    poll_records_max: int = 500
    on_corrupt_batch: str = "raise"
    auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    session_timeout_ms: int = 30_000
    heartbeat_interval_ms: int = 3_000
    rebalance_timeout_ms: int = 60_000
    instance_id: str = ""
    assignors: Sequence[str] = ("range",)
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None

    def __post_init__(self) -> None:
        if self.start not in ("earliest", "latest", "none"):
            raise InvalidSetting(f"`start` takes 'earliest', 'latest' or 'none', not {self.start!r}")
        if self.on_corrupt_batch not in ("raise", "skip"):
            raise InvalidSetting(f"`on_corrupt_batch` takes 'raise' or 'skip', not {self.on_corrupt_batch!r}")
        object.__setattr__(self, "isolation", _parse_isolation(self.isolation))
        _check_at_least(self, 0, "fetch_wait_ms", "fetch_bytes_min")
        _check_at_least(self, 1, "fetch_bytes_max", "partition_bytes_max", "prefetch_bytes", "poll_records_max")
        _check_at_least(self, self.prefetch_bytes, "prefetch_total_bytes")
        _check_at_least(self, 1, "auto_commit_interval_ms", "heartbeat_interval_ms", "rebalance_timeout_ms")
        if self.session_timeout_ms < 2 * self.heartbeat_interval_ms:
            raise InvalidSetting("`session_timeout_ms` must be at least twice `heartbeat_interval_ms`")


def parse_addresses(servers: str | Iterable[str] | None) -> tuple[Address, ...]:
    """Return hosts and ports from "h1:9092,h2:9092", a list of such, or the environment's or built-in default."""
    if servers is None:
        servers = os.environ.get(ADDRESS_VARIABLE) or DEFAULT_ADDRESS
    names = servers.split(",") if isinstance(servers, str) else list(servers)
    found = tuple(_parse_address(name.strip()) for name in names if name.strip())
    if not found:
        raise InvalidSetting("the list of brokers is empty", hint=f"Give an address such as {DEFAULT_ADDRESS}.")
    return found


def pick(config: type[C], settings: Mapping[str, Any], **more: Any) -> C:
    """Build one of the configs above from the settings that belong to it."""
    names = {field.name for field in fields(config)}  # type: ignore[arg-type]
    return config(**{name: value for name, value in settings.items() if name in names}, **more)


def check_known(settings: Mapping[str, Any], *kinds: type) -> None:
    """Reject an unknown or misspelt setting by name."""
    known = {name for kind in kinds for name in kind.__annotations__}
    for name in settings:
        if name not in known:
            raise InvalidSetting(f"there is no setting {name!r}", hint=f"Known: {', '.join(sorted(known))}.")


def _parse_address(text: str) -> Address:
    host, separator, port = text.rpartition(":")
    if not separator or text.endswith("]"):  # no port, as in "broker" or "[::1]"
        host, port = text, str(DEFAULT_PORT)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise InvalidSetting(f"{text!r} is not an address", hint=f"Write host:port, such as {DEFAULT_ADDRESS}.")
    return host, int(port)


def _parse_acks(value: object) -> Acks:
    names = {
        "none": Acks.NONE,
        "leader": Acks.LEADER,
        "all": Acks.ALL,
        "0": Acks.NONE,
        "1": Acks.LEADER,
        "-1": Acks.ALL,
    }
    if isinstance(value, Acks):
        return value
    if str(value) not in names:
        raise InvalidSetting(f"`acks` takes 'none', 'leader' or 'all', not {value!r}")
    return names[str(value)]


def _parse_compression(value: object) -> Compression:
    return value if isinstance(value, Compression) else compression_named(str(value))


def _parse_isolation(value: object) -> Isolation:
    names = {"read_uncommitted": Isolation.READ_UNCOMMITTED, "read_committed": Isolation.READ_COMMITTED}
    if isinstance(value, Isolation):
        return value
    if not isinstance(value, str) or value not in names:
        raise InvalidSetting(f"`isolation` takes 'read_committed' or 'read_uncommitted', not {value!r}")
    return names[value]


def _check_at_least(config: object, low: float, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or value < low:
            raise InvalidSetting(f"`{name}` takes a number of at least {low}, not {value!r}")
