"""The broker's state in a manifest: settings of topics and committed offsets of groups."""

from __future__ import annotations

from collections.abc import Iterable

from flymq.client.aio.admin import AsyncAdmin
from flymq.model.errors import TopicNotFound
from flymq.spark.archive.manifest import GroupOffsets, TopicState

OWN_GROUPS = "flymq-pipeline-"
"""Groups with this prefix only show the progress of pipelines; they are not archived."""


async def topic_states(admin: AsyncAdmin, topics: Iterable[str]) -> dict[str, TopicState]:
    """Return what is needed to recreate these topics, without those that were deleted meanwhile."""
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
    """Return the committed offsets of every group in these topics."""
    wanted = set(topics)
    found: GroupOffsets = {}
    for group in await admin.list_groups():
        if group.name.startswith(OWN_GROUPS):
            continue
        for at in (await admin.describe_group(group.name)).positions:
            if at.topic in wanted and at.offset >= 0:
                found.setdefault(group.name, {}).setdefault(at.topic, {})[at.partition] = at.offset
    return found
