"""The broker and the cluster: API versions, addresses, coordinators, log directories."""

from __future__ import annotations

from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode, code_of
from flymq.gateways.kafka.features import FEATURES, FEATURES_EPOCH
from flymq.gateways.kafka.internal_topics import kafka_name
from flymq.model.coordinators import CoordinatorKind
from flymq.model.errors import FlyMQError
from flymq.wire.kafka.apis import CODECS, Api
from flymq.wire.kafka.messages import describe_cluster as cluster
from flymq.wire.kafka.messages import describe_log_dirs as dirs
from flymq.wire.kafka.messages import find_coordinator as coordinator
from flymq.wire.kafka.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from flymq.wire.kafka.old_produce import OLD_PRODUCE

NO_OPERATIONS = -(1 << 31)
"""Authorized operations, if the client did not request them."""
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8))
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))

_SOFTWARE_LENGTH_MAX = 100
_BROKERS = 1
_COORDINATORS = {0: CoordinatorKind.GROUP, 1: CoordinatorKind.TRANSACTION}
"""By the types of keys."""
_MANY_KEYS_FROM = 4
_FEATURES_FROM_ZERO_FROM = 4
"""Clients that request older versions cannot read a feature that is supported from level 0 on."""


def api_versions(connection: KafkaConnection, request: ApiVersionsRequest | None, version: int) -> ApiVersionsResponse:
    if request is not None:
        software, software_version = request.client_software_name, request.client_software_version
        connection.software = (software[:_SOFTWARE_LENGTH_MAX], software_version[:_SOFTWARE_LENGTH_MAX])
    versions = []
    for api in connection.served:
        first, last = CODECS[api]
        versions.append(ApiVersion(api, OLD_PRODUCE.first if api is Api.PRODUCE else first, last))
    if Api.END_TXN not in connection.served:
        return ApiVersionsResponse(api_keys=versions)
    supported = [SupportedFeatureKey(name, 0, level) for name, level in FEATURES.items()]
    return ApiVersionsResponse(
        api_keys=versions,
        supported_features=supported if version >= _FEATURES_FROM_ZERO_FROM else [],
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=[FinalizedFeatureKey(name, level, level) for name, level in FEATURES.items()],
    )


def describe_cluster(
    connection: KafkaConnection, request: cluster.DescribeClusterRequest, _version: int
) -> cluster.DescribeClusterResponse:
    known = connection.service.cluster
    if request.endpoint_type != _BROKERS:
        return cluster.DescribeClusterResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message="only the endpoint type of brokers is supported"
        )
    local = connection.local_address
    brokers = known.brokers(local) if request.include_fenced_brokers else known.usable_brokers(local)
    return cluster.DescribeClusterResponse(
        cluster_id=known.cluster_id,
        controller_id=known.controller_id,
        brokers=[
            cluster.DescribeClusterBroker(
                broker.broker_id, broker.host, broker.port, broker.rack or None, not broker.is_live
            )
            for broker in brokers
        ],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NO_OPERATIONS
        ),
    )


def find_coordinator(
    connection: KafkaConnection, request: coordinator.FindCoordinatorRequest, version: int
) -> coordinator.FindCoordinatorResponse:
    if version < _MANY_KEYS_FROM:
        found = _find_coordinator(connection, request.key_type, request.key)
        return coordinator.FindCoordinatorResponse(
            0, found.error_code, found.error_message, found.node_id, found.host, found.port
        )
    return coordinator.FindCoordinatorResponse(
        coordinators=[_find_coordinator(connection, request.key_type, key) for key in request.coordinator_keys]
    )


def _find_coordinator(connection: KafkaConnection, key_type: int, key: str) -> coordinator.Coordinator:
    kind = _COORDINATORS.get(key_type)
    if kind is None or (kind is CoordinatorKind.TRANSACTION and Api.ADD_PARTITIONS_TO_TXN not in connection.served):
        message = f"there are no coordinators for keys of type {key_type}"
        return coordinator.Coordinator(key, -1, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
    try:
        found = connection.service.coordinators.find(connection.caller, kind, key, connection.local_address)
    except FlyMQError as error:
        return coordinator.Coordinator(key, -1, "", -1, code_of(error), error.message)
    return coordinator.Coordinator(key, found.broker_id, found.host, found.port)


def describe_log_dirs(
    connection: KafkaConnection, request: dirs.DescribeLogDirsRequest, _version: int
) -> dirs.DescribeLogDirsResponse:
    asked = None if request.topics is None else {topic.topic: set(topic.partitions) for topic in request.topics}
    topics = []
    for topic in connection.service.topics.all(connection.caller):
        name = kafka_name(topic.name)
        numbers = None if asked is None else asked.get(name, asked.get(topic.name, set()))
        partitions = [
            dirs.DescribeLogDirsPartition(info.number, info.size)
            for info in connection.service.topics.partitions(connection.caller, topic)
            if (numbers is None or info.number in numbers) and info.start_offset >= 0
        ]
        if partitions:
            topics.append(dirs.DescribeLogDirsTopic(name, partitions))
    cluster = connection.service.cluster
    space = cluster.space()
    directory = dirs.DescribeLogDirsResult(
        log_dir=str(cluster.data_dir), topics=topics, total_bytes=space.size_bytes, usable_bytes=space.free_bytes
    )
    return dirs.DescribeLogDirsResponse(results=[directory])
