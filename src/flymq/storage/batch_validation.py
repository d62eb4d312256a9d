"""Validate batches before they enter a log: offsets assigned, duplicates recognised, the framing of records checked.

Records are looked at, not decoded: a walk over their lengths in compiled code, through compression too. Batches for
which that takes long (`check_cost`) are checked in a thread first, by `check_in_thread`: they come as `CheckedBatches`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from flymq.host.prompt_future import PromptFuture
from flymq.model.delivery import TimestampType, TopicCompression
from flymq.model.errors import (
    DecompressedTooLarge,
    EmptyBatch,
    InvalidBatch,
    MessageTooLarge,
    UnknownLeaderEpoch,
    UnsupportedCompression,
)
from flymq.model.topic_config import TopicConfig
from flymq.record.batch import recompress
from flymq.record.codec import COMPILED, assign_batch
from flymq.record.compression import Compression, decompressed_bytes_bound
from flymq.record.control import parse_marker
from flymq.record.framing import check_framing, key_required, untimely
from flymq.record.header import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    check_batch,
    parse_header,
    set_log_append_time,
    set_max_timestamp,
    split_batches,
)
from flymq.storage.producers.producer_state import Producers
from flymq.storage.segments.segment import OFFSETS_MAX

_ASSIGNED_BYTES = 16  # of a batch: they lie in front, outside the checksum
_BROKERS_BITS = LOG_APPEND_TIME_BIT | DELETE_HORIZON_BIT
_COMPRESSION_MAX = int(max(Compression))

DECOMPRESSED_BYTES_MAX = 64 << 20
"""Limit of the decompressed size of a new batch, and of how much the batches of a request grow together when their
compression changes: that of a request by default, and half of what our readers take."""

CHECK_COST_MAX = 1 << 20
"""The largest cost that is counted exactly: about 2 ms for gzip, which is the slowest, or the smallest records."""

_DECOMPRESSED_BYTE_COST = 1.0 if COMPILED else 50.0
_UNCOMPRESSED_BYTE_COST = 0.25 if COMPILED else 50.0
"""Compiled code walks over four bytes in the time in which one is decompressed; in plain Python the walk is slowest."""


_CODECS = {
    TopicCompression.UNCOMPRESSED: Compression.NONE,
    TopicCompression.GZIP: Compression.GZIP,
    TopicCompression.SNAPPY: Compression.SNAPPY,
    TopicCompression.LZ4: Compression.LZ4,
    TopicCompression.ZSTD: Compression.ZSTD,
}
_LZ4_FAST = 9  # Kafka's default level stands for the fast mode, not for the ninth level


def _no_level(_config: TopicConfig) -> int | None:
    return None


_LEVELS: dict[TopicCompression, Callable[[TopicConfig], int | None]] = {
    TopicCompression.GZIP: lambda config: config.compression_gzip_level,
    TopicCompression.LZ4: lambda config: (
        None if config.compression_lz4_level == _LZ4_FAST else config.compression_lz4_level
    ),
    TopicCompression.ZSTD: lambda config: config.compression_zstd_level,
}


class CheckedBatches(bytes):
    """Batches whose records were checked."""


@dataclass(slots=True)
class Appended:
    """Where a run of batches stands in the log."""

    base_offset: int
    last_offset: int
    append_time_ms: int = NO_TIMESTAMP
    """The broker's time, when the topic uses it; else -1."""
    repeated: bool = False
    """The batch was in the log already; these are the offsets it got then."""
    start_offset: int = 0
    """Where the log starts."""
    safe: asyncio.Future[None] | PromptFuture[None] | None = None
    """Done when they are as safe as the writer asked for; None when they are already. Set by the partition."""


@dataclass(slots=True)
class Admitted:
    """Batches ready to be written."""

    pieces: list[Buffer]
    headers: list[BatchHeader]
    size: int

    def batch(self, position: int, header: BatchHeader) -> memoryview:
        """Return the batch at `position` of the whole."""
        whole = self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)
        return memoryview(whole)[position : position + header.size]


