"""Kafka Streams counts words exactly once, though it is killed and comes back without its state."""

from __future__ import annotations

from collections import defaultdict

import pytest
from tests.clients.jvm.topics import Reader, create, write

LINES = 600
WORDS = ("fly", "queue", "log")
FASTER = (
    "producer.transaction.timeout.ms=5000",
    "consumer.session.timeout.ms=6000",
    "consumer.heartbeat.interval.ms=500",
)
"""So that the broker gives up on a killed process sooner than by default, after 10 and 45 s."""


@pytest.mark.shows("exactly once though the client is killed", client="Kafka Streams")
@pytest.mark.shows("consume, transform, produce", client="Kafka Streams")
def test_kafka_streams_counts_every_word_once_though_it_is_killed_and_restored(server, topic, kafka4, tmp_path):
    create(server.address, f"{topic}-lines", f"{topic}-counts")
    reader = Reader(server.address, f"{topic}-counts")
    lines, log = [" ".join(WORDS)] * LINES, tmp_path / "log"
    write(server.address, f"{topic}-lines", lines)
    with kafka4.start("WordCount", server.address, topic, tmp_path / "first", *FASTER, log=log):
        reader.read(LINES // 10)
        write(server.address, f"{topic}-lines", lines)
    with kafka4.start("WordCount", server.address, topic, tmp_path / "second", *FASTER, log=log):
        reader.read(2 * LINES * len(WORDS))
    reader.close()
    counts = defaultdict(list)
    for message in reader.messages:
        counts[message.key().decode()].append(int(message.value()))
    assert counts == {word: list(range(1, 2 * LINES + 1)) for word in WORDS}
