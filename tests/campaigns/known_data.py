"""A data directory of which everything is known, and an audit of the broker that serves it.

`write_known_data` fills a broker with all that a data directory can hold: sealed and active segments, zeros and noise,
committed and aborted transactions, an idempotent producer, a compacted topic, committed offsets. `audit` then asks for
all of it. What may be damaged must be served right or be reported with an error; all else must be served.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.raw_client import RawClient
from tests.broker_process import BrokerProcess
from tests.campaigns.history import make_value

from flymq.model.delivery import Acks, Isolation
from flymq.model.errors import CorruptBatch, FlyMQError, StorageError
from flymq.model.names import TopicPartition
from flymq.record.batch import encode_batch
from flymq.record.reading import end_offset, parse_records
from flymq.wire.native.messages import transactions as wire
from flymq.wire.native.messages.fields import Message
from flymq.wire.native.messages.groups import Commit, FetchOffsets, OffsetToCommit
from flymq.wire.native.messages.records import Fetch, FetchPartition, PartitionBatches, ProduceBatch
from flymq.wire.native.messages.session import ErrorAnswer
from flymq.wire.native.messages.topics import CreateTopic

STEADY, VICTIM, TABLE = "steady", "victim", "table"
GROUP, TRANSACTIONAL_ID = "readers", "payments"
PARTITIONS = [
    TopicPartition(STEADY, 0),
    TopicPartition(STEADY, 1),
    TopicPartition(VICTIM, 0),
    TopicPartition(VICTIM, 1),
    TopicPartition(TABLE, 0),
]
OFFSETS, TRANSACTIONS = TopicPartition("__offsets", 0), TopicPartition("__transactions", 0)
SETTINGS = {
    "storage.checkpoint_interval_ms": 300,
    "storage.compaction_check_interval_ms": 100,
    "groups.internal_partitions": 1,
    "topics.auto_create": False,
}
WAIT_S = 60


@dataclass
class Known:
    """What was acknowledged, and to whom."""

    records: dict[TopicPartition, dict[int, bytes]] = field(default_factory=lambda: {name: {} for name in PARTITIONS})
    """What readers of committed records must see, by offset. Of a compacted topic, the last value of each key."""
    older: dict[int, bytes] = field(default_factory=dict)
    """What compaction may have removed from the compacted topic, or not."""
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    """The offset after the last one that was given out, by partition."""
    last_batch: bytes = b""
    """The last batch of an idempotent producer, and its place in the first partition of `victim`."""
    last_batch_offset: int = -1
    producer: tuple[int, int] = (-1, -1)
    """Id and epoch of the transactional producer."""


class Session:
    """Requests by hand, which are answered at once and never tried again."""

    def __init__(self, port: int) -> None:
        self._client = RawClient(port)
        self._client.socket.settimeout(WAIT_S)

    def ask(self, request: Message) -> Any:
        answer = self._client.ask(request)
        assert not isinstance(answer, ErrorAnswer), f"{answer.code}: {answer.message}"
        return answer

    def try_ask(self, request: Message) -> Any:
        """Return the answer, which may be an `ErrorAnswer`."""
        return self._client.ask(request)

    def produce(self, name: TopicPartition, batch: bytes | bytearray, transactional_id: str = "") -> int:
        part = self.try_produce(name, batch, transactional_id)
        assert part.error is None, part.error
        return int(part.base_offset)

    def try_produce(self, name: TopicPartition, batch: bytes | bytearray, transactional_id: str = "") -> Any:
        parts = [PartitionBatches(*name, bytes(batch))]
        request = ProduceBatch(partitions=parts, acks=Acks.ALL, transactional_id=transactional_id)
        answer = self.try_ask(request)
        return answer if isinstance(answer, ErrorAnswer) else answer.partitions[0]

    def fetch(self, name: TopicPartition, offset: int) -> Any:
        parts = [FetchPartition(*name, offset, max_bytes=100_000)]
        answer = self.try_ask(Fetch(partitions=parts, isolation=Isolation.READ_COMMITTED))
        return answer if isinstance(answer, ErrorAnswer) else answer.partitions[0]

    def close(self) -> None:
        self._client.close()


@contextmanager
def session(broker: BrokerProcess) -> Iterator[Session]:
    opened = Session(broker.port)
    try:
        yield opened
    finally:
        opened.close()


# --- write -----------------------------------------------------------------------------------------------------------


def write_known_data(broker: BrokerProcess, seed: int = 0) -> Known:
    """Fill an empty broker; return what it has acknowledged."""
    known, chance = Known(), Random(seed)
    with session(broker) as client:
        small: dict[str, str | int | float | None] = {
            "persistence": "fsync",
            "segment.bytes": 40_000,
            "index.interval.bytes": 2_000,
        }
        client.ask(CreateTopic(topic=STEADY, partitions=2, settings=small))
        client.ask(CreateTopic(topic=VICTIM, partitions=2, settings=small))
        compacted = {**small, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0, "segment.bytes": 4_000}
        client.ask(CreateTopic(topic=TABLE, partitions=1, settings=compacted))
        _write_table(client, known)
        for part in range(2):
            for name in PARTITIONS[:4]:
                _write_records(client, known, name, chance, f"part {part}")
            _write_transactions(client, known, TopicPartition(VICTIM, 0))
        commits = [OffsetToCommit(*name, 17) for name in PARTITIONS]
        client.ask(Commit(group=GROUP, offsets=commits))
        _until(lambda: any(_files(broker.data_dir, TABLE, "compacted")), "compaction")
        _until(lambda: all(any(_files(broker.data_dir, *name, "checkpoint")) for name in PARTITIONS), "checkpoints")
        _write_records(client, known, TopicPartition(VICTIM, 0), chance, "after the checkpoint", batches=5)
    return known


def _write_table(client: Session, known: Known) -> None:
    name, latest = TopicPartition(TABLE, 0), {}
    for number in range(60):
        key, value = b"key-%d" % (number % 7), b"value-%d" % number + bytes(300)
        offset = client.produce(name, encode_batch([(key, value)]))
        known.older[offset] = value
        latest[key] = offset
        known.ends[name] = offset + 1
    known.records[name] = {offset: known.older[offset] for offset in latest.values()}


def _write_records(
    client: Session, known: Known, name: TopicPartition, chance: Random, part: str, batches: int = 20
) -> None:
    """Write as an idempotent producer."""
    producer = client.ask(wire.InitProducer())
    identity = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    sequence = 0
    for number in range(batches):
        values = [make_value(f"{name} {part} {number}", each, chance) for each in range(chance.randint(1, 5))]
        batch = encode_batch([(None, value) for value in values], base_sequence=sequence, **identity)
        offset = client.produce(name, batch)
        _add(known, name, offset, values)
        sequence += len(values)
        if name == (VICTIM, 0):
            known.last_batch, known.last_batch_offset = bytes(batch), offset


def _write_transactions(client: Session, known: Known, name: TopicPartition) -> None:
    """Commit every other transaction and abort the rest."""
    producer = client.ask(wire.InitProducer(transactional_id=TRANSACTIONAL_ID))
    for number in range(8):
        identity = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
        client.ask(wire.BeginTxn(transactional_id=TRANSACTIONAL_ID, **identity))
        values = [b"transaction %d/%d/%d" % (known.ends[name], number, each) + bytes(600) for each in range(3)]
        batch = encode_batch([(None, value) for value in values], base_sequence=0, transactional=True, **identity)
        offset = client.produce(name, batch, TRANSACTIONAL_ID)
        if number % 2:
            _add(known, name, offset, values)
        end = wire.CommitTxn if number % 2 else wire.AbortTxn
        producer = client.ask(end(transactional_id=TRANSACTIONAL_ID, **identity))
        known.ends[name] = offset + len(values) + 1  # and a marker
    known.producer = (producer.producer_id, producer.producer_epoch)


def _add(known: Known, name: TopicPartition, offset: int, values: list[bytes]) -> None:
    known.records[name].update(enumerate(values, offset))
    known.ends[name] = offset + len(values)


def _files(data_dir: Path, topic: str, partition: int | str, *rest: str) -> Iterator[Path]:
    parts = (str(partition), *rest) if rest else ("*", str(partition))
    return data_dir.glob("/".join(("topics", f"{topic}~*", *parts)))


def _until(is_true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_true():
        assert time.monotonic() < deadline, f"no {what} after {WAIT_S} s"
        time.sleep(0.02)


# --- audit -----------------------------------------------------------------------------------------------------------


@dataclass
class Audit:
    """What a broker said about known data."""

    touched: set[TopicPartition]
    """What may report an error instead of serving."""
    violations: list[str] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    """Errors by which the broker said that something is wrong."""

    def reported(self, name: TopicPartition, what: str, error: Any) -> None:
        """Note an error. It is a report if it speaks of the disk and the data may be damaged."""
        text = f"{name}: {what}: {error.code}: {error.message}"
        if name in self.touched and error.code in REPORTING:
            self.reports.append(text)
        else:
            self.violations.append(f"not served: {text}")


def _codes(kind: type[FlyMQError]) -> set[str]:
    return {kind.code, *(code for each in kind.__subclasses__() for code in _codes(each))}


REPORTING = _codes(StorageError) | {CorruptBatch.code}
"""Errors that say that something is wrong with what is stored."""


def audit(broker: BrokerProcess, known: Known, touched: set[TopicPartition]) -> Audit:
    """Ask for everything, then write to everything."""
    found = Audit(touched)
    with session(broker) as client:
        for name in PARTITIONS:
            _audit_records(client, known, name, found)
        _audit_repetition(client, known, found)
        _audit_commits(client, found)
        _audit_producer(client, known, found)
        for name in PARTITIONS:
            _audit_new_offsets(client, known, name, found)
    if found.reports:
        _audit_reporting(broker, found)
    return found


def _audit_records(client: Session, known: Known, name: TopicPartition, found: Audit) -> None:
    """Read from the first to the last offset; after an error, try each of the offsets that follow."""
    expected, missing = known.records[name], dict(known.records[name])
    may_be = {**known.older, **expected} if name.topic == TABLE else expected
    offset, reported = 0, False
    while offset < known.ends[name]:
        part = client.fetch(name, offset)
        error = part if isinstance(part, ErrorAnswer) else part.error
        if error is not None:
            if not reported or error.code not in REPORTING:
                found.reported(name, f"reading offset {offset}", error)
            reported = True
            missing.pop(offset, None)
            offset += 1
            if len(found.violations) > 20:
                return
            continue
        for record in parse_records(part.batches, start_offset=offset, aborted=part.aborted):
            if may_be.get(record.offset) != record.value:
                found.violations.append(f"wrong bytes: {name}@{record.offset} is {record.value!r:.60}")
            missing.pop(record.offset, None)
        after = end_offset(part.batches)
        if after is None or after <= offset:
            break
        offset = after
    if missing:
        found.violations.append(f"silent loss: {name} has lost {len(missing)} records, the first at {min(missing)}")


def _audit_repetition(client: Session, known: Known, found: Audit) -> None:
    """A producer that did not hear the answer sends its last batch again."""
    name = TopicPartition(VICTIM, 0)
    part = client.try_produce(name, known.last_batch)
    error = part if isinstance(part, ErrorAnswer) else part.error
    if error is not None:
        if name not in found.touched:
            found.violations.append(f"not served: {name}: a repeated batch is refused: {error.code}")
    elif part.base_offset != known.last_batch_offset:
        found.violations.append(f"repeated: {name}: a batch is at {known.last_batch_offset} and {part.base_offset}")


def _audit_commits(client: Session, found: Audit) -> None:
    answer = client.try_ask(FetchOffsets(group=GROUP))
    if isinstance(answer, ErrorAnswer):
        _refused(found, OFFSETS, "committed offsets", answer)
        return
    committed = {TopicPartition(part.topic, part.partition): part for part in answer.partitions}
    for name in PARTITIONS:
        part = committed.get(name)
        if part is not None and part.error is not None:
            _refused(found, OFFSETS, f"committed offset of {name}", part.error)
        elif part is None or part.offset != 17:
            found.violations.append(f"commit went back: {name} has {part and part.offset}")


def _audit_producer(client: Session, known: Known, found: Audit) -> None:
    answer = client.try_ask(wire.InitProducer(transactional_id=TRANSACTIONAL_ID))
    if isinstance(answer, ErrorAnswer):
        _refused(found, TRANSACTIONS, "a transactional id", answer)
    elif (answer.producer_id, answer.producer_epoch) <= known.producer:
        found.violations.append("fencing lost: a transactional producer got an epoch that another had before")
    elif answer.producer_id != known.producer[0]:
        found.violations.append("fencing lost: a transactional id was forgotten")


def _refused(found: Audit, name: TopicPartition, what: str, error: Any) -> None:
    """A coordinator that cannot load its state refuses its clients; with which error is its own affair."""
    text = f"{name}: {what}: {error.code}: {error.message}"
    (found.reports if name in found.touched else found.violations).append(text)


def _audit_new_offsets(client: Session, known: Known, name: TopicPartition, found: Audit) -> None:
    """Write a record: it must not get an offset that another record had."""
    part = client.try_produce(name, encode_batch([(b"key-new", b"new")]))
    error = part if isinstance(part, ErrorAnswer) else part.error
    if error is not None:
        found.reported(name, "writing", error)
    elif part.base_offset < known.ends[name]:
        found.violations.append(
            f"offset reused: {name} gave out {part.base_offset}, after {known.ends[name] - 1} was acknowledged"
        )


def _audit_reporting(broker: BrokerProcess, found: Audit) -> None:
    """What clients are told, operators are told too."""
    with urllib.request.urlopen(f"http://{broker.address}/health", timeout=WAIT_S) as response:
        health = json.load(response)
    if health["status"] == "ok":
        found.violations.append(f"health says ok, clients were told: {found.reports[0]}")
    if not any(level in broker.log_text for level in ("WARNING", "ERROR")):
        found.violations.append(f"the log says nothing, clients were told: {found.reports[0]}")
