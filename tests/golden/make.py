"""Record batches as other clients write them, to be read by every later version: `python tests/golden/make.py`.

Writes one file a batch, and `expected.json` with what each holds. The files are checked in; run this again only to add
to them, since a new release of a client may compress differently.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioKafkaBuilder

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # kafka-python reads its schemas in a deprecated way
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

HERE = Path(__file__).parent
BUILDERS = {"aiokafka": AioKafkaBuilder, "kafka-python": KafkaPythonBuilder}
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
TIME_MS = 1_700_000_000_000

Entry = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]

SMALL: list[Entry] = [
    (b"key", b"value", [], TIME_MS),
    (None, b"a record without a key", [], TIME_MS + 1),
    (b"tombstone", None, [], TIME_MS - 5_000),
    (None, None, [], TIME_MS),
    (b"", b"", [], TIME_MS + 86_400_000),
    (b"headers", b"value", [("trace", b"\x00\xff"), ("trace", None), ("größe", b""), ("", b"x")], TIME_MS),
]
LARGE: list[Entry] = [(b"large", bytes((letter,)) * 7_000, [], TIME_MS) for letter in b"abcdefghijkl"]
"""Enough for several blocks of any codec."""
PLAIN = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "is_transactional": 0}
PRODUCERS = {
    "idempotent": {"producer_id": 4_000_000_000, "producer_epoch": 3, "base_sequence": 17, "is_transactional": 0},
    "transactional": {"producer_id": 5, "producer_epoch": 0, "base_sequence": 2**31 - 3, "is_transactional": 1},
}


def records_of(codec: str) -> list[Entry]:
    return SMALL if codec == "none" else SMALL + LARGE


def build(writer: str, codec: str, producer: dict[str, int]) -> bytes:
    builder = BUILDERS[writer](magic=2, compression_type=CODECS[codec], batch_size=1 << 20, **producer)
    for offset, (key, value, headers, time_ms) in enumerate(records_of(codec)):
        assert builder.append(offset, time_ms, key, value, headers) is not None
    return bytes(builder.build())


def expected(codec: str, producer: dict[str, int]) -> dict[str, Any]:
    return {"compression": CODECS[codec], **producer, "records": [describe(entry) for entry in records_of(codec)]}


def describe(entry: Entry) -> dict[str, Any]:
    key, value, headers, time_ms = entry
    repeated = 1
    if value is not None and len(value) > 1_000:
        value, repeated = value[:1], len(value)
    return {
        "key": as_hex(key),
        "value": as_hex(value),
        "value_repeated": repeated,
        "headers": [[name, as_hex(content)] for name, content in headers],
        "timestamp_ms": time_ms,
    }


def as_hex(field: bytes | None) -> str | None:
    return None if field is None else field.hex()


def main() -> None:
    contents: dict[str, Any] = {}
    for writer in BUILDERS:
        cases = [(codec, codec, PLAIN) for codec in CODECS]
        cases += [(name, "none", producer) for name, producer in PRODUCERS.items()]
        for name, codec, producer in cases:
            file = f"{writer}-{name}.bin"
            (HERE / file).write_bytes(build(writer, codec, producer))
            contents[file] = expected(codec, producer)
    (HERE / "expected.json").write_text(json.dumps(contents, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
