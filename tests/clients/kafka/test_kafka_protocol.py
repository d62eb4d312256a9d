"""What real clients rarely show: versions, order, sessions, logins, throttling, and bytes that are no request."""

import datetime
import random
import socket
import struct
import uuid
from contextlib import suppress

import confluent_kafka
import pytest
from kio.schema.api_versions import v0 as versions_v0
from kio.schema.api_versions import v3 as versions_v3
from kio.schema.describe_topic_partitions import v0 as describe_v0
from kio.schema.errors import ErrorCode
from kio.schema.fetch import v12 as fetch_v12
from kio.schema.fetch import v16 as fetch_v16
from kio.schema.metadata import v12 as metadata_v12
from kio.schema.offset_commit import v10 as commit_v10
from kio.schema.offset_fetch import v10 as offset_fetch_v10
from kio.schema.offset_for_leader_epoch import v4 as epoch_v4
from kio.schema.produce import v9 as produce_v9
from kio.schema.sasl_handshake import v0 as handshake_v0
from tests.clients.kafka.raw import RawKafka

from flymq import FlyMQClient
from flymq.broker.access.passwords import hash_password
from flymq.gateways.kafka.handlers import HANDLERS
from flymq.record.batch import encode_batch
from flymq.record.header import parse_header
from flymq.testing import running_broker
from flymq.wire.kafka.apis import CODECS, Api

MS = datetime.timedelta(milliseconds=1)


@pytest.fixture
def raw(broker):
    with RawKafka(broker.port) as connected:
        yield connected


def metadata_of(raw: RawKafka, topic: str):
    request = metadata_v12.request.MetadataRequest(
        topics=(metadata_v12.request.MetadataRequestTopic(topic_id=None, name=topic),),
        allow_auto_topic_creation=True,
        include_topic_authorized_operations=False,
    )
    return raw.ask(request, metadata_v12.response.MetadataResponse).topics[0]


def produce(topic: str, value: bytes = b"x", *, acks: int = 1, batch: bytes | None = None):
    data = bytes(encode_batch([(None, value)], timestamp_ms=1)) if batch is None else batch
    partition = produce_v9.request.PartitionProduceData(index=0, records=data)
    return produce_v9.request.ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout=1000 * MS,
        topic_data=(produce_v9.request.TopicProduceData(name=topic, partition_data=(partition,)),),
    )


def fetch(topic: str, offset: int = 0, *, wait_ms: int = 0, session: int = 0, epoch: int = -1, names: bool = True):
    partition = fetch_v12.request.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = (fetch_v12.request.FetchTopic(topic=topic, partitions=(partition,)),) if names else ()
    return fetch_v12.request.FetchRequest(
        replica_id=-1,
        max_wait=wait_ms * MS,
        min_bytes=1,
        session_id=session,
        session_epoch=epoch,
        topics=topics,
        forgotten_topics_data=(),
        rack_id="",
    )


def ask_produce(raw: RawKafka, request):
    response = raw.ask(request, produce_v9.response.ProduceResponse)
    return response.responses[0].partition_responses[0]


# --- versions -------------------------------------------------------------------------------------------------------


def test_the_versions_told_are_those_served_and_produce_begins_at_zero(raw):
    request = versions_v3.request.ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    told = raw.ask(request, versions_v3.response.ApiVersionsResponse)
    found = {each.api_key: (each.min_version, each.max_version) for each in told.api_keys}
    assert found == {api: CODECS[Api(api)] for api in HANDLERS} | {Api.PRODUCE: (0, CODECS[Api.PRODUCE].last)}


def test_an_unknown_version_of_apiversions_is_answered_so_that_everybody_can_read_it(raw):
    raw.send_frame(struct.pack(">hhih", 18, 99, 7, -1) + b"whatever a later version may say")
    told = raw.receive(versions_v0.response.ApiVersionsResponse)
    assert told.error_code is ErrorCode.unsupported_version
    assert Api.API_VERSIONS in {each.api_key for each in told.api_keys}
    raw.ask(versions_v0.request.ApiVersionsRequest(), versions_v0.response.ApiVersionsResponse)


@pytest.mark.parametrize(("api", "version"), [(Api.FETCH, 99), (Api.METADATA, -1), (4, 0), (999, 0), (-7, 0)])
def test_another_request_that_is_not_served_ends_the_connection_and_the_broker_lives(broker, raw, topic, api, version):
    metadata_of(raw, topic)
    raw.send_frame(struct.pack(">hhih", api, version, 7, -1) + bytes(20))
    assert raw.is_closed()
    with RawKafka(broker.port) as fresh:
        assert metadata_of(fresh, topic).error_code is ErrorCode.none


