"""Requests that may have many elements: decoded and encoded in a thread, and served in pieces.

Decoding takes about a microsecond per element in Python; a thread leaves the event loop to the others.
"""

from __future__ import annotations

from flymq.gateways.pieces import Split
from flymq.wire.kafka.apis import Api

LARGE_BYTES = 8 << 10
"""A smaller request is decoded at once: it has at most a few thousand elements. Produce always is: it has records."""

SPLIT_BYTES = 512
"""A smaller request has too few elements to be split."""

_BY_PARTITION = Split(("topics", "partitions"), ("topics", "partitions"))

_PRODUCE = int(Api.PRODUCE)  # on the hot path: an enum is slow to compare
_SPLIT_PRODUCE = Split(("topic_data", "partition_data"), ("responses", "partition_responses"))

SPLITS: dict[int, Split] = {
    Api.METADATA: Split(("topics",), ("topics",)),
    Api.LIST_OFFSETS: _BY_PARTITION,
    Api.OFFSET_FOR_LEADER_EPOCH: _BY_PARTITION,
    Api.DELETE_RECORDS: _BY_PARTITION,
    Api.OFFSET_COMMIT: _BY_PARTITION,
    Api.TXN_OFFSET_COMMIT: _BY_PARTITION,
    Api.WRITE_TXN_MARKERS: Split(("markers", "topics", "partition_indexes"), ("markers", "topics", "partitions")),
    Api.DESCRIBE_PRODUCERS: Split(("topics", "partition_indexes"), ("topics", "partitions")),
    Api.ELECT_LEADERS: Split(("topic_partitions", "partitions"), ("replica_election_results", "partition_result")),
    Api.ALTER_PARTITION_REASSIGNMENTS: Split(("topics", "partitions"), ("responses", "partitions")),
    Api.FIND_COORDINATOR: Split(("coordinator_keys",), ("coordinators",)),
    Api.DESCRIBE_GROUPS: Split(("groups",), ("groups",)),
    Api.DELETE_GROUPS: Split(("groups_names",), ("results",)),
    Api.CONSUMER_GROUP_DESCRIBE: Split(("group_ids",), ("groups",)),
    Api.STREAMS_GROUP_DESCRIBE: Split(("group_ids",), ("groups",)),
    Api.LEAVE_GROUP: Split(("members",), ("members",)),
    Api.OFFSET_DELETE: _BY_PARTITION,
    Api.DESCRIBE_CONFIGS: Split(("resources",), ("results",)),
    Api.ALTER_CONFIGS: Split(("resources",), ("responses",)),
    Api.INCREMENTAL_ALTER_CONFIGS: Split(("resources",), ("responses",)),
    Api.CREATE_PARTITIONS: Split(("topics",), ("results",)),
    Api.DESCRIBE_TRANSACTIONS: Split(("transactional_ids",), ("transaction_states",)),
}
"""How requests are split. Those with two forms, by version, are in `split_of`."""

_OFFSET_FETCH_OF_GROUPS_FROM = 8
_OFFSET_FETCH_OF_GROUPS = Split(("groups", "topics", "partition_indexes"), ("groups", "topics", "partitions"))
_OFFSET_FETCH = Split(("topics", "partition_indexes"), ("topics", "partitions"))
_DELETE_TOPICS_BY_ID_FROM = 6
_DELETE_TOPICS_BY_ID = Split(("topics",), ("responses",))
_DELETE_TOPICS = Split(("topic_names",), ("responses",))


def split_of(api: int, version: int) -> Split | None:
    """Return how requests of this version are split; None if they are served as a whole."""
    if api == _PRODUCE:
        return _SPLIT_PRODUCE
    if api == Api.OFFSET_FETCH:
        return _OFFSET_FETCH_OF_GROUPS if version >= _OFFSET_FETCH_OF_GROUPS_FROM else _OFFSET_FETCH
    if api == Api.DELETE_TOPICS:
        return _DELETE_TOPICS_BY_ID if version >= _DELETE_TOPICS_BY_ID_FROM else _DELETE_TOPICS
    return SPLITS.get(api)
