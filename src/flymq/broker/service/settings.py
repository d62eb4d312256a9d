"""Settings of brokers and groups: what the configuration says, and what was changed at run time."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flymq.broker.coordinators.consumer_groups import ConsumerGroups
from flymq.broker.service.caller import Caller
from flymq.broker.service.gate import CLUSTER_NAME, Gate, Operation, Resource
from flymq.cluster.catalog import Catalog, Overrides, Scope
from flymq.cluster.image import Image
from flymq.model.errors import InvalidRequest
from flymq.model.group_settings import (
    CONSUMER_HEARTBEAT,
    CONSUMER_SESSION_TIMEOUT,
    STREAMS_HEARTBEAT,
    STREAMS_SESSION_TIMEOUT,
    STREAMS_STANDBY_REPLICAS,
    parse_group_settings,
)
from flymq.model.topic_config import TopicConfig

logger = logging.getLogger(__name__)

ALL_BROKERS = ""
"""In place of a broker's id."""

_GROUP_LENGTH_MAX = 32_767
"""The longest group id in the older requests of Kafka's protocol."""


@dataclass(frozen=True, slots=True)
class FileSetting:
    """A setting of the broker's configuration."""

    value: Any
    is_default: bool


class Settings:
    """Operations on settings of brokers and groups."""

    def __init__(
        self,
        image: Image,
        catalog: Catalog,
        consumers: ConsumerGroups,
        gate: Gate,
        file: Mapping[str, FileSetting],
        defaults: TopicConfig,
    ) -> None:
        """`defaults` are the defaults of topics in the broker's configuration."""
        self._image = image
        self._catalog = catalog
        self._consumers = consumers
        self._gate = gate
        self.file = file
        """The broker's configuration by name, such as `listener.port`; without users and secrets."""
        self.file_defaults = defaults

    @property
    def defaults(self) -> TopicConfig:
        """The defaults of topics now."""
        return self._image.defaults

    # --- brokers

    def of_broker(self, caller: Caller, broker: str) -> Overrides:
        """Return the defaults of topics that were set at run time, for one broker or for `ALL_BROKERS`."""
        self._gate.check(caller, Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME)
        return self._image.settings_of(Scope.BROKER, broker)

    async def alter_broker(
        self, caller: Caller, broker: str, changes: Mapping[str, Any], *, validate_only: bool = False
    ) -> None:
        """Change defaults of topics; None removes what was set. It takes effect at once, for existing topics too."""
        self._gate.check(caller, Operation.ALTER_CONFIGS, Resource.CLUSTER, CLUSTER_NAME)
        old = self._image.settings_of(Scope.BROKER, broker)
        given = {name: value for name, value in {**old, **changes}.items() if value is not None}
        new = self.file_defaults.with_changes(given).to_overrides(given)
        await self._put(Scope.BROKER, broker, old, new, validate_only=validate_only)

    # --- groups

    def of_group(self, caller: Caller, group: str) -> Overrides:
        """Return the settings that were given for this group."""
        self._gate.check(caller, Operation.DESCRIBE_CONFIGS, Resource.GROUP, group)
        return self._image.settings_of(Scope.GROUP, group)

    @property
    def group_defaults(self) -> dict[str, str]:
        """The settings of groups that depend on the broker's configuration."""
        limits = self._consumers.limits
        return {
            CONSUMER_SESSION_TIMEOUT: str(limits.consumer_session_timeout_ms),
            CONSUMER_HEARTBEAT: str(limits.consumer_heartbeat_ms),
            STREAMS_SESSION_TIMEOUT: str(limits.consumer_session_timeout_ms),
            STREAMS_HEARTBEAT: str(limits.consumer_heartbeat_ms),
            STREAMS_STANDBY_REPLICAS: str(limits.streams_standby_replicas),
        }

    async def alter_group(
        self, caller: Caller, group: str, changes: Mapping[str, Any], *, validate_only: bool = False
    ) -> None:
        """Change settings of a group; None resets one. Members learn of it with their next heartbeat."""
        self._gate.check(caller, Operation.ALTER_CONFIGS, Resource.GROUP, group)
        if not group:
            raise InvalidRequest("the group id must not be empty: groups have no common settings")
        if len(group) > _GROUP_LENGTH_MAX:
            raise InvalidRequest(f"the group id has {len(group)} characters, more than {_GROUP_LENGTH_MAX}")
        old = self._image.settings_of(Scope.GROUP, group)
        given = {name: value for name, value in {**old, **changes}.items() if value is not None}
        new: Overrides = dict(parse_group_settings(given, self.group_defaults))
        await self._put(Scope.GROUP, group, old, new, validate_only=validate_only)

    def groups(self, caller: Caller) -> list[str]:
        """Return the groups that have settings of their own."""
        names = self._image.names_with_settings(Scope.GROUP)
        for name in names:
            self._gate.check(caller, Operation.DESCRIBE_CONFIGS, Resource.GROUP, name)
        return names

    async def _put(self, scope: Scope, name: str, old: Overrides, new: Overrides, *, validate_only: bool) -> None:
        if validate_only or new == old:
            return
        await self._image.until(await self._catalog.put_settings(scope, name, old, new))
        logger.info("changed the settings of %s %s: %s", scope.value, name or "(all)", new or "none")
