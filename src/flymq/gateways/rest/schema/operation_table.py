"""The table of all operations. Adding one is a small function and an entry here; the most used come first."""

from __future__ import annotations

from functools import cache

from starlette.responses import Response

from flymq.gateways.rest.handlers import cluster, consumers, groups, monitoring, produce, read, topics
from flymq.gateways.rest.handlers.monitoring import METRICS_TEXT
from flymq.gateways.rest.handlers.read import EVENT_STREAM
from flymq.gateways.rest.http.bodies import JSON
from flymq.gateways.rest.schema import shapes
from flymq.gateways.rest.schema.openapi import DOCS_HTML, describe_api
from flymq.gateways.rest.schema.operations import Call, Operation
from flymq.model import errors

_V1 = "/api/v1"
_TOPIC = f"{_V1}/topics/{{topic}}"
_PARTITION = f"{_TOPIC}/partitions/{{partition:int}}"
_GROUP = f"{_V1}/groups/{{group}}"
_CONSUMER = f"{_GROUP}/consumers/{{consumer}}"
_NO_TOPIC = (errors.TopicNotFound,)
_NO_PARTITION = (errors.TopicNotFound, errors.PartitionNotFound)
_BAD_TOPIC = (errors.InvalidTopicName, errors.InvalidSetting, errors.InvalidPartitions)
_NO_CONSUMER = (errors.ConsumerNotFound, errors.RebalanceInProgress)


async def openapi(_call: Call) -> Response:
    """Return the OpenAPI 3.1 document of this API."""
    return Response(api_document(), media_type=JSON)


async def docs(_call: Call) -> Response:
    """Show the documentation of this API."""
    return Response(DOCS_HTML, media_type="text/html")


@cache
def api_document() -> bytes:
    return describe_api(OPERATIONS)


