"""End-to-end encryption of record values, in the Spark task that reads or writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from flymq.client.encryption import Cipher
from flymq.model.errors import UnreadableRecord
from flymq.model.names import TopicPartition
from flymq.record.record import Header

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def decrypted(columns: pa.RecordBatch, cipher: Cipher, name: TopicPartition) -> pa.RecordBatch:
    """Return the columns with decrypted values, without FlyMQ's encryption header. An error names the record."""
    values: list[bytes | None] = []
    headers: list[Sequence[Header]] = []
    for index, (value, given) in enumerate(_rows(columns)):
        try:
            plain, left = cipher.decrypt(value, given)
        except UnreadableRecord as error:
            offset = columns.column("offset")[index].as_py()
            raise type(error)(f"{name} at offset {offset}: {error.message}", hint=error.hint) from None
        values.append(plain)
        headers.append(left)
    return _with(columns, {"value": pa.array(values, pa.binary()), "headers": pa.array(headers, _HEADERS)})


def encrypted(rows: pa.RecordBatch, cipher: Cipher) -> pa.RecordBatch:
    """Return the rows with encrypted values, and the header with the key's id."""
    sealed = [cipher.encrypt(value, given) for value, given in _rows(rows)]
    values = pa.array([value for value, _ in sealed], pa.binary())
    return _with(rows, {"value": values, "headers": pa.array([headers for _, headers in sealed], _HEADERS)})


def _rows(columns: pa.RecordBatch) -> list[tuple[bytes | None, list[Header]]]:
    values = columns.column("value").cast(pa.binary()).to_pylist()
    if "headers" not in columns.schema.names:
        return [(value, []) for value in values]
    lists: list[list[dict[str, Any]] | None] = columns.column("headers").to_pylist()
    headers = [[(pair["key"], pair["value"]) for pair in pairs or ()] for pairs in lists]
    return list(zip(values, headers, strict=True))


def _with(columns: pa.RecordBatch, changed: Mapping[str, pa.Array]) -> pa.RecordBatch:
    arrays = dict(zip(columns.schema.names, columns.columns, strict=True))
    return pa.RecordBatch.from_pydict({**arrays, **changed})