@pytest.mark.parametrize("version", [0, 1, 2])
def test_produce_of_an_old_version_gets_an_error_and_the_connection_goes_on(raw, topic, version):
    topics = struct.pack(">ih1sii4s", 1, 1, b"t", 1, 3, b"\0\0\0\0")
    raw.send_frame(struct.pack(">hhih", 0, version, 7, -1) + struct.pack(">hi", 1, 1000) + topics)
    times = struct.pack(">q", -1) if version == 2 else b""
    throttle = struct.pack(">i", 0) if version >= 1 else b""
    expected = struct.pack(">iih1siihq", 7, 1, 1, b"t", 1, 3, ErrorCode.unsupported_version, -1) + times + throttle
    assert raw.receive_frame() == expected
    assert metadata_of(raw, topic).error_code is ErrorCode.none


# --- order ----------------------------------------------------------------------------------------------------------


def test_responses_keep_the_order_of_the_requests_behind_a_fetch_that_waits(broker, raw, topic):
    metadata_of(raw, topic)
    raw.send(fetch(topic, wait_ms=20_000))
    raw.send(produce(topic, acks=1))
    fetched = raw.receive(fetch_v12.response.FetchResponse)
    assert fetched.responses[0].partitions[0].records is not None
    assert raw.receive(produce_v9.response.ProduceResponse).responses[0].partition_responses[0].base_offset == 0


def test_requests_in_a_row_are_answered_in_a_row(raw, topic):
    metadata_of(raw, topic)
    for number in range(50):
        raw.send(produce(topic, acks=-1 if number % 2 else 1))
    offsets = [
        raw.receive(produce_v9.response.ProduceResponse).responses[0].partition_responses[0].base_offset
        for _ in range(50)
    ]
    assert offsets == list(range(50))


# --- produce and fetch ----------------------------------------------------------------------------------------------


def test_a_produce_without_acks_has_no_response(raw, topic):
    metadata_of(raw, topic)
    raw.send(produce(topic, acks=0))
    assert ask_produce(raw, produce(topic)).base_offset == 1


def test_a_failed_produce_without_acks_ends_the_connection(raw, topic):
    raw.send(produce(topic, acks=0))
    assert raw.is_closed()


def damaged() -> bytes:
    batch = encode_batch([(None, b"value")], timestamp_ms=1)
    batch[-1] ^= 1
    return bytes(batch)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"acks": 2}, ErrorCode.invalid_required_acks),
        ({"batch": damaged()}, ErrorCode.corrupt_message),
        ({"batch": b""}, ErrorCode.invalid_record),
        ({"batch": bytes(16) + b"\x01" + bytes(60)}, ErrorCode.unsupported_for_message_format),
        ({"value": bytes(2 << 20)}, ErrorCode.message_too_large),
    ],
)
def test_what_cannot_be_appended_is_refused_by_name(raw, topic, change, code):
    metadata_of(raw, topic)
    assert ask_produce(raw, produce(topic, **change)).error_code is code


def test_nobody_writes_to_the_topics_of_the_broker(raw):
    assert ask_produce(raw, produce("__offsets")).error_code is ErrorCode.invalid_topic_exception


def test_a_negative_partition_is_unknown(raw, topic):
    metadata_of(raw, topic)
    partition = fetch_v12.request.FetchPartition(partition=-1, fetch_offset=0, partition_max_bytes=100)
    request = fetch_v12.request.FetchRequest(
        replica_id=-1,
        max_wait=0 * MS,
        min_bytes=0,
        topics=(fetch_v12.request.FetchTopic(topic=topic, partitions=(partition,)),),
        forgotten_topics_data=(),
        rack_id="",
    )
    fetched = raw.ask(request, fetch_v12.response.FetchResponse)
    assert fetched.responses[0].partitions[0].error_code is ErrorCode.unknown_topic_or_partition


