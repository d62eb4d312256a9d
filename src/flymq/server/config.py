"""Every setting of a broker: one typed tree with the description, the allowed values and the default of each.

The tree is the single place to add a setting: the config file, the environment variables, the flags and
docs/reference/settings.md are derived from it (see settings.py). Rules that involve several settings are checked when
the tree is built, so a broker can start with any `Config` that exists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from flymq.broker.access.passwords import PasswordHash
from flymq.metadata.etcd.config import parse_endpoints
from flymq.model.errors import InvalidSetting
from flymq.model.topic_config import TopicConfig
from flymq.server.listeners import AdditionalListener, is_wildcard, parse_additional

INT64_MAX = (1 << 63) - 1
HTTP_PORT = 8080
NO_PORT = -1
_INT32_MAX = (1 << 31) - 1

DEV_DEFAULTS: Mapping[str, Any] = {"topics.auto_create": True}
"""Defaults in dev mode (`broker.dev`); explicit settings take precedence."""


class ClientAuth(Enum):
    """Whether clients must present a certificate (mutual TLS)."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"


class LogLevel(Enum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(Enum):
    PEOPLE = "people"
    JSON = "json"


def _setting(default: Any, text: str, *, low: int = 0, high: int = INT64_MAX, must_exist: bool = False) -> Any:
    return field(default=default, metadata={"text": text, "low": low, "high": high, "must_exist": must_exist})


def _secret(text: str) -> Any:
    """A text that is shown to nobody."""
    return field(default=None, repr=False, metadata={"text": text, "is_secret": True})


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Identity of the broker and its data directory."""

    data_dir: Path = _setting(Path("flymq-data"), "Data directory; created if it does not exist.")
    id: int = _setting(
        0, "Id of this broker; unique in the cluster. With `cluster.etcd` it has to be set.", high=_INT32_MAX
    )
    cluster_id: str | None = _setting(None, "Id of the cluster that the broker belongs to.")
    rack: str | None = _setting(
        None, "Rack or zone of this broker: the replicas of a partition are placed in different ones."
    )
    shutdown_timeout_ms: int = _setting(
        25_000,
        "Time for a clean shutdown. Partitions that are not closed by then are recovered at the next start. Keep it "
        "below the patience of the service manager, such as 30 s in Kubernetes.",
        low=1_000,
    )
    dev: bool = _setting(False, "Development mode: topics are created on first use.")


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The cluster that the broker belongs to. Without these settings it is a single broker."""

    etcd: str | None = _setting(
        None,
        "The etcd that has the metadata of the cluster: URLs of its members, separated by commas, such as "
        "`http://a:2379,http://b:2379`.",
    )
    name: str = _setting("flymq", "Name of the cluster in etcd: its keys are under `/flymq/<name>/`.")
    etcd_ca_file: Path | None = _setting(
        None, "CA certificates to verify etcd with, PEM; those of the system if not set.", must_exist=True
    )
    etcd_cert_file: Path | None = _setting(None, "Client certificate for etcd, PEM.", must_exist=True)
    etcd_key_file: Path | None = _setting(None, "Private key of the client certificate, PEM.", must_exist=True)
    etcd_username: str | None = _setting(None, "User name for etcd.")
    etcd_password: str | None = _secret("Password for etcd. On a command line, other users of the machine can see it.")
    store: Path | None = _setting(
        None,
        "Local socket on which another process of this machine serves the metadata of the cluster. Set by "
        "`flymq server start --brokers`.",
    )
    session_timeout_ms: int = _setting(
        6_000,
        "Time without contact after which the cluster considers a broker dead. One whose process has died is noticed "
        "sooner.",
        low=2_000,
        high=600_000,
    )

    def __post_init__(self) -> None:
        if self.etcd is not None and self.store is not None:
            raise InvalidSetting(
                "cluster.etcd and cluster.store are both set", hint="The metadata is in one of them: unset the other."
            )
        if not _CLUSTER_NAME.fullmatch(self.name):
            raise InvalidSetting(
                f"cluster.name takes letters, digits, '.', '_' and '-', at most 100, not {self.name!r}"
            )
        if self.etcd is not None and not parse_endpoints(self.etcd):
            raise InvalidSetting("cluster.etcd has no URL", hint="Set it to the URLs of the members of etcd.")
        if (self.etcd_cert_file is None) != (self.etcd_key_file is None):
            raise InvalidSetting(
                "cluster.etcd_cert_file and cluster.etcd_key_file must be set together", hint="Set the other one too."
            )
        if (self.etcd_username is None) != (self.etcd_password is None):
            raise InvalidSetting(
                "cluster.etcd_username and cluster.etcd_password must be set together", hint="Set the other one too."
            )


_CLUSTER_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """Replicas of partitions on other brokers."""

    lag_max_ms: int = _setting(
        10_000, "A follower that has not caught up with its leader for so long leaves the in-sync replicas.", low=1_000
    )
    fetch_wait_ms: int = _setting(500, "How long a leader holds the fetch request of a follower that has everything.")
    fetch_bytes_max: int = _setting(8 << 20, "Maximum size of a response to a follower.", low=1 << 10, high=_INT32_MAX)
    bytes_per_s: int = _setting(
        0, "Limit of the bytes that this broker fetches for replicas that are not in sync; 0: no limit."
    )


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """The address that clients connect to. One port serves every protocol."""

    host: str = _setting(
        "127.0.0.1",
        "Address to listen on. The default accepts local connections only; `0.0.0.0` listens on all interfaces.",
    )
    port: int = _setting(9092, "Port to listen on; 0: any free port.", high=65535)
    advertised_host: str | None = _setting(None, "Host that is advertised to clients; `listener.host` if not set.")
    advertised_port: int | None = _setting(
        None, "Port that is advertised to clients; `listener.port` if not set.", low=1, high=65535
    )
    http_port: int | None = _setting(
        None,
        "Additional port for HTTP only. Not set: 8080, if it is free. 0: any free port, -1: none.",
        low=-1,
        high=65535,
    )
    additional: str | None = _setting(
        None,
        "More addresses to listen on, with those by which clients reach them: "
        "`outside://0.0.0.0:9094 as kafka.example.com:19094`, several separated by commas. A client is told the "
        "addresses of the listener it came in by, so brokers give the same names to theirs.",
    )
    backlog: int = _setting(1024, "Maximum number of connections waiting to be accepted.", low=1, high=65535)

    @property
    def more(self) -> tuple[AdditionalListener, ...]:
        """The additional listeners."""
        return parse_additional(self.additional, self.port)

    def __post_init__(self) -> None:
        parse_additional(self.additional, self.port)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """TLS on the same port; enabled by setting a certificate."""

    cert_file: Path | None = _setting(None, "Certificate chain of the broker, PEM.", must_exist=True)
    key_file: Path | None = _setting(None, "Private key of the certificate, PEM.", must_exist=True)
    ca_file: Path | None = _setting(None, "CA certificates to verify client certificates with, PEM.", must_exist=True)
    client_auth: ClientAuth = _setting(ClientAuth.NONE, "Whether clients must present a certificate (mutual TLS).")
    required: bool = _setting(
        False, "Refuse connections without TLS. Implied by `tls.client_auth` = `required`; otherwise both are accepted."
    )

    def __post_init__(self) -> None:
        if (self.cert_file is None) != (self.key_file is None):
            raise InvalidSetting("tls.cert_file and tls.key_file must be set together", hint="Set the other one too.")
        if self.client_auth is not ClientAuth.NONE and not (self.enabled and self.ca_file):
            raise InvalidSetting(
                f"tls.client_auth is {self.client_auth.value!r}, which needs tls.ca_file and tls.cert_file",
                hint="Set tls.ca_file to the CA certificates to trust, or set tls.client_auth to 'none'.",
            )

        if self.required and not self.enabled:
            raise InvalidSetting("tls.required needs tls.cert_file and tls.key_file", hint="Set both of them.")

    @property
    def enabled(self) -> bool:
        return self.cert_file is not None

    @property
    def refuses_plaintext(self) -> bool:
        return self.required or self.client_auth is ClientAuth.REQUIRED


@dataclass(frozen=True, slots=True)
class TopicsSettings:
    """Defaults of new topics."""

    auto_create: bool = _setting(False, "Create a topic when it is first used. Enabled in dev mode.")
    default_partitions: int = _setting(4, "Default number of partitions of a new topic.", low=1)
    default_replication_factor: int = _setting(1, "Default replication factor of a new topic.", low=1, high=32767)
    defaults: TopicConfig = TopicConfig()


@dataclass(frozen=True, slots=True)
class LimitsSettings:
    """Resource limits. At a limit the broker applies backpressure or rejects requests; its memory does not grow."""

    connections_max: int = _setting(10_000, "Maximum number of open connections on the shared port.", low=1)
    http_connections_max: int = _setting(
        1_000,
        "Maximum number of open connections on the HTTP port: probes and operators have their own limit.",
        low=1,
    )
    connections_per_ip_max: int = _setting(
        0, "Maximum number of open connections per client IP address, on each port; 0: no limit."
    )
    requests_inflight_per_connection_max: int = _setting(
        64,
        "Maximum number of requests in flight per connection; further requests are not read until one completes.",
        low=1,
    )
    request_bytes_max: int = _setting(64 << 20, "Maximum size of a request.", low=1 << 10, high=_INT32_MAX)
    request_timeout_ms: int = _setting(
        30_000,
        "Time in which a request must arrive once its first byte has. A larger one may take longer, as long as each "
        "such interval brings 256 KiB of it and nobody waits for memory.",
        low=1,
    )
    buffer_bytes_max: int = _setting(
        256 << 20,
        "Maximum memory for the requests and responses of all connections. A large request is received once its "
        "memory is reserved; one client gets at most a third of it.",
        low=1 << 20,
    )
    topic_partitions_max: int = _setting(1_000, "Maximum number of partitions per topic.", low=1)
    fetch_wait_ms_max: int = _setting(60_000, "Upper limit of the time that a fetch request can wait for data.")
    fetch_bytes_max: int = _setting(
        50 << 20, "Upper limit of the size of a fetch response.", low=1 << 10, high=_INT32_MAX
    )
    idle_connection_timeout_ms: int = _setting(
        600_000,
        "Idle time after which a connection is closed; also the time after which a client that reads none of its "
        "responses is disconnected. 0: never.",
    )


@dataclass(frozen=True, slots=True)
class QuotasSettings:
    """Bandwidth quotas per client; a client above its quota is throttled."""

    produce_bytes_per_s: int = _setting(0, "Produce quota per client; 0: no quota.")
    fetch_bytes_per_s: int = _setting(0, "Fetch quota per client; 0: no quota.")


@dataclass(frozen=True, slots=True)
class GroupsSettings:
    """Consumer groups and their committed offsets."""

    members_max: int = _setting(1_000, "Maximum number of members per group.", low=1)
    session_timeout_ms_min: int = _setting(1_000, "Minimum session timeout that a member can request.", low=1)
    session_timeout_ms_max: int = _setting(30 * 60_000, "Maximum session timeout that a member can request.", low=1_000)
    consumer_session_timeout_ms: int = _setting(
        45_000, "Session timeout of members with `group.protocol=consumer` or `streams`.", low=1_000
    )
    consumer_heartbeat_ms: int = _setting(
        3_000, "Heartbeat interval of members with `group.protocol=consumer` or `streams`.", low=10
    )
    streams_standby_replicas: int = _setting(
        0, "Standby replicas of the state of each task of Kafka Streams with `group.protocol=streams`.", high=100
    )
    quiet_ms: int = _setting(
        100, "Initial rebalance delay: a new group waits for more members until none has joined for this long."
    )
    offset_retention_ms: int = _setting(
        7 * 24 * 60 * 60_000, "How long committed offsets are kept after the group's last member has left.", low=1
    )
    internal_partitions: int = _setting(
        4,
        "Number of partitions of the internal topics for groups and transactions, set at their creation.",
        low=1,
        high=100,
    )


@dataclass(frozen=True, slots=True)
class TransactionsSettings:
    """Transactions."""

    timeout_ms_max: int = _setting(60 * 60_000, "Maximum transaction timeout that a producer can request.", low=1)
    id_retention_ms: int = _setting(7 * 24 * 60 * 60_000, "How long an unused transactional id is kept.", low=1)


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """Maintenance of the logs on disk."""

    retention_check_interval_ms: int = _setting(60_000, "How often logs are checked for expired segments.", low=1)
    compaction_check_interval_ms: int = _setting(15_000, "How often logs are checked for compaction.", low=1)
    checkpoint_interval_ms: int = _setting(60_000, "How often the recovery checkpoint of each log is written.", low=1)
    scrub_interval_ms: int = _setting(
        7 * 24 * 60 * 60 * 1000, "How long to wait before sealed segments are read again to find corruption.", low=1
    )
    scrub_bytes_per_s: int = _setting(4 << 20, "Read rate of the scrub; 0 turns it off.", low=0)
    clock_leap_wait_ms: int = _setting(
        60 * 60_000,
        "After a leap of the clock, or a downtime of over an hour, how long retention does not count that time. "
        "0: trust the clock.",
    )
    reserve_bytes: int = _setting(
        16 << 20,
        "Space kept in a file of the data directory, and given back when the disk is full, so that topics can be "
        "deleted and retention can work. 0: none.",
    )
    recovery_threads_max: int = _setting(4, "Number of threads that recover logs at startup.", low=1, high=256)


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Authentication."""

    required: bool = _setting(False, "Reject clients that do not authenticate.")
    plain_without_tls: bool = _setting(
        False, "Accept passwords on connections without TLS, where anybody on the network can read them."
    )
    login_timeout_ms: int = _setting(
        10_000,
        "Time in which a client must log in after it has connected, if `auth.required` is set. Until then its requests "
        "are limited to 16 KiB.",
        low=1,
    )
    users: Mapping[str, PasswordHash] = field(
        default_factory=dict,
        repr=False,
        metadata={
            "text": "User names and password hashes, from `python -m flymq.server.hash_password`. Config file only."
        },
    )

    def __post_init__(self) -> None:
        if self.required and not self.users:
            raise InvalidSetting(
                "auth.required is true, but auth.users is empty: no client could log in",
                hint="Add a user to the [auth.users] table of the config file.",
            )


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The REST API."""

    body_bytes_max: int = _setting(
        16 << 20, "Maximum size of a request body, decompressed.", low=1 << 10, high=_INT32_MAX
    )
    body_timeout_ms: int = _setting(30_000, "Maximum time to receive a request body.", low=1)
    cors_origins: str | None = _setting(
        None, "Allowed CORS origins, such as `https://a.example, https://b.example`; none if not set."
    )
    hosts: str | None = _setting(
        None,
        "Host names, separated by commas, by which HTTP requests may address the broker over loopback, besides "
        "localhost and addresses.",
    )

    @property
    def origins(self) -> tuple[str, ...]:
        return _split(self.cors_origins)

    @property
    def host_names(self) -> tuple[str, ...]:
        return _split(self.hosts)


def _split(names: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (names or "").split(",") if name.strip())


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The broker's log on stderr."""

    level: LogLevel = _setting(LogLevel.INFO, "Minimum log level.")
    format: LogFormat = _setting(
        LogFormat.PEOPLE, "`people`: text for a terminal; `json`: JSON lines for a log collector."
    )


@dataclass(frozen=True, slots=True)
class Config:
    """All settings, by section."""

    broker: BrokerSettings = BrokerSettings()
    cluster: ClusterSettings = ClusterSettings()
    replication: ReplicationSettings = ReplicationSettings()
    listener: ListenerSettings = ListenerSettings()
    tls: TlsSettings = TlsSettings()
    topics: TopicsSettings = TopicsSettings()
    limits: LimitsSettings = LimitsSettings()
    quotas: QuotasSettings = QuotasSettings()
    groups: GroupsSettings = GroupsSettings()
    transactions: TransactionsSettings = TransactionsSettings()
    storage: StorageSettings = StorageSettings()
    auth: AuthSettings = AuthSettings()
    rest: HttpSettings = HttpSettings()
    log: LogSettings = LogSettings()

    @property
    def is_clustered(self) -> bool:
        """Whether the broker shares its metadata with others."""
        return self.cluster.etcd is not None or self.cluster.store is not None

    @property
    def is_local_only(self) -> bool:
        """Whether etcd is on another machine, and other machines are told an address that leads them to themselves."""
        advertised = self.listener.advertised_host or self.listener.host
        endpoints = parse_endpoints(self.cluster.etcd or "")
        return _is_loopback(advertised) and any(not _is_loopback(endpoint.host) for endpoint in endpoints)

    def check_advertised(self) -> None:
        """Raise InvalidSetting if brokers and clients would be told an address that nobody can connect to."""
        listener = self.listener
        which = "host" if listener.advertised_host is None else "advertised_host"
        address = listener.advertised_host or listener.host
        if is_wildcard(address):
            raise InvalidSetting(
                f"listener.{which} is {address!r}, which other brokers and clients cannot connect to",
                hint="Set listener.advertised_host to the name or address of this machine.",
            )

    def __post_init__(self) -> None:
        if self.is_clustered:
            self.check_advertised()
        topics, limits = self.topics, self.limits
        partitions_max, request_max = limits.topic_partitions_max, limits.request_bytes_max
        _check_order(
            ("topics.default_partitions", topics.default_partitions), ("limits.topic_partitions_max", partitions_max)
        )
        _check_order(
            ("topics.defaults.max.message.bytes", topics.defaults.max_message_bytes),
            ("limits.request_bytes_max", request_max),
        )
        _check_order(("limits.request_bytes_max", request_max), ("limits.buffer_bytes_max", limits.buffer_bytes_max))
        _check_order(
            ("groups.session_timeout_ms_min", self.groups.session_timeout_ms_min),
            ("groups.session_timeout_ms_max", self.groups.session_timeout_ms_max),
        )


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _check_order(smaller: tuple[str, int], larger: tuple[str, int]) -> None:
    if smaller[1] > larger[1]:
        raise InvalidSetting(
            f"{smaller[0]} is {smaller[1]}, more than {larger[0]}, which is {larger[1]}",
            hint="Lower the first or raise the second.",
        )
