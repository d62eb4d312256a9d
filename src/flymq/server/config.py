"""Every setting of a broker: one typed tree, which says what each is for, what it takes and what it is by default.

The tree is the single place to add a setting: the file, the environment, the flags and docs/reference/settings.md
follow from it (see settings.py). Rules that tie several settings together are checked when the tree is built, so a
`Config` that exists is one a broker can start with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from flymq.broker.access.passwords import PasswordHash
from flymq.model.errors import InvalidSetting
from flymq.model.topic_config import TopicConfig

INT64_MAX = (1 << 63) - 1
HTTP_PORT = 8080
NO_PORT = -1
_INT32_MAX = (1 << 31) - 1

DEV_DEFAULTS: Mapping[str, Any] = {"topics.auto_create": True}
"""What `broker.dev` sets, unless it is set by hand."""


class ClientAuth(Enum):
    """Whether clients show a certificate."""

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


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Who the broker is and where it keeps its data."""

    data_dir: Path = _setting(Path("flymq-data"), "Directory of all data; created if it is not there.")
    id: int = _setting(0, "Number of this broker; each broker of a cluster has its own.", high=_INT32_MAX)
    cluster_id: str | None = _setting(None, "Name of the cluster that the broker belongs to.")
    dev: bool = _setting(False, "For trying things out: topics are created on first use.")


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """Where clients connect. One port serves every protocol."""

    host: str = _setting(
        "127.0.0.1", "Address to listen on. Only this machine can connect until it is set; `0.0.0.0` opens it to all."
    )
    port: int = _setting(9092, "Port to listen on; 0 takes any free one.", high=65535)
    advertised_host: str | None = _setting(
        None, "Host that clients are told to connect to; `listener.host` if not set."
    )
    advertised_port: int | None = _setting(
        None, "Port that clients are told to connect to; `listener.port` if not set.", low=1, high=65535
    )
    http_port: int | None = _setting(
        None,
        "Port for HTTP alone, beside the shared one. Not set: 8080, if it is free. 0 takes any free one, -1 none.",
        low=-1,
        high=65535,
    )
    backlog: int = _setting(1024, "Connections that may wait to be accepted.", low=1, high=65535)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Encryption in transit, on the same port, once a certificate is given."""

    cert_file: Path | None = _setting(None, "Certificate of the broker and its chain, PEM.", must_exist=True)
    key_file: Path | None = _setting(None, "Private key of the certificate, PEM.", must_exist=True)
    ca_file: Path | None = _setting(None, "Authorities whose client certificates are accepted, PEM.", must_exist=True)
    client_auth: ClientAuth = _setting(ClientAuth.NONE, "Whether clients must show a certificate.")

    def __post_init__(self) -> None:
        if (self.cert_file is None) != (self.key_file is None):
            raise InvalidSetting("tls.cert_file and tls.key_file must be set together", hint="Set the other one too.")
        if self.client_auth is not ClientAuth.NONE and not (self.enabled and self.ca_file):
            raise InvalidSetting(
                f"tls.client_auth is {self.client_auth.value!r}, which needs tls.ca_file and tls.cert_file",
                hint="Name the authorities to trust in tls.ca_file, or leave tls.client_auth at 'none'.",
            )

    @property
    def enabled(self) -> bool:
        return self.cert_file is not None


@dataclass(frozen=True, slots=True)
class TopicsSettings:
    """What a topic is like when its creator does not say."""

    auto_create: bool = _setting(False, "Create a topic when somebody first uses its name. On in dev mode.")
    default_partitions: int = _setting(4, "Partitions of a new topic.", low=1)
    default_replication_factor: int = _setting(1, "Replicas of a new topic's partitions.", low=1, high=32767)
    defaults: TopicConfig = TopicConfig()


@dataclass(frozen=True, slots=True)
class LimitsSettings:
    """What clients may take. At a limit the broker slows down or refuses; it does not grow."""

    connections_max: int = _setting(10_000, "Open connections on the shared port.", low=1)
    http_connections_max: int = _setting(
        1_000,
        "Open connections on the port for HTTP alone: probes and operators have room of their own.",
        low=1,
    )
    connections_per_ip_max: int = _setting(
        0, "Open connections from one address on each of them; 0 sets no limit of its own."
    )
    requests_inflight_per_connection_max: int = _setting(
        64, "Requests of one connection in work; the next ones stay unread.", low=1
    )
    request_bytes_max: int = _setting(64 << 20, "Largest request accepted.", low=1 << 10, high=_INT32_MAX)
    buffer_bytes_max: int = _setting(
        256 << 20, "Memory for requests and answers of all connections together.", low=1 << 20
    )
    topic_partitions_max: int = _setting(1_000, "Partitions of one topic.", low=1)
    fetch_wait_ms_max: int = _setting(60_000, "Longest time a fetch waits for data, whatever it asks for.")
    fetch_bytes_max: int = _setting(
        50 << 20, "Most bytes one fetch returns, whatever it asks for.", low=1 << 10, high=_INT32_MAX
    )
    idle_connection_timeout_ms: int = _setting(600_000, "Silence after which a connection is closed; 0 never.")


@dataclass(frozen=True, slots=True)
class QuotasSettings:
    """How fast each client may be; one that is faster waits for its next answer."""

    produce_bytes_per_s: int = _setting(0, "What a client may produce; 0 sets no quota.")
    fetch_bytes_per_s: int = _setting(0, "What a client may fetch; 0 sets no quota.")


@dataclass(frozen=True, slots=True)
class GroupsSettings:
    """Consumer groups and what they commit."""

    members_max: int = _setting(1_000, "Members of one group.", low=1)
    session_timeout_ms_min: int = _setting(
        1_000, "Shortest silence a member may ask to be taken for dead after.", low=1
    )
    session_timeout_ms_max: int = _setting(
        30 * 60_000, "Longest silence a member may ask to be taken for dead after.", low=1_000
    )
    consumer_session_timeout_ms: int = _setting(
        45_000, "Silence after which a member with `group.protocol=consumer` is taken for dead.", low=1_000
    )
    consumer_heartbeat_ms: int = _setting(
        3_000, "How often members with `group.protocol=consumer` are told to heartbeat.", low=10
    )
    quiet_ms: int = _setting(100, "A new group waits for further members until none has come for so long.")
    offset_retention_ms: int = _setting(
        7 * 24 * 60 * 60_000, "How long offsets are kept after the group's last member has gone.", low=1
    )
    internal_partitions: int = _setting(
        4, "Partitions of the broker's own topics for groups and transactions, when they are created.", low=1, high=100
    )


@dataclass(frozen=True, slots=True)
class TransactionsSettings:
    """Writing to several partitions at once."""

    timeout_ms_max: int = _setting(60 * 60_000, "Longest time a producer may ask to leave a transaction open.", low=1)
    id_retention_ms: int = _setting(
        7 * 24 * 60 * 60_000, "How long a transactional id is remembered that nobody uses.", low=1
    )


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """How the logs on disk are looked after."""

    retention_check_interval_ms: int = _setting(60_000, "Time between two looks for expired segments.", low=1)
    compaction_check_interval_ms: int = _setting(30_000, "Time between two looks for logs to compact.", low=1)
    checkpoint_interval_ms: int = _setting(
        60_000, "Time between two notes of how far each log is on disk; recovery starts from there.", low=1
    )
    recovery_threads_max: int = _setting(4, "Threads that recover logs at start.", low=1, high=256)


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Who may connect."""

    required: bool = _setting(False, "Refuse clients that do not log in.")
    users: Mapping[str, PasswordHash] = field(
        default_factory=dict,
        repr=False,
        metadata={"text": "User names and the hashes that `python -m flymq.server.hash_password` prints. File only."},
    )

    def __post_init__(self) -> None:
        if self.required and not self.users:
            raise InvalidSetting(
                "auth.required is true, but auth.users names nobody: no client could log in",
                hint="Add a user to the [auth.users] table of the config file.",
            )


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """What the REST API takes."""

    body_bytes_max: int = _setting(16 << 20, "Largest body of a request, unpacked.", low=1 << 10, high=_INT32_MAX)
    body_timeout_ms: int = _setting(30_000, "Time in which a body must arrive.", low=1)
    cors_origins: str | None = _setting(
        None, "Web pages of these origins may use the API, as `https://a.example, https://b.example`; none if not set."
    )

    @property
    def origins(self) -> tuple[str, ...]:
        return tuple(origin.strip() for origin in (self.cors_origins or "").split(",") if origin.strip())


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What the broker tells on stderr."""

    level: LogLevel = _setting(LogLevel.INFO, "Least important message to show.")
    format: LogFormat = _setting(LogFormat.PEOPLE, "`people` for a terminal, `json` for a log collector.")


@dataclass(frozen=True, slots=True)
class Config:
    """All settings, by section."""

    broker: BrokerSettings = BrokerSettings()
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

    def __post_init__(self) -> None:
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


def _check_order(smaller: tuple[str, int], larger: tuple[str, int]) -> None:
    if smaller[1] > larger[1]:
        raise InvalidSetting(
            f"{smaller[0]} is {smaller[1]}, more than {larger[0]}, which is {larger[1]}",
            hint="Lower the first or raise the second.",
        )
