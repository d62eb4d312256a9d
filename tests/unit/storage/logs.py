"""Small logs on a simulated disk, and what is in them."""

from pathlib import Path
from typing import Any

from flymq.host.simulated_disk import SimulatedDisk
from flymq.model.topic_config import TopicConfig
from flymq.record.batch import encode_batch
from flymq.record.reading import end_offset, parse_records
from flymq.storage.log import Log
from flymq.storage.opening import open_log

DIRECTORY = Path("/data/t-0")
NOW_MS = 1_700_000_000_000


def small_log(disk: SimulatedDisk, directory: Path = DIRECTORY, **settings: Any) -> Log:
    """Open a log whose segments hold a few records."""
    config = TopicConfig(**{"segment_bytes": 1024, "index_interval_bytes": 128, **settings})
    return open_log(disk, directory, config)


def append(log: Log, *values: bytes, key: bytes | None = None, now_ms: int = NOW_MS, **fields: Any) -> int:
    batch = encode_batch([(key, value) for value in values], timestamp_ms=now_ms, **fields)
    return log.append(batch, leader_epoch=0, now_ms=now_ms).base_offset


def checkpoint(log: Log) -> None:
    """Do what the broker does every minute: retention and compaction go as far as the last checkpoint."""
    point = log.begin_checkpoint()
    if point is not None:
        point.run()
        log.end_sync(point)


def values(log: Log) -> list[bytes | None]:
    return [record.value for record in records(log)]


def records(log: Log) -> list[Any]:
    found: list[Any] = []
    offset = log.start_offset
    while (slice_ := log.read(offset, bytes_max=300)) is not None:
        some = parse_records(slice_.read(), start_offset=offset)
        found += some
        following = end_offset(slice_.read())
        assert following is not None
        offset = following
    return found