def admit(
    batches: Buffer, *, next_offset: int, leader_epoch: int, producers: Producers, config: TopicConfig, now_ms: int
) -> Admitted | Appended:
    """Check batches from a client and assign their offsets; or return the offsets of a duplicate."""
    view = memoryview(batches)
    is_checked = type(batches) is CheckedBatches
    if not view:
        raise EmptyBatch("no batch to append")
    pieces: list[Buffer] = []
    headers: list[BatchHeader] = []
    position, size, written = 0, len(view), 0
    while position < size:
        assigned, header = assign_batch(view, position, next_offset, leader_epoch)
        batch_size = header.size
        _check_from_client(header, config)
        start, position = position, position + batch_size
        if header.producer_id >= 0:
            if batch_size != size:
                raise InvalidBatch("a producer with an id sends one batch at a time to a partition")
            if (known := producers.find_duplicate(header)) is not None:
                append_time_ms = known.timestamp if config.timestamp_type is TimestampType.LOG_APPEND else NO_TIMESTAMP
                return Appended(known.base_offset, known.last_offset, append_time_ms, True)
        changed = None if is_checked else _prepare(view[start:position], header, config, now_ms)
        if config.timestamp_type is TimestampType.LOG_APPEND:
            changed = _with_append_time(view[start:position] if changed is None else changed, now_ms)
        if changed is None:
            pieces += (assigned, view[start + _ASSIGNED_BYTES : position])
            written += batch_size
        else:
            assigned, header = assign_batch(changed, 0, next_offset, leader_epoch)
            pieces += (assigned, changed[_ASSIGNED_BYTES:])
            written += header.size
        headers.append(header)
        next_offset = header.next_offset
    return Admitted(pieces, headers, written)


def check_cost(batches: Buffer) -> int:
    """Return about how long checking the records of these batches takes, counted in bytes to decompress.

    Above `CHECK_COST_MAX` it only says that it is more. Batches that are refused at first sight cost nothing.
    """
    size = len(batches)
    is_one = size >= HEADER_SIZE and int.from_bytes(batches[8:LENGTH_END]) == size - LENGTH_END
    if is_one and not batches[ATTRIBUTES_AT + 1] & COMPRESSION_MASK:
        return int(size * _UNCOMPRESSED_BYTE_COST)
    cost = 0
    try:
        for position, header in split_batches(batches):
            if not header.compression:
                cost += int(header.size * _UNCOMPRESSED_BYTE_COST)
            else:
                packed = memoryview(batches)[position + HEADER_SIZE : position + header.size]
                bound = decompressed_bytes_bound(packed, header.compression, CHECK_COST_MAX)
                cost += int(bound * _DECOMPRESSED_BYTE_COST)
            if cost > CHECK_COST_MAX:
                break
    except DecompressedTooLarge:
        return CHECK_COST_MAX + 1
    except InvalidBatch:
        return cost
    return cost


def must_recompress(batches: Buffer, config: TopicConfig) -> bool:
    """Whether one of these batches has another compression than its topic. Of very many, only the first are looked at:
    they are to be checked in a thread in any case."""
    if config.compression is TopicCompression.PRODUCER:
        return False
    wanted, position, size = _CODECS[config.compression], 0, len(batches)
    while size - position >= HEADER_SIZE:
        if position > CHECK_COST_MAX or batches[position + ATTRIBUTES_AT + 1] & COMPRESSION_MASK != wanted:
            return True
        position += LENGTH_END + int.from_bytes(batches[position + 8 : position + LENGTH_END])
    return False


def check_in_thread(batches: bytes, config: TopicConfig, now_ms: int) -> CheckedBatches:
    """Do for batches that take long what `admit` does for others: check their records, correct what must be."""
    checked: list[Buffer] = []
    position, grown_bytes = 0, 0
    while position < len(batches):
        header = check_batch(batches, position)
        _check_from_client(header, config)
        batch = memoryview(batches)[position : position + header.size]
        changed = _prepare(batch, header, config, now_ms)
        checked.append(batch if changed is None else changed)
        grown_bytes += len(checked[-1]) - header.size
        if grown_bytes > DECOMPRESSED_BYTES_MAX:  # kept until all are checked, so the memory they take has a limit
            raise MessageTooLarge(
                f"with compression.type {config.compression.value} the batches of this request grow by more than "
                f"{DECOMPRESSED_BYTES_MAX} bytes"
            )
        position += header.size
    return CheckedBatches(b"".join(checked))


def admit_as_is(batches: Buffer, *, next_offset: int, last_epoch: int, leader_epoch: int) -> Admitted:
    """Check a run of batches that have their offsets from the leader of `leader_epoch`, and keep them byte for byte.

    `last_epoch` is the epoch of the last batch in the log. Records are not looked at: what the leader has, good or bad,
    a copy must have too, or it would stay behind for ever.
    """
    view = memoryview(batches)
    if not view:
        raise EmptyBatch("no batch to append")
    admitted = Admitted([view], [], len(view))
    position, first_offset = 0, next_offset
    while position < len(view):
        header = check_batch(view, position)
        if header.base_offset < next_offset:
            raise InvalidBatch(f"the log continues at offset {next_offset}, the batch begins at {header.base_offset}")
        if header.last_offset - first_offset > OFFSETS_MAX:
            raise InvalidBatch(f"the batch ends at offset {header.last_offset}, too far after {first_offset}")
        if header.leader_epoch > leader_epoch:
            raise UnknownLeaderEpoch(
                f"the batch at offset {header.base_offset} is of leader epoch {header.leader_epoch}, "
                f"it was fetched from the leader of epoch {leader_epoch}"
            )
        if header.leader_epoch < last_epoch:
            raise InvalidBatch(
                f"the batch at offset {header.base_offset} is of leader epoch {header.leader_epoch}, "
                f"the one before it of {last_epoch}"
            )
        if header.is_control:
            parse_marker(view, position)  # what is in the log must be replayable
        admitted.headers.append(header)
        next_offset, last_epoch = header.next_offset, header.leader_epoch
        position += header.size
    return admitted