def test_a_fetch_session_tells_only_what_is_new(raw, topic):
    metadata_of(raw, topic)
    response = fetch_v12.response.FetchResponse
    opened = raw.ask(fetch(topic, epoch=0), response)
    assert opened.session_id > 0
    assert len(opened.responses) == 1
    session = {"session": opened.session_id, "names": False}
    assert raw.ask(fetch(topic, epoch=1, **session), response).responses == ()
    ask_produce(raw, produce(topic))
    news = raw.ask(fetch(topic, epoch=2, **session), response).responses
    assert [partition.high_watermark for partition in news[0].partitions] == [1]
    assert raw.ask(fetch(topic, epoch=9, **session), response).error_code is ErrorCode.invalid_fetch_session_epoch
    unknown = fetch(topic, epoch=3, session=opened.session_id + 1)
    assert raw.ask(unknown, response).error_code is ErrorCode.fetch_session_id_not_found


def test_a_fetch_by_the_id_of_a_topic_that_was_made_again_is_told_so(broker, raw, topic):
    def fetch_by(topic_id):
        partition = fetch_v16.request.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = fetch_v16.request.FetchRequest(
            max_wait=0 * MS,
            min_bytes=0,
            topics=(fetch_v16.request.FetchTopic(topic_id=topic_id, partitions=(partition,)),),
            forgotten_topics_data=(),
        )
        return raw.ask(request, fetch_v16.response.FetchResponse).responses[0].partitions[0].error_code

    first = metadata_of(raw, topic).topic_id
    assert fetch_by(first) is ErrorCode.none
    with FlyMQClient(broker.address) as client:
        client.delete_topic(topic)
    second = metadata_of(raw, topic).topic_id
    assert fetch_by(first) is ErrorCode.unknown_topic_id
    assert fetch_by(second) is ErrorCode.none


def test_metadata_by_the_id_of_a_topic_goes_by_it_even_with_an_empty_name(raw, topic):
    def ask(topic_id):
        request = metadata_v12.request.MetadataRequest(
            topics=(metadata_v12.request.MetadataRequestTopic(topic_id=topic_id, name=""),),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        return raw.ask(request, metadata_v12.response.MetadataResponse).topics[0]

    known = metadata_of(raw, topic)
    assert ask(known.topic_id) == known
    unknown = ask(uuid.uuid4())
    assert (unknown.error_code, unknown.name) == (ErrorCode.unknown_topic_id, None)


def test_offsets_are_committed_and_fetched_by_the_id_of_a_topic(raw, topic):
    def commit(topic_id):
        part = commit_v10.request.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=7, committed_leader_epoch=-1, committed_metadata=None
        )
        named = commit_v10.request.OffsetCommitRequestTopic(topic_id=topic_id, partitions=(part,))
        request = commit_v10.request.OffsetCommitRequest(
            group_id=topic, generation_id_or_member_epoch=-1, member_id="", topics=(named,)
        )
        (answer,) = raw.ask(request, commit_v10.response.OffsetCommitResponse).topics
        assert answer.topic_id == topic_id
        return answer.partitions[0].error_code

    def fetched(topics):
        wanted = offset_fetch_v10.request.OffsetFetchRequestGroup(
            group_id=topic, member_id=None, member_epoch=-1, topics=topics
        )
        request = offset_fetch_v10.request.OffsetFetchRequest(groups=(wanted,))
        (group,) = raw.ask(request, offset_fetch_v10.response.OffsetFetchResponse).groups
        return {
            each.topic_id: (each.partitions[0].committed_offset, each.partitions[0].error_code) for each in group.topics
        }

    known, unknown = metadata_of(raw, topic).topic_id, uuid.uuid4()
    assert commit(known) is ErrorCode.none
    assert commit(unknown) is ErrorCode.unknown_topic_id
    asked = tuple(
        offset_fetch_v10.request.OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=(0,))
        for topic_id in (known, unknown)
    )
    assert fetched(asked) == {known: (7, ErrorCode.none), unknown: (-1, ErrorCode.unknown_topic_id)}
    assert fetched(None) == {known: (7, ErrorCode.none)}


def test_the_eligible_leaders_of_a_partition_are_empty_lists_and_not_null(raw, topic):
    metadata_of(raw, topic)
    named = (describe_v0.request.TopicRequest(name=topic),)
    request = describe_v0.request.DescribeTopicPartitionsRequest(topics=named, cursor=None)
    partition = raw.ask(request, describe_v0.response.DescribeTopicPartitionsResponse).topics[0].partitions[0]
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())


