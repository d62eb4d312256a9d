"""Administration from code without an event loop."""

from __future__ import annotations

from collections.abc import Mapping

from flymq.client.aio.admin import AsyncAdmin, Settings
from flymq.client.descriptions import ClusterDescription, GroupDescription, GroupInfo, TopicDescription, TopicInfo
from flymq.client.sync.loop import LoopThread
from flymq.model.names import TopicPartition


class Admin:
    """Administration through any broker of the cluster."""

    def __init__(self, loop: LoopThread, admin: AsyncAdmin) -> None:
        self._loop = loop
        self._admin = admin

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        settings: Settings | None = None,
        *,
        exist_ok: bool = False,
    ) -> TopicInfo:
        """Create a topic; what is not given comes from the broker's defaults. An existing one is left as it is."""
        return self._loop.run(
            self._admin.create_topic(name, partitions, replication_factor, settings, exist_ok=exist_ok)
        )

    def delete_topic(self, name: str) -> None:
        """Remove a topic and all its records."""
        self._loop.run(self._admin.delete_topic(name))

    def list_topics(self, *, internal: bool = False) -> list[TopicInfo]:
        """Return all topics, in the order of their names; the broker's own only when asked for."""
        return self._loop.run(self._admin.list_topics(internal=internal))

    def describe_topic(self, name: str) -> TopicDescription:
        """Return all about one topic: partitions, offsets, sizes, settings."""
        return self._loop.run(self._admin.describe_topic(name))

    def alter_topic(self, name: str, settings: Settings) -> None:
        """Change settings of a topic; None takes one back to its default."""
        self._loop.run(self._admin.alter_topic(name, settings))

    def add_partitions(self, name: str, partitions: int) -> None:
        """Let a topic have so many partitions in all."""
        self._loop.run(self._admin.add_partitions(name, partitions))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Remove the records before these offsets; return where each partition starts now."""
        return self._loop.run(self._admin.delete_records(before))

    def earliest_offsets(self, topic: str) -> dict[TopicPartition, int]:
        """Return the offset of the oldest record of each partition."""
        return self._loop.run(self._admin.earliest_offsets(topic))

    def latest_offsets(self, topic: str) -> dict[TopicPartition, int]:
        """Return the offset the next record of each partition will get."""
        return self._loop.run(self._admin.latest_offsets(topic))

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[TopicPartition, int]:
        """Return the offset of the first record at or after a time; -1 for a partition without one."""
        return self._loop.run(self._admin.offsets_at(topic, timestamp_ms))

    def list_groups(self) -> list[GroupInfo]:
        return self._loop.run(self._admin.list_groups())

    def describe_group(self, name: str) -> GroupDescription:
        """Return members, shares and lag of a group."""
        return self._loop.run(self._admin.describe_group(name))

    def delete_group(self, name: str) -> None:
        """Forget a group that has no members, and its offsets."""
        self._loop.run(self._admin.delete_group(name))

    def reset_offsets(
        self, group: str, topic: str, to: str | int | Mapping[int, int], *, dry_run: bool = False
    ) -> dict[TopicPartition, int]:
        """Move a group without members within a topic: all partitions to "earliest", "latest" or a time in ms, or those
        given in `to` to the offsets given there."""
        return self._loop.run(self._admin.reset_offsets(group, topic, to, dry_run=dry_run))

    def describe_cluster(self) -> ClusterDescription:
        return self._loop.run(self._admin.describe_cluster())

    def ping(self) -> None:
        """Return if a broker answers."""
        self._loop.run(self._admin.ping())