OPERATIONS: tuple[Operation, ...] = (
    # --- records
    Operation(
        "POST",
        f"{_TOPIC}/records",
        produce.produce,
        shapes.ProduceResults,
        takes=shapes.NewRecords,
        query=shapes.ProduceQuery,
        errors=(*_NO_TOPIC, errors.InvalidTopicName, errors.EmptyBatch, errors.IdempotencyKeyReused),
        reads_lines=True,
        other_statuses=(207,),
    ),
    Operation(
        "GET",
        f"{_PARTITION}/records",
        read.read_records,
        shapes.Records,
        query=shapes.ReadQuery,
        errors=(*_NO_PARTITION, errors.OffsetOutOfRange, errors.NotAcceptable),
        gives_lines=True,
    ),
    Operation(
        "DELETE",
        f"{_PARTITION}/records",
        read.delete_records,
        shapes.RecordsDeleted,
        query=shapes.DeleteRecordsQuery,
        errors=(*_NO_PARTITION, errors.OffsetOutOfRange),
    ),
    Operation(
        "GET",
        f"{_TOPIC}/records/stream",
        read.tail_records,
        EVENT_STREAM,
        query=shapes.TailQuery,
        errors=_NO_PARTITION,
    ),
    # --- consumers over HTTP
    Operation(
        "GET",
        f"{_CONSUMER}/records",
        consumers.poll,
        shapes.Polled,
        query=shapes.PollQuery,
        errors=(*_NO_CONSUMER, errors.OffsetOutOfRange),
    ),
    Operation(
        "POST",
        f"{_CONSUMER}/offsets",
        consumers.commit,
        shapes.OffsetResults,
        takes=shapes.OffsetsToCommit,
        errors=(*_NO_CONSUMER, errors.StaleGeneration),
    ),
    Operation("GET", _CONSUMER, consumers.describe_consumer, shapes.ConsumerDescription, errors=_NO_CONSUMER),
    Operation("DELETE", _CONSUMER, consumers.delete_consumer, errors=_NO_CONSUMER),
    Operation(
        "POST",
        f"{_GROUP}/consumers",
        consumers.create_consumer,
        shapes.ConsumerDescription,
        takes=shapes.NewConsumer,
        status=201,
        errors=(*_NO_TOPIC, errors.InvalidTopicName, errors.InconsistentAssignors, errors.GroupFull),
    ),
    # --- topics
    Operation("GET", f"{_V1}/topics", topics.list_topics, shapes.TopicPage, query=shapes.TopicsQuery),
    Operation(
        "POST",
        f"{_V1}/topics",
        topics.create_topic,
        shapes.TopicDescription,
        takes=shapes.NewTopic,
        status=201,
        errors=(*_BAD_TOPIC, errors.InvalidReplicationFactor, errors.TopicExists),
    ),
    Operation("GET", _TOPIC, topics.describe_topic, shapes.TopicDescription, errors=_NO_TOPIC),
    Operation(
        "PATCH",
        _TOPIC,
        topics.alter_topic,
        shapes.TopicDescription,
        takes=shapes.TopicChanges,
        errors=(*_NO_TOPIC, *_BAD_TOPIC),
    ),
    Operation("DELETE", _TOPIC, topics.delete_topic, errors=(*_NO_TOPIC, errors.InvalidTopicName)),
    Operation("GET", f"{_TOPIC}/config", topics.describe_topic_config, shapes.TopicConfiguration, errors=_NO_TOPIC),
    Operation(
        "PATCH",
        f"{_TOPIC}/config",
        topics.alter_topic_config,
        shapes.TopicConfiguration,
        takes=shapes.ConfigChanges,
        errors=(*_NO_TOPIC, errors.InvalidSetting),
    ),
    Operation("GET", f"{_TOPIC}/partitions", topics.list_partitions, shapes.Partitions, errors=_NO_TOPIC),
    Operation(
        "GET",
        f"{_PARTITION}/offsets",
        topics.show_offsets,
        shapes.PartitionOffsets,
        query=shapes.OffsetsQuery,
        errors=_NO_PARTITION,
    ),
    # --- groups
    Operation("GET", f"{_V1}/groups", groups.list_groups, shapes.GroupPage, query=shapes.Page),
    Operation("GET", _GROUP, groups.describe_group, shapes.GroupDescription, errors=(errors.GroupNotFound,)),
    Operation("DELETE", _GROUP, groups.delete_group, errors=(errors.GroupNotFound, errors.GroupNotEmpty)),
    Operation(
        "POST",
        f"{_GROUP}/reset",
        groups.reset_group,
        shapes.OffsetResults,
        takes=shapes.GroupReset,
        errors=(*_NO_TOPIC, errors.GroupNotFound, errors.GroupNotEmpty),
    ),
    # --- the cluster
    Operation("GET", f"{_V1}/cluster", cluster.describe_cluster, shapes.ClusterDescription),
    Operation("GET", f"{_V1}/brokers", cluster.list_brokers, shapes.Brokers),
    Operation(
        "GET",
        f"{_V1}/brokers/{{broker:int}}",
        cluster.describe_broker,
        shapes.BrokerDescription,
        errors=(errors.NoSuchResource,),
    ),
    Operation("GET", f"{_V1}/transactions", cluster.list_transactions, shapes.TransactionPage, query=shapes.Page),
    Operation(
        "GET",
        f"{_V1}/transactions/{{transaction}}",
        cluster.describe_transaction,
        shapes.TransactionDescription,
        errors=(errors.TransactionNotFound,),
    ),
    Operation(
        "POST",
        f"{_V1}/transactions/{{transaction}}/abort",
        cluster.abort_transaction,
        shapes.TransactionDescription,
        errors=(errors.TransactionNotFound, errors.InvalidTransactionState),
    ),
    # --- health and metrics
    Operation("GET", f"{_V1}/diagnosis", monitoring.diagnose, shapes.Diagnosis),
    Operation("GET", "/metrics", monitoring.metrics, METRICS_TEXT),
    Operation("GET", "/metrics/detailed", monitoring.detailed_metrics, METRICS_TEXT),
    Operation("GET", "/livez", monitoring.live, shapes.Probe, needs_broker=False, needs_login=False),
    Operation(
        "GET",
        "/startupz",
        monitoring.started,
        shapes.Probe,
        needs_broker=False,
        needs_login=False,
        other_statuses=(503,),
    ),
    Operation(
        "GET", "/readyz", monitoring.ready, shapes.Probe, needs_broker=False, needs_login=False, other_statuses=(503,)
    ),
    Operation(
        "GET", "/health", monitoring.health, shapes.Health, needs_broker=False, needs_login=False, other_statuses=(503,)
    ),
    Operation("GET", "/openapi.json", openapi, JSON, needs_broker=False, needs_login=False),
    Operation("GET", "/docs", docs, "text/html", needs_broker=False, needs_login=False),
)
