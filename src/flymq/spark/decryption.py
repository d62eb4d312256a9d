"""Decrypt the values of a record batch, in the task that reads it."""

from __future__ import annotations

import pyarrow as pa

from flymq.client.encryption import Cipher
from flymq.model.errors import UnreadableRecord
from flymq.model.names import TopicPartition


def decrypted(columns: pa.RecordBatch, cipher: Cipher, name: TopicPartition) -> pa.RecordBatch:
    """Return the columns with plain values, and headers without ours. An error names the record."""
    values: list[bytes | None] = []
    headers: list[list[dict[str, object]]] = []
    rows = zip(columns.column("value").to_pylist(), columns.column("headers").to_pylist(), strict=True)
    for index, (value, pairs) in enumerate(rows):
        try:
            plain, left = cipher.decrypt(value, [(pair["key"], pair["value"]) for pair in pairs])
        except UnreadableRecord as error:
            offset = columns.column("offset")[index].as_py()
            raise type(error)(f"{name} at offset {offset}: {error.message}", hint=error.hint) from None
        values.append(plain)
        headers.append([{"key": key, "value": content} for key, content in left])
    schema = columns.schema
    changed = {"value": values, "headers": headers}
    arrays = [
        pa.array(changed[field.name], field.type) if field.name in changed else columns.column(field.name)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
