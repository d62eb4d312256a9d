"""Metrics that clients push: who is asked for what, what is kept, and for how long. In virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest
from tests.unit.broker.world import World
from tests.unit.wire.test_otlp import attribute, integer, message, metric, metrics, point

from flymq.broker.service import client_metrics
from flymq.broker.service.caller import Caller
from flymq.broker.service.client_metrics import ClientMetrics, MetricsClient
from flymq.host.virtual_time import run
from flymq.model.errors import (
    DecompressedTooLarge,
    InvalidRequest,
    InvalidSetting,
    MetricsTooLarge,
    MetricsTooOften,
    UnknownMetricsSubscription,
)
from flymq.record.compression import Compression, compress

CALLER = Caller("kafka")
NOBODY = UUID(int=0)
LAG = "org.apache.kafka.consumer.fetch.manager.records.lag"
SENT = metrics(
    metric(
        LAG, gauge=point(5.0, attribute(7, "topic", message(1, 'or"ders')), attribute(7, "partition", integer(3, 1)))
    ),
    metric("org.apache.kafka.consumer.connection.creation.total", total=point(3) + integer(2, 2) + integer(3, 1)),
    metric("org.apache.kafka.producer.other", gauge=point(1.0)),
    resource=attribute(1, "group_id", message(1, "billing")),
)

Scenario = Callable[[World, ClientMetrics], Awaitable[None]]


def in_world(scenario: Scenario) -> None:
    async def live() -> None:
        world = World()
        node = await world.start()
        await scenario(world, node.service.client_metrics)
        await world.close()

    run(live())


def push(service: ClientMetrics, client: MetricsClient, subscription: int, *, is_last: bool = False) -> None:
    service.check_push(CALLER, client, subscription, len(SENT), is_last=is_last)
    service.pushed(CALLER, client, service.read(SENT, Compression.NONE))


def shown(service: ClientMetrics) -> list[tuple[str, bool, dict[str, float]]]:
    return list(service.series())


async def subscribe(service: ClientMetrics, name: str = "all", **settings: str) -> None:
    changes: dict[str, str | None] = {key.replace("_", "."): value for key, value in settings.items()}
    await service.alter(CALLER, name, {"metrics": "*", "interval.ms": "1000", **changes})


def test_a_client_is_asked_for_nothing_without_a_subscription_and_gets_an_id() -> None:
    async def scenario(world: World, service: ClientMetrics) -> None:
        instance_id, wanted = service.get(CALLER, MetricsClient(NOBODY))
        assert instance_id.int
        assert (wanted.prefixes, wanted.interval_ms) == ((), 300_000)
        assert service.get(CALLER, MetricsClient(NOBODY))[0] != instance_id

    in_world(scenario)


def test_what_is_pushed_is_shown_with_the_names_and_labels_of_prometheus_until_the_client_is_silent() -> None:
    async def scenario(world: World, service: ClientMetrics) -> None:
        await subscribe(service, metrics="org.apache.kafka.consumer.")
        instance_id, wanted = service.get(CALLER, MetricsClient(NOBODY, "reader"))
        push(service, MetricsClient(instance_id, "reader"), wanted.id)
        who = f'client_id="reader",client_instance_id="{instance_id}",group_id="billing"'
        assert shown(service) == [
            ("kafka_client_consumer_connection_creation_total", True, {who: 3}),
            (
                "kafka_client_consumer_fetch_manager_records_lag",
                False,
                {f'{who},partition="1",topic="or\\"ders"': 5.0},
            ),
        ]
        assert (service.clients, service.pushes["accepted"]) == (1, 1)
        await asyncio.sleep(2.5)
        assert service.clients == 1
        await asyncio.sleep(1)
        assert (shown(service), service.clients) == ([], 0)

    in_world(scenario)


def test_a_push_too_early_for_another_subscription_or_too_large_is_refused() -> None:
    async def scenario(world: World, service: ClientMetrics) -> None:
        await subscribe(service)
        instance_id, wanted = service.get(CALLER, MetricsClient(NOBODY))
        client = MetricsClient(instance_id)
        with pytest.raises(MetricsTooOften):
            service.get(CALLER, client)
        push(service, client, wanted.id)
        with pytest.raises(MetricsTooOften):
            push(service, client, wanted.id)
        await asyncio.sleep(1)
        with pytest.raises(MetricsTooLarge):
            service.check_push(CALLER, client, wanted.id, (1 << 20) + 1, is_last=False)
        await subscribe(service, interval_ms="500")
        await asyncio.sleep(1)
        with pytest.raises(UnknownMetricsSubscription):
            push(service, client, wanted.id)
        _, changed = service.get(CALLER, client)
        assert changed.id != wanted.id
        push(service, client, changed.id, is_last=True)
        with pytest.raises(InvalidRequest):
            push(service, client, changed.id)
        with pytest.raises(InvalidRequest):
            push(service, MetricsClient(NOBODY), changed.id)

    in_world(scenario)


def test_a_client_that_a_restarted_broker_does_not_know_goes_on() -> None:
    async def scenario(world: World, service: ClientMetrics) -> None:
        await subscribe(service)
        instance_id, wanted = service.get(CALLER, MetricsClient(NOBODY))
        node = await world.restart()
        push(node.service.client_metrics, MetricsClient(instance_id), wanted.id)
        assert node.service.client_metrics.clients == 1

    in_world(scenario)


def test_subscriptions_match_clients_and_add_up() -> None:
    async def scenario(world: World, service: ClientMetrics) -> None:
        await subscribe(service, "a", metrics="x.", match="client_id=billing-.*,client_software_name=librdkafka")
        await subscribe(service, "b", metrics="y.,x.", interval_ms="500", match="client_id=billing-1")
        both = service.get(CALLER, MetricsClient(NOBODY, "billing-1", "librdkafka"))[1]
        assert (both.prefixes, both.interval_ms) == (("x.", "y."), 500)
        one = service.get(CALLER, MetricsClient(NOBODY, "billing-2", "librdkafka"))[1]
        assert (one.prefixes, one.interval_ms) == (("x.",), 1000)
        assert service.get(CALLER, MetricsClient(NOBODY, "billing-2", "apache-kafka-java"))[1].prefixes == ()
        assert service.names(CALLER) == ["a", "b"]
        await service.alter(CALLER, "a", {"metrics": None, "interval.ms": None, "match": None})
        assert service.names(CALLER) == ["b"]

    in_world(scenario)


@pytest.mark.parametrize(
    "changes",
    [
        {"interval.ms": "99"},
        {"interval.ms": "3600001"},
        {"interval.ms": "soon"},
        {"interval.ms": "9" * 5_000},
        {"match": "client_id"},
        {"match": "color=red"},
        {"match": "client_id=("},
        {"unknown": "1"},
        {"unknown": None},
    ],
)
def test_a_subscription_with_an_invalid_setting_is_refused(changes: dict[str, str | None]) -> None:
    async def scenario(world: World, service: ClientMetrics) -> None:
        with pytest.raises(InvalidSetting):
            await service.alter(CALLER, "all", changes)
        assert service.names(CALLER) == []

    in_world(scenario)


def test_no_name_or_label_of_a_client_makes_the_page_of_metrics_invalid() -> None:
    async def scenario(world: World, service: ClientMetrics) -> None:
        await subscribe(service)
        instance_id, _ = service.get(CALLER, MetricsClient(NOBODY, "x"))
        labelled = [attribute(7, name, message(1, "v")) for name in ("__name__", "1st", "client.id", "é", "ok")]
        sent = metrics(
            metric("a.total.total", gauge=point(1.0, *labelled)),
            metric("a", total=point(2) + integer(2, 2) + integer(3, 1)),
        )
        service.pushed(CALLER, MetricsClient(instance_id, "x"), service.read(sent, Compression.NONE))
        who = f'client_id="x",client_instance_id="{instance_id}"'
        assert shown(service) == [
            ("kafka_client_a", False, {f'{who},ok="v",_="v"': 1.0}),
            ("kafka_client_a_total", True, {who: 2}),
        ]

    in_world(scenario)


def test_clients_series_and_their_text_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_metrics, "CLIENTS_MAX", 3)
    monkeypatch.setattr(client_metrics, "SERIES_BYTES_MAX", 1_000)

    async def scenario(world: World, service: ClientMetrics) -> None:
        await subscribe(service)
        for _ in range(5):
            instance_id, wanted = service.get(CALLER, MetricsClient(NOBODY, "x" * 300))
            push(service, MetricsClient(instance_id, "x" * 300), wanted.id)
        assert service.clients <= 3
        assert service.left_out > 0
        assert sum(len(name) + len(at) for name, _, values in shown(service) for at in values) <= 1_000

    in_world(scenario)


@pytest.mark.parametrize("compression", list(Compression))
def test_compressed_metrics_are_read_and_bombs_are_not(compression: Compression) -> None:
    async def scenario(world: World, service: ClientMetrics) -> None:
        assert len(service.read(bytes(compress(SENT, compression)), compression).points) == 3
        if compression is not Compression.NONE:
            with pytest.raises(DecompressedTooLarge):
                service.read(bytes(compress(bytes(9 << 20), compression)), compression)

    in_world(scenario)
