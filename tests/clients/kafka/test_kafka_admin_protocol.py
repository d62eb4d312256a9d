"""What Kafka's tools ask a broker, in its newest versions. The expected answers are those of Apache Kafka 4.3."""

import datetime
import shutil
import uuid
from importlib import import_module
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.clients.kafka.raw import RawKafka

from flymq import FlyMQClient
from flymq.record.batch import encode_batch
from flymq.testing import running_broker
from flymq.wire.kafka.apis import CODECS, Api

MS = datetime.timedelta(milliseconds=1)
KAFKA_4_3 = {
    0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6), 11: (0, 9),
    12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 17: (0, 1), 18: (0, 4), 19: (2, 7),
    20: (1, 6), 21: (0, 2), 22: (0, 5), 23: (2, 4), 24: (0, 5), 25: (0, 4), 26: (0, 5), 27: (1, 2),
    28: (0, 5), 32: (1, 4), 33: (0, 2), 35: (1, 5), 36: (0, 2), 37: (0, 3), 42: (0, 2), 43: (0, 2),
    44: (0, 1), 45: (0, 1), 46: (0, 0), 47: (0, 0), 55: (0, 2), 57: (0, 2), 60: (0, 2), 61: (0, 0),
    65: (0, 0), 66: (0, 2), 68: (0, 1), 69: (0, 1), 71: (0, 0), 72: (0, 0), 74: (0, 1), 75: (0, 0),
    88: (0, 0), 89: (0, 0),
}  # fmt: skip
"""Those of its response to ApiVersions that a client may ask a broker for; Produce is served from 3 on."""


@pytest.fixture
def raw(broker):
    with RawKafka(broker.port) as connected:
        yield connected


@pytest.fixture
def topic_id(broker, topic) -> uuid.UUID:
    with FlyMQClient(broker.address) as client:
        client.create_topic(topic, partitions=1)
    with RawKafka(broker.port) as raw:
        return describe(raw, topic).topic_id


def schema(api: str, version: int) -> tuple[Any, Any]:
    return import_module(f"kio.schema.{api}.v{version}.request"), import_module(f"kio.schema.{api}.v{version}.response")


def describe(raw: RawKafka, name: str) -> Any:
    request, response = schema("metadata", 12)
    asked = request.MetadataRequest(
        topics=(request.MetadataRequestTopic(topic_id=None, name=name),),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    return raw.ask(asked, response.MetadataResponse).topics[0]


def test_no_version_is_served_that_kafka_does_not_serve():
    for api, versions in CODECS.items():
        first, last = KAFKA_4_3[api]
        assert versions.last <= last, api
        assert versions.first == (3 if api is Api.PRODUCE else first), api


# --- topics by id ---------------------------------------------------------------------------------------------------


def produce_to(topic_id: uuid.UUID | None, number: int = 0) -> Any:
    request, _ = schema("produce", 13)
    batch = bytes(encode_batch([(None, b"tea")], timestamp_ms=5))
    part = request.PartitionProduceData(index=number, records=batch)
    return request.ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout=1000 * MS,
        topic_data=(request.TopicProduceData(topic_id=topic_id, partition_data=(part,)),),
    )


def test_records_are_written_and_read_by_the_id_of_their_topic(raw, topic, topic_id):
    _, response = schema("produce", 13)
    told = raw.ask(produce_to(topic_id), response.ProduceResponse).responses[0]
    assert (told.topic_id, told.partition_responses[0].error_code, told.partition_responses[0].base_offset) == (
        topic_id,
        ErrorCode.none,
        0,
    )
    request, response = schema("fetch", 18)
    part = request.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    asked = request.FetchRequest(
        max_wait=0 * MS,
        min_bytes=1,
        session_epoch=-1,
        topics=(request.FetchTopic(topic_id=topic_id, partitions=(part,)),),
        forgotten_topics_data=(),
        rack_id="",
    )
    read = raw.ask(asked, response.FetchResponse).responses[0]
    assert (read.topic_id, b"tea" in read.partitions[0].records) == (topic_id, True)


