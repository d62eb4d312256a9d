"""Settings of topics, brokers and groups, described and altered by Kafka's requests on a whole broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.unit.broker.world import World
from tests.unit.gateways.test_partial_failures import kafka_connection

from flymq.gateways.kafka import configs
from flymq.gateways.kafka.config_resources import ResourceType
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode
from flymq.gateways.kafka.settings import Source
from flymq.host.virtual_time import run
from flymq.wire.kafka.apis import Api
from flymq.wire.kafka.codec import encode_response
from flymq.wire.kafka.messages import alter_configs as alteration
from flymq.wire.kafka.messages import describe_configs as description
from flymq.wire.kafka.messages import incremental_alter_configs as increment
from flymq.wire.kafka.messages import list_config_resources as listing

TOPIC, BROKER, GROUP = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
Scenario = Callable[[World, KafkaConnection], Awaitable[None]]


def in_world(scenario: Scenario) -> None:
    async def live() -> None:
        world = World(quick_disk=True)
        node = await world.start()
        await node.admin.create("orders", partitions=1)
        await scenario(world, kafka_connection(node))
        await world.close()

    run(live())


def results_of(
    connection: KafkaConnection, type_: int, name: str, *, synonyms: bool = True
) -> dict[str, description.DescribeConfigsResourceResult]:
    wanted = description.DescribeConfigsResource(type_, name, None)
    request = description.DescribeConfigsRequest([wanted], synonyms, True)
    (result,) = configs.describe_configs(connection, request, 4).results
    assert result.error_code == ErrorCode.NONE, result.error_message
    return {config.name: config for config in result.configs}


def values_of(connection: KafkaConnection, type_: int, name: str) -> dict[str, str | None]:
    return {key: config.value for key, config in results_of(connection, type_, name).items()}


async def alter(
    connection: KafkaConnection,
    type_: int,
    name: str,
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
) -> tuple[int, str | None]:
    resource = increment.AlterConfigsResource(
        type_, name, [increment.AlterableConfig(key, operation, value) for key, operation, value in changes]
    )
    request = increment.IncrementalAlterConfigsRequest([resource], validate_only)
    (response,) = (await configs.incremental_alter_configs(connection, request, 1)).responses
    return response.error_code, response.error_message


DONE = (ErrorCode.NONE, None)


# --- topics


def test_every_setting_of_a_topic_is_stored_and_shown() -> None:
    async def scenario(world: World, connection: KafkaConnection) -> None:
        given = {
            "cleanup.policy": "delete,compact",
            "compression.type": "zstd",
            "message.timestamp.before.max.ms": "1000",
            "min.cleanable.dirty.ratio": "0.255",
            "flush.messages": "7",
            "remote.storage.enable": "true",
            "leader.replication.throttled.replicas": "0:1,1:2",
        }
        assert await alter(connection, TOPIC, "orders", *((key, SET, value) for key, value in given.items())) == DONE
        shown = values_of(kafka_connection(await world.restart()), TOPIC, "orders")
        assert {key: shown[key] for key in given} == {**given, "cleanup.policy": "compact,delete"}

    in_world(scenario)


@pytest.mark.parametrize("name", ["retention.ms", "cleanup.policy", "flush.ms", "x" * 32_000])
def test_a_refusal_that_quotes_a_very_long_value_fits_into_an_answer_of_the_first_version(name: str) -> None:
    async def scenario(world: World, connection: KafkaConnection) -> None:
        code, message = await alter(connection, TOPIC, "orders", (name, SET, "𝄞" * 8_000 + "x" * 24_700))
        assert code == ErrorCode.INVALID_CONFIG
        refused = increment.AlterConfigsResourceResponse(code, message, TOPIC, "orders")
        answer = increment.IncrementalAlterConfigsResponse(responses=[refused])
        assert encode_response(Api.INCREMENTAL_ALTER_CONFIGS, 0, 1, answer)

    in_world(scenario)


def test_defaults_of_the_broker_do_not_say_what_it_may_write_to_its_internal_topics() -> None:
    async def scenario(world: World, connection: KafkaConnection) -> None:
        before = values_of(connection, TOPIC, "__consumer_offsets")
        changes = {
            "compression.type": "gzip",
            "log.message.timestamp.before.max.ms": "0",
            "log.message.timestamp.after.max.ms": "0",
            "message.max.bytes": "100",
            "log.cleanup.policy": "delete",
            "log.retention.ms": "1",
        }
        assert await alter(connection, BROKER, "", *((key, SET, value) for key, value in changes.items())) == DONE
        assert values_of(connection, TOPIC, "orders")["compression.type"] == "gzip"
        assert values_of(connection, TOPIC, "__consumer_offsets") == before

    in_world(scenario)


def test_defaults_of_groups_are_shown_as_the_broker_applies_them() -> None:
    async def scenario(world: World, connection: KafkaConnection) -> None:
        limits, shown = world.node.groups.streams.limits, values_of(connection, GROUP, "billing")
        for type_ in ("consumer", "streams"):
            assert shown[f"{type_}.session.timeout.ms"] == str(limits.consumer_session_timeout_ms)
            assert shown[f"{type_}.heartbeat.interval.ms"] == str(limits.consumer_heartbeat_ms)
        assert shown["streams.num.standby.replicas"] == str(limits.streams_standby_replicas)

    in_world(scenario)


def test_a_group_with_a_name_longer_than_any_client_can_send_gets_no_settings() -> None:
    async def scenario(world: World, connection: KafkaConnection) -> None:
        code, _ = await alter(connection, GROUP, "g" * 40_000, ("consumer.session.timeout.ms", SET, "46000"))
        assert code == ErrorCode.INVALID_REQUEST

    in_world(scenario)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "delete,shred"),
        ("compression.type", "bzip2"),
        ("compression.zstd.level", "23"),
        ("compression.gzip.level", "0"),
        ("flush.messages", "0"),
        ("flush.ms", "soon"),
        ("preallocate", "maybe"),
        ("segment.index.bytes", "3"),
        ("segment.index.bytes", "3000000000"),
        ("local.retention.ms", "-3"),
        ("follower.replication.throttled.replicas", "0:a"),
        ("min.cleanable.dirty.ratio", "1.01"),
        ("message.timestamp.after.max.ms", "-1"),
        ("max.compaction.lag.ms", "0"),
        ("no.such.setting", "1"),
        ("message.format.version", "2.8"),
    ],
)
def test_a_wrong_value_is_refused_with_the_name_of_its_setting_and_changes_nothing(name: str, value: str) -> None:
    async def scenario(world: World, connection: KafkaConnection) -> None:
        before = values_of(connection, TOPIC, "orders")
        code, message = await alter(connection, TOPIC, "orders", ("retention.ms", SET, "1"), (name, SET, value))
        assert code == ErrorCode.INVALID_CONFIG
        assert message is not None and name in message
        assert values_of(connection, TOPIC, "orders") == before

    in_world(scenario)


def test_a_maximum_compaction_lag_below_the_minimum_is_refused() -> None:
    async def scenario(world: World, connection: KafkaConnection) -> None:
        changes = (("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "9"))
        assert (await alter(connection, TOPIC, "orders", *changes))[0] == ErrorCode.INVALID_CONFIG

    in_world(scenario)


def test_lists_grow_and_shrink_and_other_settings_do_not() -> None:
    async def scenario(world: World, connection: KafkaConnection) -> None:
        throttled = "leader.replication.throttled.replicas"
        for operation, value, policy in (
            (APPEND, "compact", "compact,delete"),
            (APPEND, "delete", "compact,delete"),
            (SUBTRACT, "delete", "compact"),
            (SUBTRACT, "compact", ""),
        ):
            assert await alter(connection, TOPIC, "orders", ("cleanup.policy", operation, value)) == DONE
            assert values_of(connection, TOPIC, "orders")["cleanup.policy"] == policy
        for value in ("0:1", "1:1"):
            assert await alter(connection, TOPIC, "orders", (throttled, APPEND, value)) == DONE
        assert values_of(connection, TOPIC, "orders")[throttled] == "0:1,1:1"
        assert await alter(connection, TOPIC, "orders", ("no.such", DELETE, None)) == DONE
        code, message = await alter(connection, TOPIC, "orders", ("retention.ms", APPEND, "1"))
        assert code == ErrorCode.INVALID_CONFIG and message is not None and "retention.ms" in message

    in_world(scenario)


def test_a_topic_shows_where_its_values_come_from() -> None:
    async def scenario(world: World, connection: KafkaConnection) -> None:
        await alter(connection, BROKER, "", ("log.retention.ms", SET, "5000"))
        await alter(connection, TOPIC, "orders", ("segment.ms", SET, "60000"))
        found = results_of(connection, TOPIC, "orders")
        assert found["retention.ms"].value == "5000"
        assert found["retention.ms"].config_source == Source.ALL_BROKERS
        assert [(each.name, each.value, each.source) for each in found["retention.ms"].synonyms] == [
            ("log.retention.ms", "5000", Source.ALL_BROKERS),
            ("log.retention.ms", "604800000", Source.DEFAULT),
        ]
        assert found["segment.ms"].config_source == Source.TOPIC
        assert found["segment.ms"].synonyms[0].name == "segment.ms"
        assert found["segment.bytes"].config_source == Source.DEFAULT
        assert all(config.documentation for config in found.values())
        assert not results_of(connection, TOPIC, "orders", synonyms=False)["segment.ms"].synonyms

    in_world(scenario)


def test_replacing_all_settings_resets_those_that_are_not_given() -> None:
    async def scenario(world: World, connection: KafkaConnection) -> None:
        await alter(connection, TOPIC, "orders", ("segment.ms", SET, "60000"), ("flush.ms", SET, "1"))
        given = [alteration.AlterableConfig("flush.messages", "2")]
        resource = alteration.AlterConfigsResource(TOPIC, "orders", given)
        for validate_only, expected in ((True, ("60000", "1")), (False, ("604800000", str((1 << 63) - 1)))):
            request = alteration.AlterConfigsRequest([resource], validate_only)
            (response,) = (await configs.alter_configs(connection, request, 2)).responses
            assert response.error_code == ErrorCode.NONE
            shown = values_of(connection, TOPIC, "orders")
            assert (shown["segment.ms"], shown["flush.ms"]) == expected
        assert values_of(connection, TOPIC, "orders")["flush.messages"] == "2"

    in_world(scenario)


# --- brokers


def test_a_default_set_for_all_brokers_acts_on_existing_topics_and_outlives_a_restart() -> None:
    async def scenario(world: World, connection: KafkaConnection) -> None:
        assert await alter(connection, BROKER, "", ("log.segment.bytes", SET, "5000")) == DONE
        assert world.partition("orders").log.config.segment_bytes == 5000
        node = await world.restart()
        assert world.partition("orders").log.config.segment_bytes == 5000
        again = kafka_connection(node)
        assert values_of(again, BROKER, "") == {"log.segment.bytes": "5000"}
        assert results_of(again, BROKER, "0")["log.segment.bytes"].config_source == Source.ALL_BROKERS
        assert await alter(again, BROKER, "", ("log.segment.bytes", DELETE, None)) == DONE
        assert world.partition("orders").log.config.segment_bytes == 128 << 20
        assert values_of(again, BROKER, "") == {}

    in_world(scenario)


def test_a_default_set_for_one_broker_comes_before_that_for_all() -> None:
    async def scenario(world: World, connection: KafkaConnection) -> None:
        await alter(connection, BROKER, "", ("message.max.bytes", SET, "1000"))
        await alter(connection, BROKER, "0", ("message.max.bytes", SET, "2000"))
        assert world.partition("orders").log.config.max_message_bytes == 2000
        found = results_of(connection, BROKER, "0")["message.max.bytes"]
        assert (found.value, found.config_source) == ("2000", Source.BROKER)
        assert [synonym.value for synonym in found.synonyms] == ["2000", "1000", str(1 << 20)]

    in_world(scenario)


def test_a_setting_of_a_topic_comes_before_the_brokers() -> None:
    async def scenario(world: World, connection: KafkaConnection) -> None:
        await alter(connection, TOPIC, "orders", ("segment.bytes", SET, "2000"))
        await alter(connection, BROKER, "", ("log.segment.bytes", SET, "5000"))
        assert world.partition("orders").log.config.segment_bytes == 2000

    in_world(scenario)


def test_a_broker_shows_what_tools_look_for() -> None:
    async def scenario(world: World, connection: KafkaConnection) -> None:
        found = results_of(connection, BROKER, "0")
        expected = {
            "broker.id": "0",
            "log.dirs": "/data",
            "default.replication.factor": "1",
            "delete.topic.enable": "true",
            "auto.create.topics.enable": "false",
            "offsets.topic.num.partitions": "2",
            "transaction.max.timeout.ms": "3600000",
            "offsets.retention.minutes": "10080",
        }
        assert {name: found[name].value for name in expected} == expected
        assert found["advertised.listeners"].value is not None
        assert found["log.dirs"].config_source == Source.BROKER_FILE
        assert found["num.partitions"].read_only and not found["log.retention.ms"].read_only

    in_world(scenario)


def test_what_cannot_change_at_run_time_and_what_is_unknown_are_refused() -> None:
    async def scenario(world: World, connection: KafkaConnection) -> None:
        for broker, name, code in (
            ("0", "num.partitions", ErrorCode.INVALID_REQUEST),
            ("0", "no.such.setting", ErrorCode.INVALID_CONFIG),
            ("7", "log.retention.ms", ErrorCode.INVALID_REQUEST),
        ):
            assert (await alter(connection, BROKER, broker, (name, SET, "1")))[0] == code
        refused, message = await alter(connection, BROKER, "", ("log.retention.ms", SET, "soon"))
        assert refused == ErrorCode.INVALID_CONFIG and message is not None and "retention.ms" in message

    in_world(scenario)


# --- groups


def test_settings_of_a_group_are_stored_checked_and_shown() -> None:
    async def scenario(world: World, connection: KafkaConnection) -> None:
        timeout, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
        assert values_of(connection, GROUP, "billing")[timeout] == "2000"
        assert await alter(connection, GROUP, "billing", (timeout, SET, "50000"), (heartbeat, SET, "500")) == DONE
        for name, value in ((timeout, "400"), (heartbeat, "50000"), ("no.such", "1"), ("share.isolation.level", "x")):
            code, message = await alter(connection, GROUP, "billing", (name, SET, value))
            assert code == ErrorCode.INVALID_CONFIG and message is not None and name in message
        assert (await alter(connection, GROUP, "", (timeout, SET, "50000")))[0] == ErrorCode.INVALID_REQUEST
        again = kafka_connection(await world.restart())
        found = results_of(again, GROUP, "billing")
        assert (found[timeout].value, found[timeout].config_source) == ("50000", Source.GROUP)
        assert values_of(again, GROUP, "shipping")[timeout] == "2000"

    in_world(scenario)


# --- requests


@pytest.mark.parametrize(
    ("type_", "name", "setting", "value"),
    [
        (TOPIC, "orders", "flush.ms", "1"),
        (BROKER, "", "log.retention.ms", "1"),
        (BROKER, "0", "log.retention.ms", "1"),
        (GROUP, "billing", "consumer.session.timeout.ms", "5000"),
    ],
)
def test_a_change_that_is_only_validated_changes_nothing(type_: int, name: str, setting: str, value: str) -> None:
    async def scenario(world: World, connection: KafkaConnection) -> None:
        before = values_of(connection, type_, name)
        assert await alter(connection, type_, name, (setting, SET, value), validate_only=True) == DONE
        wrong = await alter(connection, type_, name, (setting, SET, "soon"), validate_only=True)
        assert wrong[0] == ErrorCode.INVALID_CONFIG
        assert values_of(connection, type_, name) == before

    in_world(scenario)


def test_a_request_names_each_resource_and_each_setting_once_and_gives_values() -> None:
    async def scenario(world: World, connection: KafkaConnection) -> None:
        resource = increment.AlterConfigsResource(TOPIC, "orders", [increment.AlterableConfig("flush.ms", SET, "1")])
        request = increment.IncrementalAlterConfigsRequest([resource, resource])
        responses = (await configs.incremental_alter_configs(connection, request, 1)).responses
        assert [response.error_code for response in responses] == [ErrorCode.INVALID_REQUEST] * 2
        twice = (("flush.ms", SET, "1"), ("flush.ms", DELETE, None))
        assert (await alter(connection, TOPIC, "orders", *twice))[0] == ErrorCode.INVALID_REQUEST
        assert (await alter(connection, TOPIC, "orders", ("flush.ms", SET, None)))[0] == ErrorCode.INVALID_REQUEST

    in_world(scenario)


def test_what_has_settings_is_listed_by_type() -> None:
    async def scenario(world: World, connection: KafkaConnection) -> None:
        await alter(connection, GROUP, "billing", ("consumer.session.timeout.ms", SET, "5000"))

        def listed(types: list[int], version: int = 1) -> tuple[int, list[tuple[int, str]]]:
            request = listing.ListConfigResourcesRequest(types)
            response = configs.list_config_resources(connection, request, version)
            return response.error_code, [(each.resource_type, each.resource_name) for each in response.config_resources]

        assert listed([TOPIC, GROUP]) == (
            0,
            [(TOPIC, "__consumer_offsets"), (TOPIC, "__transaction_state"), (TOPIC, "orders"), (GROUP, "billing")],
        )
        assert {type_ for type_, _ in listed([])[1]} >= {TOPIC, BROKER, GROUP}
        assert listed([], version=0) == (0, [])
        assert listed([77]) == (ErrorCode.UNSUPPORTED_VERSION, [])

    in_world(scenario)
