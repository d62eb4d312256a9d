"""Encoding and decoding of record batches, compared with aiokafka's compiled codec in the same run.

    python -m benchmarks.record_codec [--quick] [--json FILE]

All cases alternate within each round, so that noise affects all alike; the best round of each is reported. One batch
has 1000 records with a key and a value of 100 bytes. Decoding verifies the checksum, on both sides.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pyarrow as pa
from aiokafka.record.default_records import (
    DefaultRecordBatch,
    DefaultRecordBatchBuilder,
)

from benchmarks.row import Row, row, show
from flymq.record import _plain, codec
from flymq.record.arrow import parse_columns
from flymq.record.batch import encode_batch
from flymq.record.compression import Compression
from flymq.record.reading import parse_pairs, parse_records, parse_rows

RECORDS = 1_000
VALUE_BYTES = 100
TIME_MS = 1_700_000_000_000
UNIT = "records/s"
PEER_TARGET = "3 × the peer"
ARROW_TARGET = "8 M records/s"

Headers = list[tuple[str, bytes | None]]
Entry = tuple[bytes, bytes, Headers, int]


class Case(NamedTuple):
    """One operation on a batch, by us and by the peer."""

    name: str
    ours: Callable[[], object]
    peer: Callable[[], object]
    target: str


def entries(headers: Headers) -> list[Entry]:
    """Return records of text that compresses about as events do."""
    made = []
    for index in range(RECORDS):
        user, amount = index * 7919 % 5003, index * 104729 % 99991 / 100
        text = f'{{"id": {index}, "user": "user-{user}", "amount": {amount}, "state": "paid", "note": "{"-" * 50}"}}'
        made.append((b"key-%06d" % index, text.encode()[:VALUE_BYTES], headers, TIME_MS))
    return made


def cases(name: str, headers: Headers, compression: Compression) -> list[Case]:
    records = entries(headers)
    # Without headers, the pairs and one time for all are what a caller has; with headers, whole tuples.
    to_encode: list[Any] = records if headers else [(key, value) for key, value, _, _ in records]
    batch = bytes(encode_batch(to_encode, timestamp_ms=TIME_MS, compression=compression))
    assert [record.value for record in DefaultRecordBatch(batch)] == [value for _, value, _, _ in records]
    return [
        Case(
            f"{name}: encode",
            lambda: encode_batch(to_encode, timestamp_ms=TIME_MS, compression=compression),
            lambda: aiokafka_encode(records, compression),
            PEER_TARGET if compression is Compression.NONE else "",
        ),
        Case(
            f"{name}: decode to records",
            lambda: parse_records(batch),
            lambda: list(aiokafka_open(batch)),
            PEER_TARGET if compression is Compression.NONE else "",
        ),
        Case(
            f"{name}: decode to rows",
            lambda: parse_rows(batch),
            lambda: [(record.offset, record.timestamp, record.key, record.value) for record in aiokafka_open(batch)],
            PEER_TARGET if compression is Compression.NONE else "",
        ),
        Case(
            f"{name}: decode to pairs",
            lambda: parse_pairs(batch),
            lambda: [(record.key, record.value) for record in aiokafka_open(batch)],
            "",
        ),
        Case(
            f"{name}: decode to Arrow",
            lambda: parse_columns(batch),
            lambda: aiokafka_to_arrow(batch),
            ARROW_TARGET if compression is Compression.NONE and not headers else "",
        ),
    ]


def aiokafka_encode(records: list[Entry], compression: Compression) -> object:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    append = builder.append
    for offset, (key, value, headers, time_ms) in enumerate(records):
        append(offset, time_ms, key, value, headers)
    return builder.build()


def aiokafka_open(batch: bytes) -> DefaultRecordBatch:
    opened = DefaultRecordBatch(batch)
    assert opened.validate_crc()
    return opened


def aiokafka_to_arrow(batch: bytes) -> pa.RecordBatch:
    records = list(aiokafka_open(batch))
    headers = [[{"key": name, "value": content} for name, content in record.headers] for record in records]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([record.offset for record in records], pa.int64()),
            pa.array([record.timestamp for record in records], pa.int64()),
            pa.array([record.key for record in records], pa.binary()),
            pa.array([record.value for record in records], pa.binary()),
            pa.array(headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ],
        names=["offset", "timestamp", "key", "value", "headers"],
    )


@contextmanager
def using(module: ModuleType) -> Iterator[None]:
    """Use this codec in a `with` block."""
    names = [name for name in codec.__all__ if name != "COMPILED"]
    before = {name: getattr(codec, name) for name in names}
    for name in names:
        setattr(codec, name, getattr(module, name))
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(codec, name, function)


def in_plain_python(function: Callable[[], object]) -> Callable[[], object]:
    def run_in_plain_python() -> object:
        with using(_plain):
            return function()

    return run_in_plain_python


def best_rates(functions: dict[str, Callable[[], object]], rounds: int, round_s: float) -> dict[str, float]:
    """Return the best rate of each function in records/s; each round runs them all, one after another."""
    best = dict.fromkeys(functions, 0.0)
    for _ in range(rounds):
        for name, function in functions.items():
            repeats, started = 0, time.perf_counter()
            while (elapsed_s := time.perf_counter() - started) < round_s:
                function()
                repeats += 1
            best[name] = max(best[name], repeats * RECORDS / elapsed_s)
    return best


def run(quick: bool = False) -> list[Row]:
    """Return a row a case for the codec in use, and one for the plain codec beside it."""
    headers: Headers = [("trace-id", b"0123456789abcdef"), ("source", b"orders"), ("retry", None)]
    chosen = cases("1000 × 100 B", [], Compression.NONE)
    if not quick:
        chosen += cases("with 3 headers", headers, Compression.NONE)
        chosen += cases("with lz4", [], Compression.LZ4)
        chosen += cases("with zstd", [], Compression.ZSTD)
    functions: dict[str, Callable[[], object]] = {}
    for case in chosen:
        functions[f"ours {case.name}"] = case.ours
        functions[f"peer {case.name}"] = case.peer
        functions[f"plain {case.name}"] = in_plain_python(case.ours)
    rates = best_rates(functions, rounds=3 if quick else 7, round_s=0.01 if quick else 0.03)
    rows = []
    for case in chosen:
        peer = rates[f"peer {case.name}"]
        if codec.COMPILED:
            ours = rates[f"ours {case.name}"]
            rows.append(row(case.name, ours, UNIT, peer="aiokafka", peer_value=peer, target=case.target))
        plain = rates[f"plain {case.name}"]
        rows.append(row(f"{case.name}, plain Python", plain, UNIT, peer="aiokafka", peer_value=peer))
    return rows


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="fewer cases and rounds")
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write the rows there as well")
    chosen = arguments.parse_args()
    rows = run(chosen.quick)
    print(show(rows))
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
