"""Batches that cannot be decoded, from before the broker checked them: named, or skipped by choice, and no others."""

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.unit.storage.batches import append_unchecked, batch, poison

from flymq import FlyMQClient
from flymq.errors import UnreadableBatch
from flymq.host.disk import SystemDisk
from flymq.model.topic_config import TopicConfig
from flymq.storage.recovery.open_log import open_log
from flymq.testing import TestBroker, running_broker

TOPIC = "old"
GOOD = [0, 1, 5, 6]
"""Offsets around a batch of noise at 2 to 4."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    """A broker whose topic has a batch of noise between good ones."""
    data_dir: Path = tmp_path_factory.mktemp("data")
    with running_broker(data_dir) as running, FlyMQClient(running.address) as client:
        internal = set(data_dir.glob("topics/*"))
        client.create_topic(TOPIC, partitions=1)
        [directory] = set(data_dir.glob("topics/*")) - internal
    log = open_log(SystemDisk(), directory / "0", TopicConfig())
    at_ms = int(time.time() * 1000)  # retention would take older ones
    before = [batch(value, at_ms=at_ms) for value in ("a", "b")]
    append_unchecked(log, *before, poison(3, at_ms=at_ms), batch("c", "d", at_ms=at_ms))
    log.close()
    with running_broker(data_dir) as running:
        yield running


def test_a_consumer_returns_what_came_before_then_names_the_batch_and_can_go_on(broker: TestBroker) -> None:
    with FlyMQClient(broker.address) as client, client.consumer(TOPIC) as consumer:
        assert [record.offset for record in consumer.poll(timeout_ms=20_000, max_records=2)] == [0, 1]
        for _ in range(2):  # it does not go past by itself
            with pytest.raises(UnreadableBatch, match="old-0 at offset 2") as caught:
                consumer.poll(timeout_ms=20_000)
            assert consumer.position(TOPIC, 0) == 2
        consumer.skip(caught.value)
        assert [record.offset for record in consumer.poll(timeout_ms=20_000)] == [5, 6]


def test_a_poll_that_reaches_the_batch_returns_the_records_before_it(broker: TestBroker) -> None:
    with FlyMQClient(broker.address) as client, client.consumer(TOPIC) as consumer:
        assert [record.offset for record in consumer.poll(timeout_ms=20_000)] == [0, 1]


def test_a_consumer_skips_the_batch_by_choice_and_counts_it(
    broker: TestBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING, "flymq.client"),
        FlyMQClient(broker.address) as client,
        client.consumer(TOPIC, on_corrupt_batch="skip") as consumer,
    ):
        offsets = [record.offset for _, record in zip(GOOD, consumer, strict=False)]
        assert offsets == GOOD
        assert client.metrics().batches_skipped == 1
        assert "flymq_client_batches_skipped_total" in client.metrics().prometheus()
    assert "old-0 at offset 2" in caplog.text


def test_seeking_past_the_batch_reads_on(broker: TestBroker) -> None:
    with FlyMQClient(broker.address) as client, client.consumer(TOPIC) as consumer:
        consumer.seek(TOPIC, 0, 5)
        assert [record.offset for record in consumer.poll(timeout_ms=20_000)] == [5, 6]


def test_reading_a_record_of_the_batch_says_where_it_is(broker: TestBroker) -> None:
    with FlyMQClient(broker.address) as client, pytest.raises(UnreadableBatch, match="old-0 at offset 3"):
        client.consume(TOPIC, 3, partition=0)


def test_a_reader_over_http_gets_the_good_records_and_metrics_tell_of_the_others(broker: TestBroker) -> None:
    with httpx.Client(base_url=f"http://{broker.address}/api/v1", timeout=20) as api:
        found, offset = [], 0
        while offset < 7:
            page = api.get(f"/topics/{TOPIC}/partitions/0/records", params={"offset": offset}).json()
            found += [record["offset"] for record in page["records"]]
            offset = page["next_offset"]
    assert found == GOOD
    metrics = httpx.get(f"http://{broker.address}/metrics").text
    [line] = [line for line in metrics.splitlines() if line.startswith("flymq_batches_skipped_total")]
    assert float(line.split()[-1]) >= 1


def test_a_search_by_time_passes_over_the_batch(broker: TestBroker) -> None:
    with FlyMQClient(broker.address) as client, client.consumer(TOPIC) as consumer:
        consumer.seek_to_time(0)
        assert consumer.position(TOPIC, 0) == 0
