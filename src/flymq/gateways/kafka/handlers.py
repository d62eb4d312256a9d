"""The table of handlers by API. ApiVersions returns what is in it.

Most clients use few of these APIs. So all but the two busiest handlers are imported on first use, with their messages,
which makes the broker start faster.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from flymq.gateways.kafka import fetch, produce
from flymq.gateways.kafka.connection import Handler, KafkaConnection
from flymq.wire.kafka.apis import Api

LATER: dict[Api, str] = {
    Api.LIST_OFFSETS: "offsets.list_offsets",
    Api.METADATA: "metadata.metadata",
    Api.OFFSET_COMMIT: "group_offsets.offset_commit",
    Api.OFFSET_FETCH: "group_offsets.offset_fetch",
    Api.FIND_COORDINATOR: "cluster.find_coordinator",
    Api.JOIN_GROUP: "groups.join_group",
    Api.HEARTBEAT: "groups.heartbeat",
    Api.LEAVE_GROUP: "groups.leave_group",
    Api.SYNC_GROUP: "groups.sync_group",
    Api.DESCRIBE_GROUPS: "group_admin.describe_groups",
    Api.LIST_GROUPS: "group_admin.list_groups",
    Api.SASL_HANDSHAKE: "sasl.handshake",
    Api.API_VERSIONS: "cluster.api_versions",
    Api.CREATE_TOPICS: "topics.create_topics",
    Api.DELETE_TOPICS: "topics.delete_topics",
    Api.DELETE_RECORDS: "offsets.delete_records",
    Api.INIT_PRODUCER_ID: "transactions.init_producer_id",
    Api.OFFSET_FOR_LEADER_EPOCH: "offsets.offset_for_leader_epoch",
    Api.ADD_PARTITIONS_TO_TXN: "transactions.add_partitions_to_txn",
    Api.ADD_OFFSETS_TO_TXN: "transactions.add_offsets_to_txn",
    Api.END_TXN: "transactions.end_txn",
    Api.WRITE_TXN_MARKERS: "transaction_markers.write_txn_markers",
    Api.TXN_OFFSET_COMMIT: "transactions.txn_offset_commit",
    Api.DESCRIBE_CONFIGS: "configs.describe_configs",
    Api.ALTER_CONFIGS: "configs.alter_configs",
    Api.DESCRIBE_LOG_DIRS: "cluster.describe_log_dirs",
    Api.SASL_AUTHENTICATE: "sasl.authenticate",
    Api.CREATE_PARTITIONS: "topics.create_partitions",
    Api.DELETE_GROUPS: "group_admin.delete_groups",
    Api.ELECT_LEADERS: "reassignments.elect_leaders",
    Api.INCREMENTAL_ALTER_CONFIGS: "configs.incremental_alter_configs",
    Api.ALTER_PARTITION_REASSIGNMENTS: "reassignments.alter_partition_reassignments",
    Api.LIST_PARTITION_REASSIGNMENTS: "reassignments.list_partition_reassignments",
    Api.OFFSET_DELETE: "group_admin.offset_delete",
    Api.DESCRIBE_QUORUM: "quorum.describe_quorum",
    Api.UPDATE_FEATURES: "features.update_features",
    Api.DESCRIBE_CLUSTER: "cluster.describe_cluster",
    Api.DESCRIBE_PRODUCERS: "offsets.describe_producers",
    Api.DESCRIBE_TRANSACTIONS: "transactions.describe_transactions",
    Api.LIST_TRANSACTIONS: "transactions.list_transactions",
    Api.CONSUMER_GROUP_HEARTBEAT: "consumer_groups.heartbeat",
    Api.CONSUMER_GROUP_DESCRIBE: "consumer_groups.describe",
    Api.GET_TELEMETRY_SUBSCRIPTIONS: "telemetry.get_subscriptions",
    Api.PUSH_TELEMETRY: "telemetry.push",
    Api.LIST_CONFIG_RESOURCES: "configs.list_config_resources",
    Api.DESCRIBE_TOPIC_PARTITIONS: "metadata.describe_topic_partitions",
    Api.STREAMS_GROUP_HEARTBEAT: "streams_groups.heartbeat",
    Api.STREAMS_GROUP_DESCRIBE: "streams_groups.describe",
}
"""Module and name of handlers that are imported on first use."""


@cache
def load(name: str) -> Handler:
    module, _, function = name.partition(".")
    handler: Handler = getattr(import_module(f"flymq.gateways.kafka.{module}"), function)
    return handler


def _later(name: str) -> Handler:
    def serve(connection: KafkaConnection, request: Any, version: int) -> Any:
        return load(name)(connection, request, version)

    return serve


HANDLERS: dict[int, Handler] = {
    Api.PRODUCE: produce.produce,
    Api.FETCH: fetch.fetch,
    **{api: _later(name) for api, name in LATER.items()},
}
