"""Control batches: the markers that end a transaction in a partition's log. Readers never see them.

key    version: i16 = 0 | type: i16, 0 abort, 1 commit
value  version: i16 = 0 | coordinator epoch: i32
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import NamedTuple

from flymq.model.errors import InvalidBatch
from flymq.record import codec
from flymq.record.batch import parse_batch, seal
from flymq.record.compression import Compression
from flymq.record.header import (
    CONTROL_BIT,
    HEADER_SIZE,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    check_batch,
)

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_VERSION = 0


class MarkerType(IntEnum):
    """The outcome of a transaction."""

    ABORT = 0
    COMMIT = 1


class Marker(NamedTuple):
    """The end of one producer's transaction."""

    type: MarkerType
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    timestamp_ms: int


def encode_marker(marker: Marker) -> bytearray:
    """Return the control batch with `marker`."""
    record = (_KEY.pack(_VERSION, marker.type), _VALUE.pack(_VERSION, marker.coordinator_epoch))
    buffer, timestamp_ms, _ = codec.encode_records([record], HEADER_SIZE, marker.timestamp_ms)
    header = BatchHeader(
        base_offset=0,
        length=0,
        leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
        last_offset_delta=0,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        base_sequence=NO_SEQUENCE,
        record_count=1,
    )
    return seal(buffer, header, Compression.NONE)


def parse_marker(buffer: Buffer, position: int = 0) -> Marker | None:
    """Return the marker in the control batch at `position`; None for a type that does not end a transaction."""
    header = check_batch(buffer, position)
    if not header.is_control:
        raise InvalidBatch("the batch is not a control batch")
    for record in parse_batch(buffer, position):
        try:
            _, kind = _KEY.unpack_from(record.key or b"")
            if kind not in MarkerType.__members__.values():
                return None
            _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
        except StructError as fault:
            raise InvalidBatch("the control record is too short for a marker") from fault
        return Marker(
            MarkerType(kind), header.producer_id, header.producer_epoch, coordinator_epoch, record.timestamp_ms
        )
    return None
