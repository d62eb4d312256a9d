"""Committed offsets of a group: commit and fetch them."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from typing import Any

from flymq.broker.safety import Safe, outcome_of, wait_safe
from flymq.broker.service.groups import Committer, NewOffset, OffsetValue
from flymq.gateways.connection import AnswerLater
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode, code_of
from flymq.model.errors import FlyMQError
from flymq.model.names import TopicPartition
from flymq.wire.kafka.messages import offset_commit as commits
from flymq.wire.kafka.messages import offset_fetch as fetches
from flymq.wire.kafka.values import NO_ID

_NO_OFFSET = -1
_MANY_GROUPS_FROM = 8
_TOPIC_IDS_FROM = 10


def offset_commit(
    connection: KafkaConnection, request: commits.OffsetCommitRequest, version: int
) -> commits.OffsetCommitResponse | AnswerLater:
    unknown = _resolve_ids(connection, request.topics) if version >= _TOPIC_IDS_FROM else set()
    committer = Committer(request.member_id, request.generation_id_or_member_epoch, request.group_instance_id or "")
    offsets = to_offsets(topic for topic in request.topics if topic.topic_id not in unknown)
    try:
        errors, safe = connection.service.groups.commit(connection.caller, request.group_id, committer, offsets)
    except FlyMQError as error:
        errors, safe = dict.fromkeys(offsets, error), None
    response = commits.OffsetCommitResponse(
        topics=[
            commits.OffsetCommitResponseTopic(
                topic.name,
                topic.topic_id,
                [
                    commits.OffsetCommitResponsePartition(
                        part.partition_index,
                        ErrorCode.UNKNOWN_TOPIC_ID
                        if topic.topic_id in unknown
                        else code_of(errors.get(TopicPartition(topic.name, part.partition_index))),
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
    if safe is None:
        return response

    def answer(error: FlyMQError | None) -> commits.OffsetCommitResponse:
        for topic in response.topics if error is not None else ():
            for part in topic.partitions:
                part.error_code = part.error_code or code_of(error)
        return response

    return AnswerLater(outcome_of(safe), answer)


def _resolve_ids(connection: KafkaConnection, topics: Iterable[Any]) -> set[bytes]:
    """Fill in the names of topics that are given by their ids; return the ids that are unknown."""
    unknown = set()
    for topic in topics:
        found = connection.service.topics.find_by_id(connection.caller, topic.topic_id)
        if found is None:
            unknown.add(topic.topic_id)
        else:
            topic.name = found.name
    return unknown


def to_offsets(topics: Iterable[Any]) -> dict[TopicPartition, NewOffset]:
    """Return the offsets of a commit, in a transaction or not: both requests have the same fields."""
    return {
        TopicPartition(topic.name, part.partition_index): NewOffset(
            part.committed_offset, part.committed_leader_epoch, part.committed_metadata or ""
        )
        for topic in topics
        for part in topic.partitions
    }


def offset_fetch(
    connection: KafkaConnection, request: fetches.OffsetFetchRequest, version: int
) -> fetches.OffsetFetchResponse | AnswerLater | Coroutine[Any, Any, fetches.OffsetFetchResponse]:
    if version >= _MANY_GROUPS_FROM:
        by_id = version >= _TOPIC_IDS_FROM
        fetched = [
            _fetch_group(connection, group, by_id=by_id, require_stable=request.require_stable)
            for group in request.groups
        ]
        if all(safe is None for _, safe in fetched):
            return fetches.OffsetFetchResponse(groups=[group for group, _ in fetched])
        return _when_safe(fetched)
    found, safe = _committed(connection, request.group_id, _asked(request.topics), request.require_stable)
    response = fetches.OffsetFetchResponse(
        topics=[
            fetches.OffsetFetchResponseTopic(
                topic, [fetches.OffsetFetchResponsePartition(*part) for part in partitions]
            )
            for topic, partitions in found.items()
        ]
    )
    return response if safe is None else AnswerLater(safe, lambda _: response)


Fetched = tuple[fetches.OffsetFetchResponseGroup, Safe]
"""The offsets of a group, and when they may be shown."""


async def _when_safe(fetched: list[Fetched]) -> fetches.OffsetFetchResponse:
    groups = []
    for group, safe in fetched:
        try:
            await wait_safe(safe)
            groups.append(group)
        except FlyMQError as error:
            groups.append(fetches.OffsetFetchResponseGroup(group.group_id, error_code=code_of(error)))
    return fetches.OffsetFetchResponse(groups=groups)


def _fetch_group(
    connection: KafkaConnection, group: fetches.OffsetFetchRequestGroup, *, by_id: bool, require_stable: bool
) -> Fetched:
    try:
        connection.service.groups.check_reader(
            connection.caller, group.group_id, group.member_id or "", group.member_epoch
        )
    except FlyMQError as error:
        return fetches.OffsetFetchResponseGroup(group.group_id, error_code=code_of(error)), None
    asked = group.topics
    topics = []
    if by_id and asked is not None:
        unknown = _resolve_ids(connection, asked)
        topics += [_unknown_topic(topic) for topic in asked if topic.topic_id in unknown]
        asked = [topic for topic in asked if topic.topic_id not in unknown]
    found, safe = _committed(connection, group.group_id, _asked(asked), require_stable)
    for name, parts in found.items():
        topic = connection.service.topics.find(connection.caller, name)
        if not by_id or topic is not None:
            topics.append(
                fetches.OffsetFetchResponseTopics(
                    name,
                    NO_ID if topic is None else topic.topic_id.bytes,
                    [fetches.OffsetFetchResponsePartitions(*part) for part in parts],
                )
            )
    return fetches.OffsetFetchResponseGroup(group.group_id, topics), safe


def _unknown_topic(topic: fetches.OffsetFetchRequestTopics) -> fetches.OffsetFetchResponseTopics:
    parts = [
        fetches.OffsetFetchResponsePartitions(number, _NO_OFFSET, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
        for number in topic.partition_indexes
    ]
    return fetches.OffsetFetchResponseTopics(topic.name, topic.topic_id, parts)


def _asked(topics: Iterable[Any] | None) -> list[TopicPartition] | None:
    if topics is None:
        return None
    return [TopicPartition(topic.name, number) for topic in topics for number in topic.partition_indexes]


Found = tuple[int, int, int, str, int]
"""Partition, offset, leader epoch, metadata, error."""


def _committed(
    connection: KafkaConnection, group: str, asked: list[TopicPartition] | None, require_stable: bool
) -> tuple[Mapping[str, list[Found]], Safe]:
    """Return the committed offsets of a group by topic, none if it is unknown; and when they may be shown."""
    groups = connection.service.groups
    committed, safe = groups.committed(connection.caller, group)
    found: dict[str, list[Found]] = {}
    for name in sorted(committed) if asked is None else asked:
        value = committed.get(name, OffsetValue(_NO_OFFSET))
        part: Found = (name.partition, value.offset, value.leader_epoch, value.metadata, ErrorCode.NONE)
        if require_stable and not groups.is_stable(connection.caller, group, [name]):
            part = (name.partition, _NO_OFFSET, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
        found.setdefault(name.topic, []).append(part)
    return found, safe
