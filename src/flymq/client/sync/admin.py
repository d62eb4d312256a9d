"""The admin client for blocking code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from flymq.client.aio.admin import AsyncAdmin, Settings
from flymq.client.descriptions import (
    ClusterDescription,
    ClusterState,
    GroupDescription,
    GroupInfo,
    TopicDescription,
    TopicInfo,
)
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
        """Create a topic, with the broker's defaults for what is not given. `exist_ok` keeps an existing one."""
        return self._loop.run(
            self._admin.create_topic(name, partitions, replication_factor, settings, exist_ok=exist_ok)
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records."""
        self._loop.run(self._admin.delete_topic(name))

    def list_topics(self, *, internal: bool = False) -> list[TopicInfo]:
        """Return all topics, sorted by name; internal ones only on request."""
        return self._loop.run(self._admin.list_topics(internal=internal))

    def describe_topic(self, name: str) -> TopicDescription:
        """Return the partitions, offsets, sizes and settings of a topic."""
        return self._loop.run(self._admin.describe_topic(name))

    def alter_topic(self, name: str, settings: Settings) -> None:
        """Change settings of a topic; None resets a setting to its default."""
        self._loop.run(self._admin.alter_topic(name, settings))

    def add_partitions(self, name: str, partitions: int) -> None:
        """Increase the number of partitions of a topic to `partitions` in total."""
        self._loop.run(self._admin.add_partitions(name, partitions))

    def place_replicas(self, name: str, replication_factor: int | None = None, *, brokers: Sequence[int] = ()) -> None:
        """Begin to give each partition of a topic so many replicas, or as many as now; on these brokers, or on all.

        Returns before the records are copied; `wait_until_placed` waits for that.
        """
        self._loop.run(self._admin.place_replicas(name, replication_factor, brokers=brokers))

    def wait_until_placed(self, name: str, on_progress: Callable[[int], None] | None = None) -> None:
        """Return when no replica of a topic is being moved any more; `on_progress` gets the partitions left."""
        self._loop.run(self._admin.wait_until_placed(name, on_progress))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records before these offsets; return the new log start offset of each partition."""
        return self._loop.run(self._admin.delete_records(before))

    def earliest_offsets(self, topic: str) -> dict[TopicPartition, int]:
        """Return the offset of the oldest record of each partition."""
        return self._loop.run(self._admin.earliest_offsets(topic))

    def latest_offsets(self, topic: str) -> dict[TopicPartition, int]:
        """Return the end offset of each partition: that of the next record to be written."""
        return self._loop.run(self._admin.latest_offsets(topic))

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[TopicPartition, int]:
        """Return the offset of the first record at or after a timestamp; -1 for a partition without one."""
        return self._loop.run(self._admin.offsets_at(topic, timestamp_ms))

    def list_groups(self) -> list[GroupInfo]:
        return self._loop.run(self._admin.list_groups())

    def describe_group(self, name: str) -> GroupDescription:
        """Return the members, assignments and lag of a group."""
        return self._loop.run(self._admin.describe_group(name))

    def delete_group(self, name: str) -> None:
        """Delete a group without members, and its committed offsets."""
        self._loop.run(self._admin.delete_group(name))

    def reset_offsets(
        self, group: str, topic: str, to: str | int | Mapping[int, int], *, dry_run: bool = False
    ) -> dict[TopicPartition, int]:
        """Reset the committed offsets of a group without members in a topic: all partitions to "earliest", "latest" or
        a timestamp in ms, or the partitions in `to` to the offsets given there."""
        return self._loop.run(self._admin.reset_offsets(group, topic, to, dry_run=dry_run))

    def describe_cluster(self) -> ClusterDescription:
        return self._loop.run(self._admin.describe_cluster())

    def cluster_state(self) -> ClusterState:
        """Return the brokers, and the partitions that have no leader or replicas that are behind."""
        return self._loop.run(self._admin.cluster_state())

    def ping(self) -> None:
        """Check that a broker answers."""
        self._loop.run(self._admin.ping())
