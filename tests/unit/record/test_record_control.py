"""Markers that end a transaction."""

from __future__ import annotations

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord
from aiokafka.record.default_records import DefaultRecordBatch

from flymq.model.errors import CorruptBatch, InvalidBatch
from flymq.record.batch import encode_batch, parse_batch
from flymq.record.control import Marker, MarkerType, encode_marker, parse_marker
from flymq.record.header import ATTRIBUTES_AT, CONTROL_BIT, check_batch, renew_checksum

pytestmark = pytest.mark.usefixtures("twin")

MARKER = Marker(MarkerType.ABORT, producer_id=1 << 40, producer_epoch=7, coordinator_epoch=3, timestamp_ms=5_000)


@pytest.mark.parametrize("kind", MarkerType)
def test_a_marker_comes_back_as_it_was(kind: MarkerType) -> None:
    marker = MARKER._replace(type=kind)
    batch = encode_marker(marker)
    assert parse_marker(batch) == marker
    header = check_batch(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.record_count, header.base_sequence) == (1, -1)


@pytest.mark.parametrize(("kind", "expected"), [(MarkerType.ABORT, ABORT_MARKER), (MarkerType.COMMIT, COMMIT_MARKER)])
def test_other_clients_recognise_a_marker(kind: MarkerType, expected: ControlRecord) -> None:
    batch = DefaultRecordBatch(bytes(encode_marker(MARKER._replace(type=kind))))
    assert batch.is_control_batch
    assert [ControlRecord.parse(record.key) for record in batch] == [expected]


def test_the_record_of_a_marker_has_the_documented_bytes() -> None:
    (record,) = parse_batch(encode_marker(MARKER))
    assert record.key == bytes.fromhex("0000 0000")
    assert record.value == bytes.fromhex("0000 00000003")


def control_batch(key: bytes | None, value: bytes | None) -> bytearray:
    batch = encode_batch([(key, value)])
    batch[ATTRIBUTES_AT + 1] |= CONTROL_BIT
    renew_checksum(batch, 0, len(batch))
    return batch


def test_a_control_batch_of_another_kind_is_no_marker() -> None:
    assert parse_marker(control_batch(bytes.fromhex("0000 0002"), b"leader change")) is None


@pytest.mark.parametrize(("key", "value"), [(None, None), (b"\0", b""), (bytes(4), bytes(5)), (bytes(4), None)])
def test_a_marker_that_is_too_short_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(InvalidBatch):
        parse_marker(control_batch(key, value))


def test_a_batch_of_data_is_no_marker() -> None:
    with pytest.raises(InvalidBatch):
        parse_marker(encode_batch([(bytes(4), bytes(6))]))


def test_a_damaged_marker_is_refused() -> None:
    batch = encode_marker(MARKER)
    batch[-3] ^= 1
    with pytest.raises(CorruptBatch):
        parse_marker(batch)
