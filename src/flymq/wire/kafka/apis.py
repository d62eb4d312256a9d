"""The supported requests and their versions: exactly what ApiVersions returns.

The versions are those of Kafka 4.3 as far as FlyMQ has the same semantics. Left out on purpose: requests between
brokers, delegation tokens and Raft voters, and versions that Kafka itself does not serve by default, such as two-phase
commit (KIP-939: InitProducerId 6).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Api(IntEnum):
    """The API key of each request."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89


class Versions(NamedTuple):
    """The first and the last supported version, inclusive."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


CODECS: dict[Api, Versions] = {
    Api.PRODUCE: Versions(3, 13),
    Api.FETCH: Versions(4, 18),
    Api.LIST_OFFSETS: Versions(1, 11),
    Api.METADATA: Versions(0, 13),
    Api.OFFSET_COMMIT: Versions(2, 10),
    Api.OFFSET_FETCH: Versions(1, 10),
    Api.FIND_COORDINATOR: Versions(0, 6),
    Api.JOIN_GROUP: Versions(0, 9),
    Api.HEARTBEAT: Versions(0, 4),
    Api.LEAVE_GROUP: Versions(0, 5),
    Api.SYNC_GROUP: Versions(0, 5),
    Api.DESCRIBE_GROUPS: Versions(0, 6),
    Api.LIST_GROUPS: Versions(0, 5),
    Api.SASL_HANDSHAKE: Versions(0, 1),
    Api.API_VERSIONS: Versions(0, 4),
    Api.CREATE_TOPICS: Versions(2, 7),
    Api.DELETE_TOPICS: Versions(1, 6),
    Api.DELETE_RECORDS: Versions(0, 2),
    Api.INIT_PRODUCER_ID: Versions(0, 5),
    Api.OFFSET_FOR_LEADER_EPOCH: Versions(2, 4),
    Api.ADD_PARTITIONS_TO_TXN: Versions(0, 5),
    Api.ADD_OFFSETS_TO_TXN: Versions(0, 4),
    Api.END_TXN: Versions(0, 5),
    Api.WRITE_TXN_MARKERS: Versions(1, 2),
    Api.TXN_OFFSET_COMMIT: Versions(0, 5),
    Api.DESCRIBE_CONFIGS: Versions(1, 4),
    Api.ALTER_CONFIGS: Versions(0, 2),
    Api.DESCRIBE_LOG_DIRS: Versions(1, 5),
    Api.SASL_AUTHENTICATE: Versions(0, 2),
    Api.CREATE_PARTITIONS: Versions(0, 3),
    Api.DELETE_GROUPS: Versions(0, 2),
    Api.ELECT_LEADERS: Versions(0, 2),
    Api.INCREMENTAL_ALTER_CONFIGS: Versions(0, 1),
    Api.ALTER_PARTITION_REASSIGNMENTS: Versions(0, 1),
    Api.LIST_PARTITION_REASSIGNMENTS: Versions(0, 0),
    Api.OFFSET_DELETE: Versions(0, 0),
    Api.DESCRIBE_QUORUM: Versions(0, 2),
    Api.UPDATE_FEATURES: Versions(0, 2),
    Api.DESCRIBE_CLUSTER: Versions(0, 2),
    Api.DESCRIBE_PRODUCERS: Versions(0, 0),
    Api.DESCRIBE_TRANSACTIONS: Versions(0, 0),
    Api.LIST_TRANSACTIONS: Versions(0, 2),
    Api.CONSUMER_GROUP_HEARTBEAT: Versions(0, 1),
    Api.CONSUMER_GROUP_DESCRIBE: Versions(0, 1),
    Api.GET_TELEMETRY_SUBSCRIPTIONS: Versions(0, 0),
    Api.PUSH_TELEMETRY: Versions(0, 0),
    Api.LIST_CONFIG_RESOURCES: Versions(0, 1),
    Api.DESCRIBE_TOPIC_PARTITIONS: Versions(0, 0),
    Api.STREAMS_GROUP_HEARTBEAT: Versions(0, 0),
    Api.STREAMS_GROUP_DESCRIBE: Versions(0, 0),
}
"""The versions of the codecs. A gateway may support fewer requests, never other versions."""
