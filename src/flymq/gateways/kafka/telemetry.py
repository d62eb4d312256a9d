"""Metrics of clients (KIP-714): what a client is asked for, and what it pushes."""

from __future__ import annotations

from uuid import UUID

from flymq.broker.service.client_metrics import PUSHED_BYTES_MAX, MetricsClient
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode, code_of
from flymq.model.errors import FlyMQError, UnsupportedCompression
from flymq.wire.kafka.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from flymq.wire.kafka.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

_ACCEPTED_COMPRESSIONS = [4, 3, 1, 2]
"""The preferred one first: zstd, lz4, gzip, snappy. Uncompressed metrics are accepted, too."""


def get_subscriptions(
    connection: KafkaConnection, request: GetTelemetrySubscriptionsRequest, _version: int
) -> GetTelemetrySubscriptionsResponse:
    client = _client(connection, request.client_instance_id)
    instance_id, wanted = connection.service.client_metrics.get(connection.caller, client)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id.bytes,
        subscription_id=wanted.id,
        accepted_compression_types=_ACCEPTED_COMPRESSIONS,
        push_interval_ms=wanted.interval_ms,
        telemetry_max_bytes=PUSHED_BYTES_MAX,
        delta_temporality=False,  # totals, as Prometheus has them: nothing is lost with a push
        requested_metrics=list(wanted.prefixes),
    )


async def push(connection: KafkaConnection, request: PushTelemetryRequest, _version: int) -> PushTelemetryResponse:
    service, caller = connection.service.client_metrics, connection.caller
    client = _client(connection, request.client_instance_id)
    service.check_push(caller, client, request.subscription_id, len(request.metrics), is_last=request.terminating)
    data, compression = bytes(request.metrics), request.compression_type
    try:
        metrics = await connection.shared.codec_threads.run(lambda: service.read(data, compression))
    except FlyMQError as error:
        service.failed()
        connection.service.accounts.failed(caller, error)
        unsupported = isinstance(error, UnsupportedCompression)
        return PushTelemetryResponse(error_code=code_of(error) if unsupported else ErrorCode.INVALID_RECORD)
    service.pushed(caller, client, metrics)
    return PushTelemetryResponse()


def _client(connection: KafkaConnection, instance_id: bytes) -> MetricsClient:
    software, version = connection.software
    return MetricsClient(
        UUID(bytes=bytes(instance_id)),
        connection.caller.client_id,
        software,
        version,
        connection.caller.address,
        connection.peer_port,
    )
