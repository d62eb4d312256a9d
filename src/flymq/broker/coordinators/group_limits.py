"""The limits of one group, which may have settings of its own."""

from __future__ import annotations

from dataclasses import replace

from flymq.cluster.catalog import Scope
from flymq.cluster.image import Image
from flymq.coordination.group import GroupLimits
from flymq.model.group_settings import STREAMS_STANDBY_REPLICAS


def limits_of(limits: GroupLimits, image: Image, name: str, *, type_: str) -> GroupLimits:
    """Return the limits of a group of a type: `consumer` or `streams`."""
    own = image.settings_of(Scope.GROUP, name)
    if not own:
        return limits
    return replace(
        limits,
        consumer_session_timeout_ms=int(own.get(f"{type_}.session.timeout.ms", limits.consumer_session_timeout_ms)),
        consumer_heartbeat_ms=int(own.get(f"{type_}.heartbeat.interval.ms", limits.consumer_heartbeat_ms)),
        streams_standby_replicas=int(own.get(STREAMS_STANDBY_REPLICAS, limits.streams_standby_replicas)),
    )
