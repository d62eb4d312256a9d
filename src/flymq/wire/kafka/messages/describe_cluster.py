"""DescribeCluster, versions 0 to 2. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 0
_T = Struct(">?")
_B = Struct(">b")
_I = Struct(">i")
_IH = Struct(">ih")


class DescribeClusterRequest(msgspec.Struct):
    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1
    include_fenced_brokers: bool = False


class DescribeClusterBroker(msgspec.Struct):
    broker_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None
    is_fenced: bool = False


class DescribeClusterResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    endpoint_type: int = 1
    cluster_id: str = ""
    controller_id: int = -1
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: int = -2147483648


def parse_request(reader: Reader, version: int) -> DescribeClusterRequest:
    (include_cluster_authorized_operations,) = reader.unpack(_T)
    endpoint_type = 1
    if version >= 1:
        (endpoint_type,) = reader.unpack(_B)
    include_fenced_brokers = False
    if version >= 2:
        (include_fenced_brokers,) = reader.unpack(_T)
    reader.end()
    return DescribeClusterRequest(include_cluster_authorized_operations, endpoint_type, include_fenced_brokers)


def _encode_describe_cluster_broker(writer: Writer, value: DescribeClusterBroker, version: int) -> None:
    writer += _I.pack(value.broker_id)
    writer.string(value.host)
    writer += _I.pack(value.port)
    writer.nullable_string(value.rack)
    if version >= 2:
        writer += _T.pack(value.is_fenced)
    writer.end()


def encode_response(writer: Writer, value: DescribeClusterResponse, version: int) -> None:
    writer += _IH.pack(value.throttle_time_ms, value.error_code)
    writer.nullable_string(value.error_message)
    if version >= 1:
        writer += _B.pack(value.endpoint_type)
    writer.string(value.cluster_id)
    writer += _I.pack(value.controller_id)
    writer.amount(value.brokers)
    for describe_cluster_broker in value.brokers:
        _encode_describe_cluster_broker(writer, describe_cluster_broker, version)
    writer += _I.pack(value.cluster_authorized_operations)
    writer.end()


RESPONSE = DescribeClusterResponse