def test_a_batch_for_an_id_that_no_topic_has_is_refused_and_not_one_for_another_partition(raw, topic_id):
    _, response = schema("produce", 13)
    for asked, number, code in (
        (uuid.uuid4(), 0, ErrorCode.unknown_topic_id),
        (None, 0, ErrorCode.unknown_topic_id),
        (topic_id, 7, ErrorCode.unknown_topic_or_partition),
    ):
        told = raw.ask(produce_to(asked, number), response.ProduceResponse).responses[0]
        assert (told.topic_id, told.partition_responses[0].error_code) == (asked, code)


def test_a_batch_for_a_topic_that_was_created_again_does_not_get_into_the_new_one(broker, raw, topic, topic_id):
    with FlyMQClient(broker.address) as client:
        client.delete_topic(topic)
        client.create_topic(topic, partitions=1)
    _, response = schema("produce", 13)
    told = raw.ask(produce_to(topic_id), response.ProduceResponse).responses[0].partition_responses[0]
    assert told.error_code is ErrorCode.unknown_topic_id


# --- offsets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "since", "offset"),
    [(-1, 6, 1), (-2, 6, 0), (-3, 7, 0), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1), (-7, 99, 0)],
)
def test_each_position_is_found_from_its_version_on(raw, topic, topic_id, position, since, offset):
    raw.ask(produce_to(topic_id), schema("produce", 13)[1].ProduceResponse)
    for version in (6, 7, 8, 9, 10, 11):
        request, response = schema("list_offsets", version)
        part = request.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=position)
        timeout = {"timeout": 1000 * MS} if version >= 10 else {}
        topics = (request.ListOffsetsTopic(name=topic, partitions=(part,)),)
        asked = request.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics, **timeout)
        told = raw.ask(asked, response.ListOffsetsResponse).topics[0].partitions[0]
        expected = (ErrorCode.none, offset) if version >= since else (ErrorCode.unsupported_version, -1)
        assert (told.error_code, told.offset) == expected, version


# --- the broker -----------------------------------------------------------------------------------------------------


def test_the_log_directory_has_a_size_and_room(raw, topic, topic_id):
    request, response = schema("describe_log_dirs", 5)
    asked = request.DescribeLogDirsRequest(topics=(request.DescribableLogDirTopic(topic=topic, partitions=(0,)),))
    (told,) = raw.ask(asked, response.DescribeLogDirsResponse).results
    assert told.log_dir.startswith("/")
    assert 0 < told.usable_bytes < told.total_bytes
    assert not told.is_cordoned
    assert [each.name for each in told.topics] == [topic]


def test_the_quorum_of_the_metadata_is_this_broker(broker, raw):
    request, response = schema("describe_quorum", 2)

    def ask(name: str, number: int) -> Any:
        part = request.PartitionData(partition_index=number)
        asked = request.DescribeQuorumRequest(topics=(request.TopicData(topic_name=name, partitions=(part,)),))
        return raw.ask(asked, response.DescribeQuorumResponse)

    told = ask("__cluster_metadata", 0)
    (quorum,) = told.topics[0].partitions
    assert quorum.error_code is ErrorCode.none
    assert [voter.replica_id for voter in quorum.current_voters] == [quorum.leader_id] == [told.nodes[0].node_id]
    assert told.nodes[0].listeners[0].port == broker.port
    assert quorum.high_watermark > 0
    for name, number in (("__cluster_metadata", 1), ("orders", 0)):
        (other,) = ask(name, number).topics[0].partitions
        assert other.error_code is ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize(
    ("feature", "level", "code"),
    [
        ("transaction.version", 2, ErrorCode.none),
        ("transaction.version", 1, ErrorCode.invalid_update_version),
        ("transaction.version", 3, ErrorCode.invalid_update_version),
        ("bogus", 1, ErrorCode.invalid_update_version),
    ],
)
def test_features_keep_their_levels(raw, feature, level, code):
    for version in (0, 1, 2):
        request, response = schema("update_features", version)
        downgrades = {"allow_downgrade": False} if version == 0 else {}
        update = request.FeatureUpdateKey(feature=feature, max_version_level=level, **downgrades)
        told = raw.ask(
            request.UpdateFeaturesRequest(timeout=1000 * MS, feature_updates=(update,)), response.UpdateFeaturesResponse
        )
        assert told.error_code is code
        assert (told.error_message is None) == (code is ErrorCode.none)


