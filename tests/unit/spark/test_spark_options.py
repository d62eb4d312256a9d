"""Options are understood by their own names and by those of Spark's Kafka connector; a wrong one is named."""

from __future__ import annotations

import pytest

from flymq import generate_key
from flymq.model.delivery import Acks, Isolation
from flymq.model.errors import InvalidOption, InvalidSetting
from flymq.record.compression import Compression
from flymq.spark.options import ReadOptions, parse_read_options, parse_write_options
from flymq.spark.source.groups import group_of


def read(**options: str) -> ReadOptions:
    return parse_read_options({"subscribe": "orders", **options})


def test_case_and_underscores_of_a_name_do_not_matter() -> None:
    assert read(MAXOFFSETSPERTRIGGER="5").max_offsets_per_trigger == 5
    assert read(max_offsets_per_trigger="5").max_offsets_per_trigger == 5
    assert read(maxoffsetspertrigger="5").max_offsets_per_trigger == 5


def test_names_of_the_kafka_connector_mean_the_same() -> None:
    options = parse_read_options(
        {
            "kafka.bootstrap.servers": "a:1,b:2",
            "kafka.group.id": "billing",
            "kafka.isolation.level": "read_uncommitted",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": 'org.PlainLoginModule required username="eve" password="s3cret";',
            "kafka.ssl.truststore.location": "/ca.pem",
            "kafkaConsumer.pollTimeoutMs": "512",
            "subscribe": "orders, refunds",
            "failOnDataLoss": "false",
        }
    )
    connection = options.connection()
    assert connection.addresses == (("a", 1), ("b", 2))
    assert (connection.username, connection.password) == ("eve", "s3cret")
    assert connection.tls_enabled and connection.tls_ca_file == "/ca.pem"
    assert options.subscribe == ("orders", "refunds")
    assert options.group_id == "billing"
    assert options.isolation is Isolation.READ_UNCOMMITTED
    assert not options.fail_on_data_loss
    written = parse_write_options({"kafka.acks": "all", "kafka.compression.type": "zstd", "kafka.linger.ms": "5"})
    assert (written.acks, written.compression) == (Acks.ALL, Compression.ZSTD)


def test_a_plain_name_wins_over_that_of_kafka() -> None:
    assert read(**{"kafka.group.id": "theirs", "group_id": "ours"}).group_id == "ours"


def test_an_unknown_option_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(InvalidOption, match="unknown option 'startingOffset' for reading") as refused:
        read(startingOffset="earliest")
    assert "Did you mean startingOffsets?" in refused.value.hint
    with pytest.raises(InvalidOption, match="unknown option 'subscribe' for writing"):
        parse_write_options({"subscribe": "orders"})
    with pytest.raises(InvalidOption, match=r"kafka.no.such.thing is not supported"):
        read(**{"kafka.no.such.thing": "1"})


@pytest.mark.parametrize("name", ["kafka.auto.offset.reset", "kafka.key.deserializer", "kafka.enable.auto.commit"])
def test_what_the_kafka_connector_refuses_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(InvalidOption, match=f"{name} cannot be set: "):
        read(**{name: "x"})


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("maxOffsetsPerTrigger", "many", "It takes an integer"),
        ("maxOffsetsPerTrigger", "0", "It takes an integer"),
        ("failOnDataLoss", "yes", "It takes true, false"),
        ("isolation", "snapshot", "It takes read_committed, read_uncommitted"),
        ("maxTriggerDelay", "5 moons", "It takes 15m, 30s, 500ms"),
        ("startingOffsetsByTimestampStrategy", "guess", "It takes error, latest"),
        ("groupId", "", "It takes text"),
    ],
)
def test_a_wrong_value_is_refused_with_what_the_option_takes(name: str, value: str, why: str) -> None:
    with pytest.raises(InvalidOption, match=f"invalid value {value!r} for the option {name}") as refused:
        read(**{name: value})
    assert why in refused.value.hint


@pytest.mark.parametrize(
    ("text", "ms"), [("15m", 900_000), ("30s", 30_000), ("500ms", 500), ("7", 7), ("1 h", 3_600_000)]
)
def test_a_delay_is_written_as_spark_writes_times(text: str, ms: int) -> None:
    assert read(maxTriggerDelay=text).max_trigger_delay == ms


def test_exactly_one_option_says_what_to_read() -> None:
    with pytest.raises(InvalidOption, match="not none of them"):
        parse_read_options({})
    with pytest.raises(InvalidOption, match="not assign and subscribe"):
        read(assign='{"orders": [0]}')


def test_a_named_write_has_both_a_name_and_a_number() -> None:
    assert parse_write_options({"txnAppId": "nightly", "txnVersion": "0"}).txn_version == 0
    with pytest.raises(InvalidOption, match="together"):
        parse_write_options({"txnVersion": "1"})
    with pytest.raises(InvalidOption, match="colon"):
        parse_write_options({"txnAppId": "a:b", "txnVersion": "1"})


def test_a_group_has_the_name_that_is_given_or_one_made_of_the_topics() -> None:
    assert group_of(read()) is None
    assert group_of(read(groupId="g", groupIdPrefix="p")) == "g"
    assert group_of(read(groupIdPrefix="p")) == "p-orders"
    assert group_of(parse_read_options({"assign": '{"b": [0, 1], "a": [1]}', "groupIdPrefix": "p"})) == "p-a-b"
    assert group_of(parse_read_options({"subscribePattern": "o.*", "groupIdPrefix": "p"})) == "p-pattern"


def test_secrets_are_not_shown() -> None:
    key = generate_key()
    options = read(username="eve", password="s3cret", encryptionKey=key, decryptionKeys=key)
    assert "s3cret" not in repr(options)
    assert key not in repr(options)
    with pytest.raises(InvalidSetting) as refused:
        read(encryptionKey="tooshort").cipher()
    assert "tooshort" not in str(refused.value)


def test_a_key_can_come_from_a_file(tmp_path) -> None:
    file = tmp_path / "key"
    file.write_text(generate_key() + "\n")
    cipher = read(encryptionKeyFile=str(file)).cipher()
    assert cipher is not None
    assert cipher.decrypt(*cipher.encrypt(b"x", ()))[0] == b"x"
    with pytest.raises(InvalidOption, match="encryptionKeyFile cannot be used"):
        read(encryptionKeyFile=str(tmp_path / "none")).cipher()


def test_spark_may_pass_on_what_is_for_itself() -> None:
    parse_write_options({"topic": "orders", "checkpointLocation": "/tmp/x", "queryName": "q"})
