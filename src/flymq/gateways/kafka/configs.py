"""Describe and alter settings of topics, brokers and groups; list what has settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from flymq.gateways.kafka.config_resources import ResourceType, find_resource
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode, code_of
from flymq.gateways.kafka.internal_topics import kafka_name
from flymq.gateways.kafka.settings import Setting
from flymq.model.errors import FlyMQError, InvalidRequest, InvalidSetting, UnsupportedVersion
from flymq.model.typed_settings import SettingType
from flymq.wire.kafka.messages import alter_configs as alteration
from flymq.wire.kafka.messages import describe_configs as description
from flymq.wire.kafka.messages import incremental_alter_configs as increment
from flymq.wire.kafka.messages import list_config_resources as listing

_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3


# --- read -----------------------------------------------------------------------------------------------------------


def describe_configs(
    connection: KafkaConnection, request: description.DescribeConfigsRequest, _version: int
) -> description.DescribeConfigsResponse:
    results = []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        wanted = resource.configuration_keys
        try:
            settings = find_resource(kind, name).describe(connection)
            configs = [_result(each, request) for each in settings if not wanted or each.name in wanted]
            results.append(description.DescribeConfigsResult(ErrorCode.NONE, None, kind, name, configs))
        except FlyMQError as error:
            results.append(description.DescribeConfigsResult(code_of(error), error.message, kind, name))
    return description.DescribeConfigsResponse(results=results)


def _result(setting: Setting, request: description.DescribeConfigsRequest) -> description.DescribeConfigsResourceResult:
    synonyms = []
    if request.include_synonyms:
        synonyms = [description.DescribeConfigsSynonym(*synonym) for synonym in setting.synonyms]
    return description.DescribeConfigsResourceResult(
        setting.name,
        setting.value,
        setting.read_only,
        setting.source,
        synonyms=synonyms,
        config_type=setting.type,
        documentation=setting.text if request.include_documentation else None,
    )


def list_config_resources(
    connection: KafkaConnection, request: listing.ListConfigResourcesRequest, version: int
) -> listing.ListConfigResourcesResponse:
    """List what has settings. Version 0 asks for subscriptions of client metrics alone."""
    service, caller = connection.service, connection.caller
    brokers = [str(broker.broker_id) for broker in service.cluster.brokers(connection.local_address)]
    names: dict[int, Iterable[str]] = {
        ResourceType.TOPIC: (kafka_name(topic.name) for topic in service.topics.all(caller)),
        ResourceType.BROKER: brokers,
        ResourceType.BROKER_LOGGER: brokers,
        ResourceType.CLIENT_METRICS: service.client_metrics.names(caller),
        ResourceType.GROUP: service.settings.groups(caller),
    }
    wanted = [ResourceType.CLIENT_METRICS] if version == 0 else request.resource_types or list(names)
    if unknown := [type_ for type_ in wanted if type_ not in names]:
        error = UnsupportedVersion(f"unknown types of resources: {unknown}")
        return listing.ListConfigResourcesResponse(error_code=code_of(error))
    found = [listing.ConfigResource(name, type_) for type_ in dict.fromkeys(wanted) for name in names[type_]]
    return listing.ListConfigResourcesResponse(config_resources=found)


# --- change ---------------------------------------------------------------------------------------------------------


async def alter_configs(
    connection: KafkaConnection, request: alteration.AlterConfigsRequest, _version: int
) -> alteration.AlterConfigsResponse:
    """Replace all settings of a resource: those that are not listed are reset to their defaults."""
    responses = []
    repeated = _repeated([(each.resource_type, each.resource_name) for each in request.resources])
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        try:
            _check_once((kind, name), repeated, [config.name for config in resource.configs])
            for config in resource.configs:
                _check_value(config.name, config.value)
            found = find_resource(kind, name)
            changes = {
                **dict.fromkeys(found.own(connection)),
                **{config.name: config.value for config in resource.configs},
            }
            await found.alter(connection, changes, validate_only=request.validate_only)
            responses.append(alteration.AlterConfigsResourceResponse(ErrorCode.NONE, None, kind, name))
        except FlyMQError as error:
            responses.append(alteration.AlterConfigsResourceResponse(code_of(error), error.message, kind, name))
    return alteration.AlterConfigsResponse(responses=responses)


async def incremental_alter_configs(
    connection: KafkaConnection, request: increment.IncrementalAlterConfigsRequest, _version: int
) -> increment.IncrementalAlterConfigsResponse:
    """Change single settings of a resource."""
    responses = []
    repeated = _repeated([(each.resource_type, each.resource_name) for each in request.resources])
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        try:
            _check_once((kind, name), repeated, [config.name for config in resource.configs])
            found = find_resource(kind, name)
            current = {setting.name: setting for setting in found.describe(connection)}
            changes = {config.name: _changed(config, current) for config in resource.configs}
            await found.alter(connection, changes, validate_only=request.validate_only)
            responses.append(increment.AlterConfigsResourceResponse(ErrorCode.NONE, None, kind, name))
        except FlyMQError as error:
            responses.append(increment.AlterConfigsResourceResponse(code_of(error), error.message, kind, name))
    return increment.IncrementalAlterConfigsResponse(responses=responses)


def _repeated(names: list[tuple[int, str]]) -> set[tuple[int, str]]:
    return {name for name, count in Counter(names).items() if count > 1}


def _check_once(resource: tuple[int, str], repeated: set[tuple[int, str]], settings: list[str]) -> None:
    if resource in repeated:
        raise InvalidRequest("each resource must appear at most once in a request")
    if len(set(settings)) < len(settings):
        raise InvalidRequest("each setting of a resource must appear at most once in a request")


def _check_value(name: str, value: str | None) -> str:
    if value is None:
        raise InvalidRequest(f"{name} has no value")
    return value


def _changed(config: increment.AlterableConfig, current: Mapping[str, Setting]) -> str | None:
    """Return the new value of a setting; None resets it."""
    operation, name = config.config_operation, config.name
    if operation == _DELETE:
        return None
    given = _check_value(name, config.value)
    if operation == _SET:
        return given
    if operation not in (_APPEND, _SUBTRACT):
        raise InvalidRequest(f"{name}: unknown operation {operation}")
    if name not in current:
        raise InvalidSetting(f"unknown setting {name!r}")
    if current[name].type is not SettingType.LIST:
        raise InvalidSetting(f"{name} is not a list, so it can only be set or deleted")
    values, named = _items(current[name].value or ""), _items(given)
    if operation == _APPEND:
        return ",".join(dict.fromkeys(values + named))
    return ",".join(value for value in values if value not in named)


def _items(value: str) -> list[str]:
    return [item.strip() for item in value.split(",") if item.strip()]