# --- transactions ---------------------------------------------------------------------------------------------------


def init_producer(raw: RawKafka, name: str, *, producer_id: int = -1, epoch: int = -1) -> Any:
    request, response = schema("init_producer_id", 5)
    asked = request.InitProducerIdRequest(
        transactional_id=name, transaction_timeout=60_000 * MS, producer_id=producer_id, producer_epoch=epoch
    )
    return raw.ask(asked, response.InitProducerIdResponse)


def produce_in_transaction(raw: RawKafka, name: str, topic_id: uuid.UUID, producer_id: int, epoch: int) -> ErrorCode:
    request, response = schema("produce", 13)
    batch = encode_batch(
        [(None, b"tea")], producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True
    )
    part = request.PartitionProduceData(index=0, records=bytes(batch))
    asked = request.ProduceRequest(
        transactional_id=name,
        acks=-1,
        timeout=1000 * MS,
        topic_data=(request.TopicProduceData(topic_id=topic_id, partition_data=(part,)),),
    )
    code = raw.ask(asked, response.ProduceResponse).responses[0].partition_responses[0].error_code
    assert isinstance(code, ErrorCode)
    return code


def test_a_wrong_producer_id_is_told_from_a_wrong_epoch(raw, topic, topic_id):
    name = f"pay-{topic}"
    known = init_producer(raw, name)
    wrong = known.producer_id + 1000
    end, ended = schema("end_txn", 5)
    add, added = schema("add_partitions_to_txn", 3)
    for producer_id, epoch, code in (
        (wrong, 0, ErrorCode.invalid_producer_id_mapping),
        (known.producer_id, known.producer_epoch + 1, ErrorCode.producer_fenced),
    ):
        asked = end.EndTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=True)
        assert raw.ask(asked, ended.EndTxnResponse).error_code is code
        asked = add.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=(add.AddPartitionsToTxnTopic(name=topic, partitions=(0,)),),
        )
        told = raw.ask(asked, added.AddPartitionsToTxnResponse).results_by_topic_v3_and_below[0]
        assert told.results_by_partition[0].partition_error_code is code
    assert produce_in_transaction(raw, name, topic_id, wrong, 0) is ErrorCode.invalid_producer_id_mapping
    assert init_producer(raw, name, producer_id=wrong, epoch=0).error_code is ErrorCode.producer_fenced


def test_transactions_are_listed_by_a_pattern(raw, topic):
    for name in (f"{topic}-a", f"{topic}-ab", f"{topic}-b"):
        init_producer(raw, name)
    request, response = schema("list_transactions", 2)

    def names(pattern: str | None) -> Any:
        asked = request.ListTransactionsRequest(
            state_filters=(), producer_id_filters=(), duration_filter=-1, transactional_id_pattern=pattern
        )
        told = raw.ask(asked, response.ListTransactionsResponse)
        return told.error_code, {state.transactional_id for state in told.transaction_states}

    assert names(f"{topic}-a") == (ErrorCode.none, {f"{topic}-a"})
    assert names(f"{topic}-a.*") == (ErrorCode.none, {f"{topic}-a", f"{topic}-ab"})
    for everything in (None, ""):
        assert names(everything)[1] >= {f"{topic}-a", f"{topic}-ab", f"{topic}-b"}
    for pattern in ("(", "[z-a]", "a(?=b)"):
        assert names(pattern) == (ErrorCode.invalid_regular_expression, set())


