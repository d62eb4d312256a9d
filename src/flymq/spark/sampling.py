"""Sample the last records of a topic, to infer a schema for its values."""

from __future__ import annotations

from flymq.client.sync.client import FlyMQClient
from flymq.spark.json_schema import infer_fields, quoted

SAMPLE_RECORDS = 1_000
_SAMPLE_BYTES = 1 << 20


def sample(client: FlyMQClient, topic: str) -> tuple[list[bytes], list[bytes]]:
    """Return the non-null keys and values of some of the last records."""
    starts = client.admin.earliest_offsets(topic)
    ends = client.admin.latest_offsets(topic)
    each = -(-SAMPLE_RECORDS // len(ends))
    spans = {name: range(max(starts[name], end - each), end) for name, end in ends.items()}
    records = [
        record
        for (_, partition), span in spans.items()
        if span
        for record in client.fetch(topic, partition, span.start, max_records=each, max_bytes=_SAMPLE_BYTES)
    ]
    keys = [record.key for record in records if record.key is not None]
    return keys, [record.value for record in records if record.value is not None]


def infer_schema(client: FlyMQClient, topic: str) -> str | None:
    """Return the schema of a topic's JSON values as DDL; None if they are not JSON."""
    _, values = sample(client, topic)
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in infer_fields(values).items()) or None
