"""Kafka Connect, distributed, with exactly-once sources; its worker is killed in between."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.clients.jvm.topics import Reader, create, wait_until
from tests.clients.jvm.worker import running_worker

LINES = 400


def write_lines(path: Path, start: int, end: int) -> None:
    with path.open("a") as file:
        file.writelines(f"line {number}\n" for number in range(start, end))


@pytest.mark.shows("exactly once though the client is killed", client="Kafka Connect")
@pytest.mark.shows("consume, transform, produce", client="Kafka Connect")
def test_connect_brings_every_line_of_a_file_once_though_its_worker_is_killed(server, topic, kafka4, tmp_path):
    create(server.address, topic, partitions=1)
    reader = Reader(server.address, topic)
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    write_lines(source, 0, LINES)
    with running_worker(kafka4, server.address, f"{topic}-connect", tmp_path) as worker:
        kind = {"connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector"}
        worker.create("source", {**kind, "file": source, "topic": topic, "exactly.once.support": "required"})
        reader.read(LINES)
        write_lines(source, LINES, 2 * LINES)
    with running_worker(kafka4, server.address, f"{topic}-connect", tmp_path) as worker:
        kind = {"connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector"}
        worker.create("sink", {**kind, "file": sink, "topics": topic})
        write_lines(source, 2 * LINES, 3 * LINES)
        written = reader.read(3 * LINES)
        wait_until(lambda: sink.exists() and sink.read_text().count("\n") >= 3 * LINES)
        assert worker.state("source") == worker.state("sink") == ["RUNNING", "RUNNING"]
    reader.close()
    assert written == sink.read_text().splitlines() == [f"line {number}" for number in range(3 * LINES)]