def test_an_administrator_aborts_a_transaction_by_its_producer(raw, topic, topic_id):
    name = f"pay-{topic}"
    known = init_producer(raw, name)
    assert produce_in_transaction(raw, name, topic_id, known.producer_id, known.producer_epoch) is ErrorCode.none
    request, response = schema("write_txn_markers", 2)

    def mark(*, commit: bool = False, epoch: int = known.producer_epoch, name: str = topic) -> ErrorCode:
        marked = request.WritableTxnMarker(
            producer_id=known.producer_id,
            producer_epoch=epoch,
            transaction_result=commit,
            topics=(request.WritableTxnMarkerTopic(name=name, partition_indexes=(0,)),),
            coordinator_epoch=0,
        )
        told = raw.ask(request.WriteTxnMarkersRequest(markers=(marked,)), response.WriteTxnMarkersResponse)
        code = told.markers[0].topics[0].partitions[0].error_code
        assert isinstance(code, ErrorCode)
        return code

    assert mark(commit=True) is ErrorCode.invalid_request, "only the coordinator may commit"
    assert mark(epoch=-1) is ErrorCode.invalid_producer_epoch
    assert mark(name="nobodys") is ErrorCode.unknown_topic_or_partition
    assert mark(name="__offsets") is ErrorCode.invalid_topic_exception
    assert mark() is ErrorCode.none
    end, ended = schema("end_txn", 5)
    asked = end.EndTxnRequest(
        transactional_id=name, producer_id=known.producer_id, producer_epoch=known.producer_epoch, committed=True
    )
    assert raw.ask(asked, ended.EndTxnResponse).error_code is ErrorCode.transaction_abortable


# --- partitions offline ----------------------------------------------------------------------------------------------


def test_a_partition_that_is_offline_has_its_replica_among_the_offline_ones(tmp_path):
    with running_broker(tmp_path) as broker, FlyMQClient(broker.address) as client:
        client.create_topic("orders", partitions=2)
        for number in range(2):
            client.produce_batch("orders", [b"tea"] * 3, partition=number)
    (folder,) = tmp_path.glob("topics/orders~*/1")
    shutil.rmtree(folder)
    with running_broker(tmp_path) as broker, RawKafka(broker.port) as raw:
        told = describe(raw, "orders").partitions
        assert [part.offline_replicas for part in told] == [(), (told[1].leader_id,)]
        request, response = schema("describe_topic_partitions", 0)
        asked = request.DescribeTopicPartitionsRequest(
            topics=(request.TopicRequest(name="orders"),), response_partition_limit=2000, cursor=None
        )
        (page,) = raw.ask(asked, response.DescribeTopicPartitionsResponse).topics
        assert [part.offline_replicas for part in page.partitions] == [(), (told[1].leader_id,)]


# --- topics ---------------------------------------------------------------------------------------------------------


def test_a_name_that_collides_with_another_is_refused(broker, raw):
    with FlyMQClient(broker.address) as client:
        client.create_topic("a.x")
    request, response = schema("create_topics", 7)
    wanted = request.CreatableTopic(name="a_x", num_partitions=1, replication_factor=1, assignments=(), configs=())
    for validate_only in (True, False):
        asked = request.CreateTopicsRequest(topics=(wanted,), timeout=5000 * MS, validate_only=validate_only)
        (told,) = raw.ask(asked, response.CreateTopicsResponse).topics
        assert told.error_code is ErrorCode.invalid_topic_exception
        assert "a.x" in told.error_message


@pytest.mark.parametrize(
    ("kafkas", "ours"), [("__consumer_offsets", "__offsets"), ("__transaction_state", "__transactions")]
)
def test_internal_topics_have_kafkas_names_and_are_found_under_their_own_too(raw, kafkas, ours):
    found, real = describe(raw, kafkas), describe(raw, ours)
    assert real.name == ours
    assert (found.name, found.is_internal, found.topic_id) == (kafkas, True, real.topic_id)
    assert found.partitions == real.partitions
    request, response = schema("describe_topic_partitions", 0)
    asked = request.DescribeTopicPartitionsRequest(
        topics=(request.TopicRequest(name=kafkas),), response_partition_limit=2000, cursor=None
    )
    (page,) = raw.ask(asked, response.DescribeTopicPartitionsResponse).topics
    assert (page.name, len(page.partitions)) == (kafkas, len(real.partitions))
    request, response = schema("list_offsets", 11)
    part = request.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-2)
    topics = (request.ListOffsetsTopic(name=kafkas, partitions=(part,)),)
    asked = request.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics, timeout=1000 * MS)
    (told,) = raw.ask(asked, response.ListOffsetsResponse).topics
    assert (told.name, told.partitions[0].error_code) == (kafkas, ErrorCode.none)
    request, response = schema("metadata", 12)
    asked = request.MetadataRequest(
        topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    names = [each.name for each in raw.ask(asked, response.MetadataResponse).topics]
    assert kafkas in names
    assert ours not in names