def test_a_client_that_knows_another_leader_is_told_so(raw, topic):
    metadata_of(raw, topic)
    ask_produce(raw, produce(topic))

    def end_of(epoch: int, current: int = -1):
        partition = epoch_v4.request.OffsetForLeaderPartition(
            partition=0, current_leader_epoch=current, leader_epoch=epoch
        )
        topics = (epoch_v4.request.OffsetForLeaderTopic(topic=topic, partitions=(partition,)),)
        request = epoch_v4.request.OffsetForLeaderEpochRequest(topics=topics)
        return raw.ask(request, epoch_v4.response.OffsetForLeaderEpochResponse).topics[0].partitions[0]

    assert (end_of(0).leader_epoch, end_of(0).end_offset) == (0, 1)
    assert end_of(0, current=5).error_code is ErrorCode.unknown_leader_epoch


def test_batches_leave_as_they_came_but_for_their_place(raw, topic):
    metadata_of(raw, topic)
    batch = bytes(encode_batch([(b"k", b"v", [("h", b"1")], 7)], timestamp_ms=7))
    ask_produce(raw, produce(topic, batch=batch))
    fetched = raw.ask(fetch(topic), fetch_v12.response.FetchResponse).responses[0].partitions[0].records
    assert fetched[16:] == batch[16:]
    assert parse_header(fetched).leader_epoch == 0


# --- bytes that are no request --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_random_bytes_never_harm_the_broker(broker, topic, seed):
    chance = random.Random(seed)
    with RawKafka(broker.port) as harmed, suppress(OSError):
        api = chance.choice(list(HANDLERS))
        head = struct.pack(">hhih", api, CODECS[Api(api)].last, 1, -1)
        harmed.send_frame(head + chance.randbytes(chance.randrange(60)))
        harmed.socket.shutdown(socket.SHUT_WR)
        while harmed.socket.recv(4096):
            pass
    with RawKafka(broker.port) as fresh:
        assert metadata_of(fresh, topic).error_code is ErrorCode.none


def test_a_length_over_the_limit_ends_the_connection_before_its_body_arrives(broker, raw, topic):
    metadata_of(raw, topic)
    raw.socket.sendall(struct.pack(">i", 0x7FFFFFFF))
    assert raw.is_closed()


# --- login, quotas --------------------------------------------------------------------------------------------------


WITH_LOGIN = {"auth.required": True, "auth.plain_without_tls": True}


def test_a_broker_that_wants_a_login_serves_those_who_have_one():
    users = {"ada": str(hash_password("engine", salt=bytes(16)))}
    with running_broker(settings=WITH_LOGIN | {"auth.users": users}) as broker:
        base = {"bootstrap.servers": broker.address, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        errors = []
        login = {"sasl.username": "ada", "sasl.password": "engine"}
        producer = confluent_kafka.Producer({**base, **login})
        producer.produce("topic", b"value", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(20) == 0
        assert errors == [None]
        refused: list[confluent_kafka.KafkaError] = []
        stranger = {"sasl.username": "ada", "sasl.password": "wrong", "error_cb": refused.append}
        client = confluent_kafka.Consumer({**base, **stranger, "group.id": "g"})
        while not any(error.code() == confluent_kafka.KafkaError._AUTHENTICATION for error in refused):
            client.poll(0.05)
        client.close()
        with RawKafka(broker.port) as raw:
            raw.send(produce("topic"))
            assert raw.is_closed()


def test_an_older_client_logs_in_by_a_frame_that_is_no_request():
    users = {"ada": str(hash_password("engine", salt=bytes(16)))}
    with running_broker(settings=WITH_LOGIN | {"auth.users": users}) as broker:
        hello = handshake_v0.request.SaslHandshakeRequest(mechanism="PLAIN")
        with RawKafka(broker.port) as raw:
            raw.ask(hello, handshake_v0.response.SaslHandshakeResponse)
            raw.send_frame(b"\0ada\0engine")
            assert raw.receive_frame() == b""
            assert metadata_of(raw, "topic").error_code is ErrorCode.none
        for token in (b"\0ada\0wrong", b"x", b""):
            with RawKafka(broker.port) as raw:
                raw.ask(hello, handshake_v0.response.SaslHandshakeResponse)
                raw.send_frame(token)
                assert raw.is_closed()


def test_a_client_over_its_quota_is_told_how_long_to_wait():
    with running_broker(settings={"quotas.produce_bytes_per_s": 10_000}) as broker, RawKafka(broker.port) as raw:
        metadata_of(raw, "topic")
        response = raw.ask(produce("topic", bytes(15_000)), produce_v9.response.ProduceResponse)
        assert response.throttle_time > 100 * MS