def admit_marker(batch: Buffer, *, next_offset: int, leader_epoch: int) -> Admitted:
    """Give a control batch, made by the broker itself, its offset."""
    assigned, header = assign_batch(batch, 0, next_offset, leader_epoch)
    assert header.is_control
    return Admitted([assigned, memoryview(batch)[_ASSIGNED_BYTES:]], [header], header.size)


def _check_from_client(header: BatchHeader, config: TopicConfig) -> None:
    """Check what the header of a client's batch says."""
    size = header.length + LENGTH_END
    if not 0 <= header.attributes <= _COMPRESSION_MAX:  # most batches have no flag set
        _check_attributes(header)
    if header.record_count < 1:
        raise EmptyBatch
    if header.record_count != header.last_offset_delta + 1:
        raise InvalidBatch(
            f"{header.record_count} records cannot span the offsets 0 to {header.last_offset_delta} of a new batch"
        )
    if size > config.max_message_bytes:
        raise MessageTooLarge(f"the batch has {size} bytes, the topic takes {config.max_message_bytes}")
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise InvalidBatch("a batch with a producer id needs an epoch and a sequence")


def _check_attributes(header: BatchHeader) -> None:
    if header.is_control:
        raise InvalidBatch("only the broker writes control batches")
    if header.attributes & _BROKERS_BITS:
        raise InvalidBatch("only the broker sets a log append time or a delete horizon")
    if header.compression > _COMPRESSION_MAX:
        raise UnsupportedCompression(f"compression {header.compression} is not known")
    if header.is_transactional and header.producer_id < 0:
        raise InvalidBatch("a transactional batch needs a producer id")


def _prepare(batch: memoryview, header: BatchHeader, config: TopicConfig, now_ms: int) -> memoryview | None:
    """Check the records of a batch; return it with the right latest time and compression, None if it has them."""
    max_timestamp = _check_records(batch, header, config, now_ms)
    if config.compression is not TopicCompression.PRODUCER and header.compression != _CODECS[config.compression]:
        return _recompressed(batch, header._replace(max_timestamp=max_timestamp), config)
    return None if max_timestamp == header.max_timestamp else _with_max_timestamp(batch, header, max_timestamp)


def _recompressed(batch: memoryview, header: BatchHeader, config: TopicConfig) -> memoryview:
    level = _LEVELS.get(config.compression, _no_level)(config)
    codec = _CODECS[config.compression]
    found = recompress(batch, header, codec, level=level, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    if len(found) > config.max_message_bytes:
        raise MessageTooLarge(
            f"the batch has {len(found)} bytes with compression.type {config.compression.value}, "
            f"the topic takes {config.max_message_bytes}"
        )
    return memoryview(found)


def _check_records(batch: memoryview, header: BatchHeader, config: TopicConfig, now_ms: int) -> int:
    """Return the latest time of the records, which are valid and may enter a topic with these settings."""
    max_timestamp, keyless = check_framing(batch, header, DECOMPRESSED_BYTES_MAX)
    if keyless and config.cleanup_policy.compacts:
        raise key_required(batch, header, DECOMPRESSED_BYTES_MAX)
    if config.timestamp_type is TimestampType.CREATE:
        earliest_ms, latest_ms = config.accepted_times(now_ms)
        if max_timestamp > latest_ms or earliest_ms >= 0:  # else no record can have an earlier time
            error = untimely(batch, header, earliest_ms, latest_ms, DECOMPRESSED_BYTES_MAX)
            if error is not None:
                raise error
    return max_timestamp


def _with_max_timestamp(batch: memoryview, header: BatchHeader, max_timestamp: int) -> memoryview:
    """Correct a wrong latest time, as brokers of Kafka do: retention and searches by time rely on it."""
    copy = bytearray(batch)
    set_max_timestamp(copy, 0, header, max_timestamp)
    return memoryview(copy)


def _with_append_time(batch: memoryview, now_ms: int) -> memoryview:
    copy = bytearray(batch)
    set_log_append_time(copy, 0, parse_header(copy), now_ms)
    return memoryview(copy)
