"""What a manifest says besides records: how topics are set, and how far groups have read them."""

from __future__ import annotations

from collections.abc import Iterable

from flymq.client.aio.admin import AsyncAdmin
from flymq.model.errors import TopicNotFound
from flymq.spark.archive.manifest import GroupOffsets, TopicState

OWN_GROUPS = "flymq-pipeline-"
"""Groups that begin so show how far pipelines are; they are not worth keeping."""


async def topic_states(admin: AsyncAdmin, topics: Iterable[str]) -> dict[str, TopicState]:
    """Return what is needed to make these topics again; one that was deleted meanwhile is left out."""
    found: dict[str, TopicState] = {}
    for name in sorted(set(topics)):
        try:
            topic = await admin.describe_topic(name)
        except TopicNotFound:
            continue
        settings = {setting: topic.settings[setting] for setting in topic.overrides}
        found[name] = TopicState(
            topic_id=topic.topic_id.hex(),
            partitions=len(topic.partitions),
            replication_factor=topic.replication_factor,
            settings=settings,
            in_force=dict(topic.settings),
        )
    return found


async def group_offsets(admin: AsyncAdmin, topics: Iterable[str]) -> GroupOffsets:
    """Return how far every group has read these topics."""
    wanted = set(topics)
    found: GroupOffsets = {}
    for group in await admin.list_groups():
        if group.name.startswith(OWN_GROUPS):
            continue
        for at in (await admin.describe_group(group.name)).positions:
            if at.topic in wanted and at.offset >= 0:
                found.setdefault(group.name, {}).setdefault(at.topic, {})[at.partition] = at.offset
    return found
