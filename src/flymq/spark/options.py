"""Every option of the Spark format "flymq": its name, what it takes, its default, and what it does.

The fields below are the one table: they are parsed from, checked against and documented. An option is written in camel
case, as `maxOffsetsPerTrigger` for the field `max_offsets_per_trigger`; case and underscores do not matter, since Spark
does not keep them. Names of Spark's Kafka connector are understood as well, see `kafka_options`.
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


# --- what options take ----------------------------------------------------------------------------------------------


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
            raise ValueError(f"it is none of {', '.join(values)}")
        return values[value.lower()]

    return parse


def _names(value: str) -> tuple[str, ...]:
    found = tuple(name.strip() for name in value.split(",") if name.strip())
    if not found:
        raise ValueError("it names nothing")
    return found


_DURATION_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def _duration_ms(value: str) -> int:
    """Parse "15m", "30s" or "500ms", as Spark writes times; a bare number counts milliseconds."""
    number = value.strip().rstrip("abcdefghijklmnopqrstuvwxyz ").strip()
    unit = value.strip()[len(number) :].strip() or "ms"
    if unit not in _DURATION_UNITS_MS:
        raise ValueError(f"{unit!r} is no unit of time: use {', '.join(_DURATION_UNITS_MS)}")
    return int(number) * _DURATION_UNITS_MS[unit]


def _acks(value: str) -> Acks:
    return {"leader": Acks.LEADER, "1": Acks.LEADER, "all": Acks.ALL, "-1": Acks.ALL}[value.lower()]


_ISOLATION = _one_of(read_committed=Isolation.READ_COMMITTED, read_uncommitted=Isolation.READ_UNCOMMITTED)
_OFFSETS = 'earliest, latest, or JSON: {"orders": {"0": 23, "1": -2}}; -2 is the earliest, -1 the latest'
_TIMES = 'JSON: {"orders": {"0": 1700000000000}}, in milliseconds since 1970'

# --- the options ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """How to reach the brokers, and who may read what is encrypted end to end."""

    bootstrap_servers: str | None = _option(
        None,
        _text,
        "Brokers to begin with. Without it, the environment's FLYMQ_BOOTSTRAP or localhost:9092.",
        takes="host:port, several with commas",
    )
    client_id: str = _option("flymq-spark", _text, "Name of this program in the broker's logs and quotas.")
    username: str | None = _option(None, _text, "User to authenticate as.")
    password: str | None = _option(None, _text, "Password of the user; not shown in plans.", is_secret=True)
    tls_enabled: bool = _option(False, _boolean, "Encrypt the connection.", takes="true, false")
    tls_ca_file: str | None = _option(None, _text, "Certificates to trust, as a PEM file on every machine.")
    tls_cert_file: str | None = _option(None, _text, "Own certificate, as a PEM file on every machine.")
    tls_key_file: str | None = _option(None, _text, "Key of the own certificate, as a PEM file on every machine.")
    connect_timeout_ms: int = _option(10_000, _at_least(1), "How long to wait for a connection.")
    request_timeout_ms: int = _option(
        60_000, _at_least(1), "How long to wait for an answer, and for a broker that restarts in mid-query."
    )
    encryption_key: str | None = _option(
        None,
        _text,
        "Key of topics that are encrypted end to end. A file keeps it out of plans and programs.",
        takes="base64 or hex",
        is_secret=True,
    )
    encryption_key_file: str | None = _option(
        None, _text, "File with that key, on every machine; it is read in the tasks."
    )
    decryption_keys: tuple[str, ...] = _option(
        (), _names, "Older keys, for reading what was written with them.", takes="several with commas", is_secret=True
    )
    encryption_required: bool = _option(
        True, _boolean, "Whether a record that is not encrypted is refused, when there is a key.", takes="true, false"
    )

    def connection(self) -> ConnectionConfig:
        """Return what the SDK needs to connect."""
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
        """Return what encrypts and decrypts values; None without a key."""
        key = self.encryption_key
        if self.encryption_key_file is not None:
            try:
                key = Path(self.encryption_key_file).read_text().strip()
            except OSError as error:
                raise InvalidOption(f"the option encryptionKeyFile cannot be used: {error}") from error
        return None if key is None else Cipher(key, self.decryption_keys, required=self.encryption_required)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(ConnectionOptions):
    """What to read, from where to where, and how much at a time."""

    assign: str | None = _option(None, _text, "Partitions to read.", takes='JSON: {"orders": [0, 1]}')
    subscribe: tuple[str, ...] = _option((), _names, "Topics to read.", takes="topic, several with commas")
    subscribe_pattern: str | None = _option(
        None, _text, "Topics to read, those that come later too.", takes="regular expression for the whole name"
    )
    starting_offsets: str | None = _option(
        None,
        _text,
        "Where a new query begins: by default at the latest in a stream, at the earliest in a batch.",
        takes=_OFFSETS,
    )
    ending_offsets: str = _option("latest", _text, "Where a batch ends; the offset itself is left out.", takes=_OFFSETS)
    starting_timestamp: int | None = _option(
        None, _at_least(0), "Begin with the first record of this time or later, in milliseconds since 1970."
    )
    ending_timestamp: int | None = _option(
        None, _at_least(0), "End before the first record of this time or later, in milliseconds since 1970."
    )
    starting_offsets_by_timestamp: str | None = _option(
        None, _text, "As startingTimestamp, for each partition.", takes=_TIMES
    )
    ending_offsets_by_timestamp: str | None = _option(
        None, _text, "As endingTimestamp, for each partition.", takes=_TIMES
    )
    starting_offsets_by_timestamp_strategy: str = _option(
        "error",
        _one_of(error="error", latest="latest"),
        "What to do where no record is of that time or later: fail, or begin at the latest.",
        takes="error, latest",
    )
    fail_on_data_loss: bool = _option(
        True,
        _boolean,
        "Whether the query fails when records it has not read are gone; else it goes on with the rest.",
        takes="true, false",
    )
    max_offsets_per_trigger: int | None = _option(
        None, _at_least(1), "Most offsets of one micro-batch, shared among partitions by what each has waiting."
    )
    min_offsets_per_trigger: int | None = _option(
        None, _at_least(1), "Wait for so many offsets before a micro-batch begins."
    )
    max_trigger_delay: int = _option(
        15 * 60_000,
        _duration_ms,
        "Begin with fewer than that after this time.",
        takes="15m, 30s, 500ms",
    )
    min_partitions: int | None = _option(
        None, _at_least(1), "Least number of tasks: ranges of offsets are cut to get so many."
    )
    max_records_per_partition: int | None = _option(
        None, _at_least(1), "Most offsets of one task: ranges with more are cut."
    )
    filter_pushdown: bool = _option(
        False,
        _boolean,
        "Let filters on topic, partition, offset and timestamp spare a batch from reading the rest. Use the data frame "
        "for one query only, and set spark.sql.python.filterPushdown.enabled.",
        takes="true, false",
    )
    include_headers: bool = _option(False, _boolean, "Add the column headers.", takes="true, false")
    group_id: str | None = _option(
        None, _text, "Consumer group under which a stream shows how far it has come, for lag views. It is never read."
    )
    group_id_prefix: str | None = _option(
        None, _text, "Without groupId, the beginning of that group's name; the topics are the rest of it."
    )
    isolation: Isolation = _option(
        Isolation.READ_COMMITTED,
        _ISOLATION,
        "Whether records of open and aborted transactions are seen.",
        takes="read_committed, read_uncommitted",
    )
    fetch_bytes: int = _option(4 << 20, _at_least(1), "About how much a task fetches and decodes at a time.")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(ConnectionOptions):
    """Where to write to, and how surely."""

    topic: str | None = _option(None, _text, "Topic of all rows; without it, each row's column `topic` says.")
    delivery: str = _option(
        "exactly_once",
        _one_of(exactly_once="exactly_once", at_least_once="at_least_once"),
        "exactly_once: all rows of a batch become visible together, once, whatever fails. at_least_once: each row is "
        "visible at once, and twice when a task is repeated.",
        takes="exactly_once, at_least_once",
    )
    txn_app_id: str | None = _option(
        None,
        _text,
        "With txnVersion, the name of a batch write: one that was done under this name is not done again. "
        "For `foreachBatch`.",
    )
    txn_version: int | None = _option(
        None, _at_least(0), "Number of the write under txnAppId; one that is not higher than the last does nothing."
    )
    transaction_timeout_ms: int = _option(
        15 * 60_000, _at_least(1), "How long a batch may take; after that the broker drops what its tasks wrote."
    )
    acks: Acks = _option(Acks.ALL, _acks, "When a write is answered.", takes="leader, all")
    compression: Compression = _option(
        Compression.NONE, compression_named, "How batches are packed.", takes="none, gzip, snappy, lz4, zstd"
    )
    batch_bytes: int = _option(512 << 10, _at_least(1), "About how large a record batch gets.")
    include_timestamp: bool = _option(
        False,
        _boolean,
        "Give records the time in the column timestamp; otherwise the time of writing.",
        takes="true, false",
    )


NO_EFFECT = frozenset(["checkpointlocation", "queryname"])
"""What Spark passes on although it is for itself."""


def parse_read_options(given: Mapping[str, str]) -> ReadOptions:
    """Return checked options of a source. Which of them a stream or a batch allows is for the reader to say."""
    options = _parse(ReadOptions, given)
    chosen = [name for name in ("assign", "subscribe", "subscribe_pattern") if getattr(options, name)]
    if len(chosen) != 1:
        said = " and ".join(map(option_name, chosen)) or "none of them"
        raise InvalidOption(
            f"exactly one of assign, subscribe and subscribePattern says what to read, not {said}",
            hint='Set one, as in .option("subscribe", "orders").',
        )
    return options


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Return checked options of a sink."""
    options = _parse(WriteOptions, given)
    if (options.txn_app_id is None) != (options.txn_version is None):
        raise InvalidOption("txnAppId and txnVersion are given together or not at all")
    if options.txn_app_id is not None and ":" in options.txn_app_id:
        raise InvalidOption("txnAppId must not have a colon")
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
    shown = repr(value) if option.repr else "this"  # a secret stays one
    try:
        return option.metadata["parse"](value.strip())
    except (FlyMQError, ValueError, KeyError) as error:
        takes = option.metadata["takes"] or ("text" if option.metadata["parse"] is _text else "a whole number")
        why = "" if isinstance(error, KeyError) or "invalid literal" in str(error) else f": {error}"
        raise InvalidOption(f"the option {name} does not take {shown}{why}", hint=f"It takes {takes}.") from None


def _unknown(name: str, kind: type, known: Mapping[str, Field[Any]]) -> InvalidOption:
    near = difflib.get_close_matches(name.replace("_", "").lower(), known, n=1)
    meant = f"Did you mean {option_name(known[near[0]].name)}? " if near else ""
    use = "reading" if kind is ReadOptions else "writing"
    return InvalidOption(f"there is no option {name!r} for {use}", hint=meant + InvalidOption.hint)
