"""Describe and alter settings of topics; describe settings of the broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode, code_of
from flymq.gateways.kafka.settings import Setting, described, to_flymq
from flymq.model.errors import FlyMQError, InvalidRequest, InvalidSetting
from flymq.wire.kafka.messages import alter_configs as alteration
from flymq.wire.kafka.messages import describe_configs as description
from flymq.wire.kafka.messages import incremental_alter_configs as increment

TOPIC, BROKER = 2, 4
_FROM_BROKER_FILE = 4
_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3
_LISTS = ("cleanup.policy",)


# --- read -----------------------------------------------------------------------------------------------------------


def describe_configs(
    connection: KafkaConnection, request: description.DescribeConfigsRequest, _version: int
) -> description.DescribeConfigsResponse:
    results = []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        try:
            settings = _settings_of(connection, kind, name)
            wanted = None if resource.configuration_keys is None else set(resource.configuration_keys)
            configs = [_result(each, request) for each in settings if wanted is None or each.name in wanted]
            results.append(description.DescribeConfigsResult(ErrorCode.NONE, None, kind, name, configs))
        except FlyMQError as error:
            results.append(description.DescribeConfigsResult(code_of(error), error.message, kind, name))
    return description.DescribeConfigsResponse(results=results)


def _settings_of(connection: KafkaConnection, kind: int, name: str) -> list[Setting]:
    service = connection.service
    if kind == TOPIC:
        return described(service.topics.get(connection.caller, name))
    if kind == BROKER and name in ("", str(service.cluster.broker_id)):
        return _broker_settings(connection)
    raise InvalidRequest(f"only settings of topics (2) and of broker {service.cluster.broker_id} (4) are supported")


def _broker_settings(connection: KafkaConnection) -> list[Setting]:
    """The broker settings that Kafka's tools read, under Kafka's names."""
    defaults = connection.service.topics.defaults
    plain: dict[str, Any] = {
        "broker.id": connection.service.cluster.broker_id,
        "num.partitions": defaults.partitions,
        "default.replication.factor": defaults.replication_factor,
        "auto.create.topics.enable": str(defaults.auto_create).lower(),
        "message.max.bytes": defaults.config.max_message_bytes,
        "log.retention.ms": defaults.config.retention_ms,
        "log.retention.bytes": defaults.config.retention_bytes,
        "log.segment.bytes": defaults.config.segment_bytes,
        "min.insync.replicas": defaults.config.min_insync_replicas,
    }
    return [Setting(name, str(value), _FROM_BROKER_FILE, 2, "", read_only=True) for name, value in plain.items()]


def _result(setting: Setting, request: description.DescribeConfigsRequest) -> description.DescribeConfigsResourceResult:
    synonyms = []
    if request.include_synonyms:
        synonyms = [description.DescribeConfigsSynonym(setting.name, setting.value, setting.source)]
    return description.DescribeConfigsResourceResult(
        setting.name,
        setting.value,
        setting.read_only,
        setting.source,
        synonyms=synonyms,
        config_type=setting.type,
        documentation=setting.text if request.include_documentation else None,
    )


# --- change ---------------------------------------------------------------------------------------------------------


async def alter_configs(
    connection: KafkaConnection, request: alteration.AlterConfigsRequest, _version: int
) -> alteration.AlterConfigsResponse:
    """Replace all settings of a topic: those that are not listed are reset to their defaults."""
    responses = []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        try:
            _check_topic(kind)
            given = to_flymq({config.name: config.value for config in resource.configs})
            overrides = connection.service.topics.get(connection.caller, name).spec.settings
            changes = {**dict.fromkeys(overrides), **given}
            await connection.service.topics.alter(connection.caller, name, changes, validate_only=request.validate_only)
            responses.append(alteration.AlterConfigsResourceResponse(ErrorCode.NONE, None, kind, name))
        except FlyMQError as error:
            responses.append(alteration.AlterConfigsResourceResponse(code_of(error), error.message, kind, name))
    return alteration.AlterConfigsResponse(responses=responses)


async def incremental_alter_configs(
    connection: KafkaConnection, request: increment.IncrementalAlterConfigsRequest, _version: int
) -> increment.IncrementalAlterConfigsResponse:
    """Change single settings of a topic."""
    responses = []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        try:
            _check_topic(kind)
            topic = connection.service.topics.get(connection.caller, name)
            current = {setting.name: setting.value for setting in described(topic)}
            changes = to_flymq({config.name: _changed(config, current) for config in resource.configs})
            await connection.service.topics.alter(connection.caller, name, changes, validate_only=request.validate_only)
            responses.append(increment.AlterConfigsResourceResponse(ErrorCode.NONE, None, kind, name))
        except FlyMQError as error:
            responses.append(increment.AlterConfigsResourceResponse(code_of(error), error.message, kind, name))
    return increment.IncrementalAlterConfigsResponse(responses=responses)


def _check_topic(kind: int) -> None:
    if kind != TOPIC:
        raise InvalidRequest("only settings of topics can be changed; those of a broker are in its configuration file")


def _changed(config: increment.AlterableConfig, current: Mapping[str, str]) -> str | None:
    if config.config_operation == _SET:
        return config.value
    if config.config_operation == _DELETE:
        return None
    if config.config_operation not in (_APPEND, _SUBTRACT) or config.name not in _LISTS:
        raise InvalidSetting(f"{config.name} does not support the operation {config.config_operation}")
    values = [value for value in current[config.name].split(",") if value]
    named = (config.value or "").split(",")
    if config.config_operation == _APPEND:
        return ",".join(dict.fromkeys(values + named))
    return ",".join(value for value in values if value not in named)
