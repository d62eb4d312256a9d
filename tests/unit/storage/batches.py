"""Small batches and logs for tests that care about something else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flymq.host.simulated_disk import SimulatedDisk
from flymq.model.topic_config import TopicConfig
from flymq.record.batch import encode_batch
from flymq.record.control import Marker, MarkerType, encode_marker
from flymq.record.header import HEADER_SIZE, LENGTH_END, assign, parse_header, renew_checksum, split_batches
from flymq.record.reading import parse_records
from flymq.record.record import Record
from flymq.storage.log import Log
from flymq.storage.memory_log import MemoryLog
from flymq.storage.recovery.open_log import open_log

NOW_MS = 1_700_000_000_000
DIRECTORY = Path("/data/topics/orders/0")


def settings(**changes: Any) -> TopicConfig:
    """Topic settings by their public names, with `_` for `.`."""
    return TopicConfig().with_changes({name.replace("_", "."): value for name, value in changes.items()})


def open_simulated(config: TopicConfig | None = None) -> tuple[SimulatedDisk, Log]:
    disk = SimulatedDisk()
    return disk, reopen(disk, config)


def reopen(disk: SimulatedDisk, config: TopicConfig | None = None) -> Log:
    return open_log(disk, DIRECTORY, config or TopicConfig())


def batch(*values: str | None, key: str | None = None, at_ms: int = NOW_MS, **fields: Any) -> bytes:
    """A batch of records with these values, all under one key."""
    records = [(key.encode() if key else None, None if value is None else value.encode()) for value in values]
    return bytes(encode_batch(records, timestamp_ms=at_ms, **fields))


def poison(count: int = 3, at_ms: int = NOW_MS) -> bytes:
    """A batch with a right header and checksum, whose records are noise."""
    good = batch(*["value"] * count, at_ms=at_ms)
    return with_payload(good, b"\xff" * (len(good) - HEADER_SIZE))


def with_payload(original: bytes, payload: bytes) -> bytes:
    """The header of a batch in front of other bytes, with a right length and checksum."""
    assert parse_header(original)
    changed = bytearray(original[:HEADER_SIZE] + payload)
    changed[8:LENGTH_END] = (len(changed) - LENGTH_END).to_bytes(4)
    renew_checksum(changed, 0, len(changed))
    return bytes(changed)


def idempotent(producer_id: int, sequence: int, *values: str, epoch: int = 0, transactional: bool = False) -> bytes:
    return batch(
        *(values or ("value",)),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def append(log: Log | MemoryLog, *batches: bytes, now_ms: int = NOW_MS) -> list[int]:
    """Append batches one after the other; return their base offsets."""
    return [log.append(each, leader_epoch=0, now_ms=now_ms).base_offset for each in batches]


def append_unchecked(log: Log | MemoryLog, *batches: bytes) -> list[int]:
    """Append batches as versions did that did not look at the records; return their base offsets."""
    bases = []
    for each in batches:
        placed = bytearray(each)
        assign(placed, 0, base_offset=log.end_offset, leader_epoch=0)
        bases.append(log.append_as_is(bytes(placed), leader_epoch=0, now_ms=NOW_MS).base_offset)
    return bases


def end_transaction(log: Log | MemoryLog, producer_id: int, kind: MarkerType, epoch: int = 0) -> int:
    marker = encode_marker(Marker(kind, producer_id, epoch, 0, NOW_MS))
    return log.append_marker(bytes(marker), leader_epoch=0, now_ms=NOW_MS).base_offset


def checkpoint(log: Log) -> None:
    point = log.begin_checkpoint()
    if point is not None:
        point.run()
        log.end_sync(point)


def sync(log: Log) -> None:
    point = log.begin_sync()
    point.run()
    log.end_sync(point)


def runs(log: Log | MemoryLog, end_offset: int | None = None) -> list[bytes]:
    """Everything from the start on, one run a read."""
    found, offset = [], log.start_offset
    while (piece := log.read(offset, bytes_max=1, end_offset=end_offset)) is not None:
        found.append(piece.read())
        offset = next(split_batches(found[-1]))[1].next_offset
    return found


def records(log: Log | MemoryLog) -> list[Record]:
    """What a reader of uncommitted records sees."""
    return [record for run in runs(log) for record in parse_records(run) if record.offset >= log.start_offset]


def values(log: Log | MemoryLog) -> list[str | None]:
    return [None if record.value is None else record.value.decode() for record in records(log)]


def committed_values(log: Log | MemoryLog) -> list[str | None]:
    """What a reader of committed records sees."""
    first_open = log.producers.first_open_offset
    stable = log.end_offset if first_open is None else first_open
    aborted: Sequence[tuple[int, int]] = [entry[:2] for entry in log.aborted_between(log.start_offset, stable)]
    found = parse_records(b"".join(runs(log, stable)), aborted=aborted)
    return [None if record.value is None else record.value.decode() for record in found]
