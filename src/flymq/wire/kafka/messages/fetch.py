"""Fetch, versions 4 to 18. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import NO_ID, Reader, Records, Writer

COMPACT_FROM = 12
_IQ = Struct(">iq")
_16S = Struct(">16s")
_I = Struct(">i")
_Q = Struct(">q")
_IIIB = Struct(">iiib")
_II = Struct(">ii")
_QI = Struct(">qi")
_QQ = Struct(">qq")
_IHQQ = Struct(">ihqq")
_HI = Struct(">hi")


class ReplicaState(msgspec.Struct):
    replica_id: int = -1
    replica_epoch: int = -1


class ForgottenTopic(msgspec.Struct):
    topic: str = ""
    topic_id: bytes = NO_ID
    partitions: list[int] = []


class FetchPartition(msgspec.Struct):
    partition: int = 0
    current_leader_epoch: int = -1
    fetch_offset: int = 0
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    partition_max_bytes: int = 0
    replica_directory_id: bytes = NO_ID
    high_watermark: int = 9223372036854775807


class FetchTopic(msgspec.Struct):
    topic: str = ""
    topic_id: bytes = NO_ID
    partitions: list[FetchPartition] = []


class FetchRequest(msgspec.Struct):
    cluster_id: str | None = None
    replica_id: int = -1
    replica_state: ReplicaState | None = None
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2147483647
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    topics: list[FetchTopic] = []
    forgotten_topics_data: list[ForgottenTopic] = []
    rack_id: str = ""


class NodeEndpoint(msgspec.Struct):
    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


class EpochEndOffset(msgspec.Struct):
    epoch: int = -1
    end_offset: int = -1


class LeaderIdAndEpoch(msgspec.Struct):
    leader_id: int = -1
    leader_epoch: int = -1


class SnapshotId(msgspec.Struct):
    end_offset: int = -1
    epoch: int = -1


class AbortedTransaction(msgspec.Struct):
    producer_id: int = 0
    first_offset: int = 0


class PartitionData(msgspec.Struct):
    partition_index: int = 0
    error_code: int = 0
    high_watermark: int = 0
    last_stable_offset: int = -1
    log_start_offset: int = -1
    diverging_epoch: EpochEndOffset | None = None
    current_leader: LeaderIdAndEpoch | None = None
    snapshot_id: SnapshotId | None = None
    aborted_transactions: list[AbortedTransaction] | None = None
    preferred_read_replica: int = -1
    records: Records | None = None


class FetchableTopicResponse(msgspec.Struct):
    topic: str = ""
    topic_id: bytes = NO_ID
    partitions: list[PartitionData] = []


class FetchResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    responses: list[FetchableTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []


def _parse_replica_state(reader: Reader, _version: int) -> ReplicaState:
    replica_id, replica_epoch = reader.unpack(_IQ)
    reader.end()
    return ReplicaState(replica_id, replica_epoch)


def _parse_forgotten_topic(reader: Reader, version: int) -> ForgottenTopic:
    topic = ""
    if version <= 12:
        topic = reader.string()
    topic_id = NO_ID
    if version >= 13:
        (topic_id,) = reader.unpack(_16S)
    partitions = reader.int32s()
    reader.end()
    return ForgottenTopic(topic, topic_id, partitions)


def _parse_fetch_partition(reader: Reader, version: int) -> FetchPartition:
    (partition,) = reader.unpack(_I)
    current_leader_epoch = -1
    if version >= 9:
        (current_leader_epoch,) = reader.unpack(_I)
    (fetch_offset,) = reader.unpack(_Q)
    last_fetched_epoch = -1
    if version >= 12:
        (last_fetched_epoch,) = reader.unpack(_I)
    log_start_offset = -1
    if version >= 5:
        (log_start_offset,) = reader.unpack(_Q)
    (partition_max_bytes,) = reader.unpack(_I)
    replica_directory_id = NO_ID
    high_watermark = 9223372036854775807
    for tag, inner in reader.tags():
        if tag == 0 and version >= 17:
            (replica_directory_id,) = inner.unpack(_16S)
        elif tag == 1 and version >= 18:
            (high_watermark,) = inner.unpack(_Q)
    return FetchPartition(
        partition,
        current_leader_epoch,
        fetch_offset,
        last_fetched_epoch,
        log_start_offset,
        partition_max_bytes,
        replica_directory_id,
        high_watermark,
    )


def _parse_fetch_topic(reader: Reader, version: int) -> FetchTopic:
    topic = ""
    if version <= 12:
        topic = reader.string()
    topic_id = NO_ID
    if version >= 13:
        (topic_id,) = reader.unpack(_16S)
    partitions = [_parse_fetch_partition(reader, version) for _ in range(reader.count())]
    reader.end()
    return FetchTopic(topic, topic_id, partitions)


def parse_request(reader: Reader, version: int) -> FetchRequest:
    replica_id = -1
    if version <= 14:
        (replica_id,) = reader.unpack(_I)
    max_wait_ms, min_bytes, max_bytes, isolation_level = reader.unpack(_IIIB)
    session_id = 0
    session_epoch = -1
    if version >= 7:
        session_id, session_epoch = reader.unpack(_II)
    topics = [_parse_fetch_topic(reader, version) for _ in range(reader.count())]
    forgotten_topics_data: list[ForgottenTopic] = []
    if version >= 7:
        forgotten_topics_data = [_parse_forgotten_topic(reader, version) for _ in range(reader.count())]
    rack_id = ""
    if version >= 11:
        rack_id = reader.string()
    cluster_id: str | None = None
    replica_state: ReplicaState | None = None
    for tag, inner in reader.tags():
        if tag == 0 and version >= 12:
            cluster_id = inner.nullable_string()
        elif tag == 1 and version >= 15:
            replica_state = _parse_replica_state(inner, version)
    return FetchRequest(
        cluster_id,
        replica_id,
        replica_state,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topics,
        forgotten_topics_data,
        rack_id,
    )


def _encode_node_endpoint(writer: Writer, value: NodeEndpoint, _version: int) -> None:
    writer += _I.pack(value.node_id)
    writer.string(value.host)
    writer += _I.pack(value.port)
    writer.nullable_string(value.rack)
    writer.end()


def _encode_epoch_end_offset(writer: Writer, value: EpochEndOffset, _version: int) -> None:
    writer += _IQ.pack(value.epoch, value.end_offset)
    writer.end()


def _encode_leader_id_and_epoch(writer: Writer, value: LeaderIdAndEpoch, _version: int) -> None:
    writer += _II.pack(value.leader_id, value.leader_epoch)
    writer.end()


def _encode_snapshot_id(writer: Writer, value: SnapshotId, _version: int) -> None:
    writer += _QI.pack(value.end_offset, value.epoch)
    writer.end()


def _encode_aborted_transaction(writer: Writer, value: AbortedTransaction, _version: int) -> None:
    writer += _QQ.pack(value.producer_id, value.first_offset)
    writer.end()


def _encode_partition_data(writer: Writer, value: PartitionData, version: int) -> None:
    writer += _IHQQ.pack(value.partition_index, value.error_code, value.high_watermark, value.last_stable_offset)
    if version >= 5:
        writer += _Q.pack(value.log_start_offset)
    writer.nullable_amount(value.aborted_transactions)
    for aborted_transaction in value.aborted_transactions or ():
        _encode_aborted_transaction(writer, aborted_transaction, version)
    if version >= 11:
        writer += _I.pack(value.preferred_read_replica)
    writer.records(value.records)
    tagged: dict[int, Writer] = {}
    if value.diverging_epoch is not None and version >= 12:
        inner = tagged[0] = writer.inner()
        _encode_epoch_end_offset(inner, value.diverging_epoch, version)
    if value.current_leader is not None and version >= 12:
        inner = tagged[1] = writer.inner()
        _encode_leader_id_and_epoch(inner, value.current_leader, version)
    if value.snapshot_id is not None and version >= 12:
        inner = tagged[2] = writer.inner()
        _encode_snapshot_id(inner, value.snapshot_id, version)
    writer.tags(tagged)


def _encode_fetchable_topic_response(writer: Writer, value: FetchableTopicResponse, version: int) -> None:
    if version <= 12:
        writer.string(value.topic)
    if version >= 13:
        writer += _16S.pack(value.topic_id)
    writer.amount(value.partitions)
    for partition_data in value.partitions:
        _encode_partition_data(writer, partition_data, version)
    writer.end()


def encode_response(writer: Writer, value: FetchResponse, version: int) -> None:
    writer += _I.pack(value.throttle_time_ms)
    if version >= 7:
        writer += _HI.pack(value.error_code, value.session_id)
    writer.amount(value.responses)
    for fetchable_topic_response in value.responses:
        _encode_fetchable_topic_response(writer, fetchable_topic_response, version)
    tagged: dict[int, Writer] = {}
    if value.node_endpoints and version >= 16:
        inner = tagged[0] = writer.inner()
        inner.amount(value.node_endpoints)
        for node_endpoint in value.node_endpoints:
            _encode_node_endpoint(inner, node_endpoint, version)
    writer.tags(tagged)


RESPONSE = FetchResponse
