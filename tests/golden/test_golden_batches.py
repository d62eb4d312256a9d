"""Batches that other clients wrote are read, and other clients read what we write."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioKafkaBatch

from flymq.record.batch import encode_batch, parse_batch
from flymq.record.compression import Compression
from flymq.record.header import assign, check_batch
from flymq.record.record import Record

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # kafka-python reads its schemas in a deprecated way
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

HERE = Path(__file__).parent
EXPECTED: dict[str, Any] = json.loads((HERE / "expected.json").read_text())
UNCOMPRESSED = [file for file, expected in EXPECTED.items() if expected["compression"] == Compression.NONE]
READERS: dict[str, Callable[[bytes], Any]] = {"aiokafka": AioKafkaBatch, "kafka-python": KafkaPythonBatch}


def from_hex(field: str | None) -> bytes | None:
    return None if field is None else bytes.fromhex(field)


def records_of(file: str) -> list[Record]:
    return [
        Record(
            from_hex(entry["key"]),
            None if entry["value"] is None else bytes.fromhex(entry["value"]) * entry["value_repeated"],
            tuple((name, from_hex(content)) for name, content in entry["headers"]),
            entry["timestamp_ms"],
            offset,
        )
        for offset, entry in enumerate(EXPECTED[file]["records"])
    ]


def test_every_recorded_batch_is_expected() -> None:
    assert {path.name for path in HERE.glob("*.bin")} == set(EXPECTED)
    assert {expected["compression"] for expected in EXPECTED.values()} == set(Compression)


@pytest.mark.parametrize("file", EXPECTED)
def test_what_another_client_wrote_is_read(file: str) -> None:
    batch, expected = (HERE / file).read_bytes(), EXPECTED[file]
    header = check_batch(batch)
    assert header.compression == expected["compression"]
    assert header.is_transactional == bool(expected["is_transactional"])
    for name in ("producer_id", "producer_epoch", "base_sequence"):
        assert getattr(header, name) == expected[name]
    assert parse_batch(batch) == records_of(file)


def test_the_recorded_snappy_is_in_java_s_blocks() -> None:
    assert (HERE / "aiokafka-snappy.bin").read_bytes()[61:].startswith(b"\x82SNAPPY\0")


@pytest.mark.parametrize("file", UNCOMPRESSED)
def test_our_bytes_are_those_of_another_client(file: str) -> None:
    theirs, expected = (HERE / file).read_bytes(), EXPECTED[file]
    ours = encode_batch(
        records_of(file),
        producer_id=expected["producer_id"],
        producer_epoch=expected["producer_epoch"],
        base_sequence=expected["base_sequence"],
        transactional=bool(expected["is_transactional"]),
    )
    assign(ours, 0, base_offset=0, leader_epoch=check_batch(theirs).leader_epoch)  # the broker's to give
    assert ours == theirs


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("compression", Compression)
def test_what_we_write_is_read_by_another_client(reader: str, compression: Compression) -> None:
    records = records_of("aiokafka-zstd.bin")
    ours = encode_batch(
        records, compression=compression, producer_id=5, producer_epoch=1, base_sequence=9, transactional=True
    )
    assert check_batch(ours).compression == compression
    assign(ours, 0, base_offset=700, leader_epoch=2)
    theirs = READERS[reader](bytes(ours))
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.is_transactional, theirs.next_offset) == (5, True, 700 + len(records))
    read = [
        (record.key, record.value, tuple(record.headers), record.timestamp, record.offset - 700) for record in theirs
    ]
    assert read == [tuple(record) for record in records]
