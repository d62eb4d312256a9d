"""Every option of the Spark format "flymq": its name, its values, its default and its description.

The fields below are the single source for parsing, validation and the reference page. Options are written in camel
case, as `maxOffsetsPerTrigger` for the field `max_offsets_per_trigger`; case and underscores do not matter, since Spark
does not preserve case. The names of Spark's Kafka connector are supported as well, see `kafka_options`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from flymq.client.encryption import Cipher
from flymq.client.settings import ConnectionConfig, parse_addresses
from flymq.model.delivery import Acks, Isolation
from flymq.model.errors import FlyMQError, InvalidOption
from flymq.record.compression import Compression, compression_named
from flymq.spark.kafka_options import without_kafka_names

Parser = Callable[[str], Any]
Kind = TypeVar("Kind", bound="ConnectionOptions")


def _option(default: Any, parse: Parser, text: str, *, takes: str = "", is_secret: bool = False) -> Any:
    metadata = {"parse": parse, "text": text, "takes": takes}
    return field(default=default, repr=not is_secret, metadata=metadata)


# --- parsing values -------------------------------------------------------------------------------------------------


def _text(value: str) -> str:
    if not value:
        raise ValueError("it is empty")
    return value


def _boolean(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("it is neither true nor false")
    return value.lower() == "true"


def _at_least(low: int) -> Parser:
    def parse(value: str) -> int:
        if int(value) < low:
            raise ValueError(f"it is less than {low}")
        return int(value)

    return parse


def _one_of(**values: Any) -> Parser:
    def parse(value: str) -> Any:
        if value.lower() not in values:
            raise ValueError(f"it is not one of {', '.join(values)}")
        return values[value.lower()]

    return parse


def _names(value: str) -> tuple[str, ...]:
    found = tuple(name.strip() for name in value.split(",") if name.strip())
    if not found:
        raise ValueError("the list is empty")
    return found


_DURATION_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def _duration_ms(value: str) -> int:
    """Parse a duration such as "15m", "30s" or "500ms"; a plain number is in milliseconds."""
    number = value.strip().rstrip("abcdefghijklmnopqrstuvwxyz ").strip()
    unit = value.strip()[len(number) :].strip() or "ms"
    if unit not in _DURATION_UNITS_MS:
        raise ValueError(f"{unit!r} is not a unit of time: use {', '.join(_DURATION_UNITS_MS)}")
    return int(number) * _DURATION_UNITS_MS[unit]


def _acks(value: str) -> Acks:
    return {"leader": Acks.LEADER, "1": Acks.LEADER, "all": Acks.ALL, "-1": Acks.ALL}[value.lower()]


_ISOLATION = _one_of(read_committed=Isolation.READ_COMMITTED, read_uncommitted=Isolation.READ_UNCOMMITTED)
_OFFSETS = 'earliest, latest, or JSON: {"orders": {"0": 23, "1": -2}}; -2 is the earliest, -1 the latest'
_TIMES = 'JSON: {"orders": {"0": 1700000000000}}, in milliseconds since the Unix epoch'

# --- the options ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Connection, authentication and end-to-end encryption."""

    bootstrap_servers: str | None = _option(
        None,
        _text,
        "Bootstrap brokers. If not set, the environment variable FLYMQ_BOOTSTRAP or localhost:9092.",
        takes="host:port, comma-separated",
    )
    client_id: str = _option("flymq-spark", _text, "Client id for the broker's logs and quotas.")
    username: str | None = _option(None, _text, "User name for authentication.")
    password: str | None = _option(None, _text, "Password; not shown in query plans.", is_secret=True)
    tls_enabled: bool = _option(False, _boolean, "Use TLS.", takes="true, false")
    tls_ca_file: str | None = _option(None, _text, "CA certificates to trust: a PEM file, present on every machine.")
    tls_cert_file: str | None = _option(None, _text, "Client certificate: a PEM file, present on every machine.")
    tls_key_file: str | None = _option(
        None, _text, "Private key of the client certificate: a PEM file, present on every machine."
    )
    connect_timeout_ms: int = _option(10_000, _at_least(1), "Connect timeout.")
    request_timeout_ms: int = _option(
        60_000, _at_least(1), "Request timeout; also how long a running query waits for a broker that restarts."
    )
    encryption_key: str | None = _option(
        None,
        _text,
        "Key for end-to-end encryption. Prefer a file: it keeps the key out of query plans and programs.",
        takes="base64 or hex",
        is_secret=True,
    )
    encryption_key_file: str | None = _option(
        None, _text, "File with the encryption key, present on every machine; it is read by the tasks."
    )
    decryption_keys: tuple[str, ...] = _option(
        (),
        _names,
        "Old keys, to decrypt records that were encrypted with them.",
        takes="comma-separated",
        is_secret=True,
    )
    encryption_required: bool = _option(
        True, _boolean, "Whether an unencrypted record is an error when an encryption key is set.", takes="true, false"
    )

    def connection(self) -> ConnectionConfig:
        """Return the connection settings of the SDK."""
        return ConnectionConfig(
            addresses=parse_addresses(self.bootstrap_servers),
            client_id=self.client_id,
            username=self.username,
            password=self.password,
            tls_enabled=self.tls_enabled,
            tls_ca_file=self.tls_ca_file,
            tls_cert_file=self.tls_cert_file,
            tls_key_file=self.tls_key_file,
            connect_timeout_ms=self.connect_timeout_ms,
            request_timeout_ms=self.request_timeout_ms,
        )

    def cipher(self) -> Cipher | None:
        """Return the cipher for values; None without a key."""
        key = self.encryption_key
        if self.encryption_key_file is not None:
            try:
                key = Path(self.encryption_key_file).read_text().strip()
            except OSError as error:
                raise InvalidOption(f"the option encryptionKeyFile cannot be used: {error}") from error
        return None if key is None else Cipher(key, self.decryption_keys, required=self.encryption_required)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(ConnectionOptions):
    """Options of the source."""

    assign: str | None = _option(None, _text, "Partitions to read.", takes='JSON: {"orders": [0, 1]}')
    subscribe: tuple[str, ...] = _option((), _names, "Topics to read.", takes="topic, comma-separated")
    subscribe_pattern: str | None = _option(
        None,
        _text,
        "Topics to read, including those that are created later.",
        takes="regular expression that matches the whole name",
    )
    starting_offsets: str | None = _option(
        None,
        _text,
        "Start position of a new query; default: latest for a stream, earliest for a batch.",
        takes=_OFFSETS,
    )
    ending_offsets: str = _option("latest", _text, "End position of a batch query (exclusive).", takes=_OFFSETS)
    starting_timestamp: int | None = _option(
        None,
        _at_least(0),
        "Start at the first record with this timestamp or later, in milliseconds since the Unix epoch.",
    )
    ending_timestamp: int | None = _option(
        None,
        _at_least(0),
        "End before the first record with this timestamp or later, in milliseconds since the Unix epoch.",
    )
    starting_offsets_by_timestamp: str | None = _option(
        None, _text, "Like startingTimestamp, per partition.", takes=_TIMES
    )
    ending_offsets_by_timestamp: str | None = _option(None, _text, "Like endingTimestamp, per partition.", takes=_TIMES)
    starting_offsets_by_timestamp_strategy: str = _option(
        "error",
        _one_of(error="error", latest="latest"),
        "What to do if no record has that timestamp or later: fail, or start at the latest offset.",
        takes="error, latest",
    )
    fail_on_data_loss: bool = _option(
        True,
        _boolean,
        "Whether the query fails if records were deleted before it read them, or cannot be decoded; otherwise it "
        "continues with the rest.",
        takes="true, false",
    )
    max_offsets_per_trigger: int | None = _option(
        None,
        _at_least(1),
        "Maximum number of offsets per micro-batch, divided among partitions in proportion to their lag.",
    )
    min_offsets_per_trigger: int | None = _option(
        None, _at_least(1), "Minimum number of offsets before a micro-batch starts."
    )
    max_trigger_delay: int = _option(
        15 * 60_000,
        _duration_ms,
        "Maximum time to wait for minOffsetsPerTrigger.",
        takes="15m, 30s, 500ms",
    )
    min_partitions: int | None = _option(
        None, _at_least(1), "Minimum number of Spark partitions: offset ranges are split to reach it."
    )
    max_records_per_partition: int | None = _option(
        None, _at_least(1), "Maximum number of offsets per Spark partition: larger offset ranges are split."
    )
    filter_pushdown: bool = _option(
        False,
        _boolean,
        "Push filters on topic, partition, offset and timestamp down to a batch read. Use the DataFrame "
        "for one query only, and set spark.sql.python.filterPushdown.enabled.",
        takes="true, false",
    )
    include_headers: bool = _option(False, _boolean, "Add the column `headers`.", takes="true, false")
    group_id: str | None = _option(
        None,
        _text,
        "Consumer group that a stream commits its offsets to, for lag monitoring. Its offsets are never read.",
    )
    group_id_prefix: str | None = _option(
        None, _text, "Without groupId, the prefix of the group's name; the topics follow."
    )
    isolation: Isolation = _option(
        Isolation.READ_COMMITTED,
        _ISOLATION,
        "Isolation level: whether records of open and aborted transactions are read.",
        takes="read_committed, read_uncommitted",
    )
    fetch_bytes: int = _option(
        4 << 20, _at_least(1), "Approximate number of bytes that a task fetches and decodes at a time."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(ConnectionOptions):
    """Options of the sink."""

    topic: str | None = _option(None, _text, "Topic of all rows; if not set, the column `topic` of each row.")
    delivery: str = _option(
        "exactly_once",
        _one_of(exactly_once="exactly_once", at_least_once="at_least_once"),
        "exactly_once: all rows of a batch become visible atomically, once, whatever fails. at_least_once: a row is "
        "visible immediately, and may be duplicated when a task is retried.",
        takes="exactly_once, at_least_once",
    )
    txn_app_id: str | None = _option(
        None,
        _text,
        "With txnVersion, makes batch writes idempotent: a write that was already done is skipped. For `foreachBatch`.",
    )
    txn_version: int | None = _option(
        None,
        _at_least(0),
        "Version of the write for txnAppId; a write whose version is not higher than the last one is skipped.",
    )
    transaction_timeout_ms: int = _option(
        15 * 60_000,
        _at_least(1),
        "Transaction timeout: maximum duration of a batch; after that the broker aborts what its tasks wrote.",
    )
    acks: Acks = _option(Acks.ALL, _acks, "When a write is acknowledged.", takes="leader, all")
    compression: Compression = _option(
        Compression.NONE,
        compression_named,
        "Compression codec of record batches.",
        takes="none, gzip, snappy, lz4, zstd",
    )
    batch_bytes: int = _option(512 << 10, _at_least(1), "Approximate size of a record batch.")
    include_timestamp: bool = _option(
        False,
        _boolean,
        "Use the column `timestamp` as the records' timestamps; otherwise the time of the write.",
        takes="true, false",
    )


NO_EFFECT = frozenset(["checkpointlocation", "queryname"])
"""Spark's own options, which it passes to every data source."""


def parse_read_options(given: Mapping[str, str]) -> ReadOptions:
    """Return validated options of the source. The readers check what is only valid for a stream or a batch."""
    options = _parse(ReadOptions, given)
    chosen = [name for name in ("assign", "subscribe", "subscribe_pattern") if getattr(options, name)]
    if len(chosen) != 1:
        said = " and ".join(map(option_name, chosen)) or "none of them"
        raise InvalidOption(
            f"set exactly one of assign, subscribe and subscribePattern, not {said}",
            hint='Set one, as in .option("subscribe", "orders").',
        )
    return options


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Return validated options of the sink."""
    options = _parse(WriteOptions, given)
    if (options.txn_app_id is None) != (options.txn_version is None):
        raise InvalidOption("txnAppId and txnVersion must be set together")
    if options.txn_app_id is not None and ":" in options.txn_app_id:
        raise InvalidOption("txnAppId must not contain a colon")
    return options


def option_name(field_name: str) -> str:
    """Return `maxOffsetsPerTrigger` for `max_offsets_per_trigger`."""
    first, *rest = field_name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _parse(kind: type[Kind], given: Mapping[str, str]) -> Kind:
    known = {item.name.replace("_", ""): item for item in fields(kind)}
    values: dict[str, Any] = {}
    for name, value in without_kafka_names(given).items():
        key = name.replace("_", "").lower()
        if key in NO_EFFECT:
            continue
        if key not in known:
            raise _unknown(name, kind, known)
        values[known[key].name] = _value(known[key], value)
    return kind(**values)


def _value(option: Field[Any], value: str) -> Any:
    name = option_name(option.name)
    shown = repr(value) if option.repr else "this"  # never show a secret
    try:
        return option.metadata["parse"](value.strip())
    except (FlyMQError, ValueError, KeyError) as error:
        takes = option.metadata["takes"] or ("text" if option.metadata["parse"] is _text else "an integer")
        why = "" if isinstance(error, KeyError) or "invalid literal" in str(error) else f": {error}"
        raise InvalidOption(f"invalid value {shown} for the option {name}{why}", hint=f"It takes {takes}.") from None


def _unknown(name: str, kind: type, known: Mapping[str, Field[Any]]) -> InvalidOption:
    near = difflib.get_close_matches(name.replace("_", "").lower(), known, n=1)
    meant = f"Did you mean {option_name(known[near[0]].name)}? " if near else ""
    use = "reading" if kind is ReadOptions else "writing"
    return InvalidOption(f"unknown option {name!r} for {use}", hint=meant + InvalidOption.hint)
