"""Admin client: create, describe, alter and delete topics, groups and the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from flymq.client.aio.cluster import Cluster
from flymq.client.aio.coordinators import GROUP
from flymq.client.aio.failover import PATIENCE_S
from flymq.client.aio.leaders import ask_leaders
from flymq.client.aio.offsets import list_offsets
from flymq.client.descriptions import (
    BrokerInfo,
    BrokerState,
    ClusterDescription,
    ClusterState,
    GroupDescription,
    GroupInfo,
    GroupLag,
    GroupMemberInfo,
    PartitionInfo,
    PartitionProblem,
    ReplicaLag,
    TopicDescription,
    TopicInfo,
)
from flymq.model.delivery import Isolation
from flymq.model.errors import FlyMQError, OffsetOutOfRange, TopicExists
from flymq.model.names import TopicPartition
from flymq.wire.native.messages import groups, topics
from flymq.wire.native.messages.records import (
    AT_EARLIEST,
    AT_LATEST,
    DeleteRecords,
    DeleteRecordsAnswer,
    DeleteRecordsPartition,
)
from flymq.wire.native.messages.session import Done, Ping

Settings = Mapping[str, str | int | float | None]
_POSITIONS = {"earliest": AT_EARLIEST, "latest": AT_LATEST}
_LOOK_S = 0.2


class AsyncAdmin:
    """Administration through any broker of the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    # --- topics -----------------------------------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        settings: Settings | None = None,
        *,
        exist_ok: bool = False,
    ) -> TopicInfo:
        """Create a topic, with the broker's defaults for what is not given. `exist_ok` keeps an existing one."""
        request = topics.CreateTopic(
            topic=name,
            partitions=partitions or 0,
            replication_factor=replication_factor or 0,
            settings=dict(settings or {}),
        )
        try:
            made = await self._cluster.tell(request, topics.CreateTopicAnswer)
        except TopicExists:
            if not exist_ok:
                raise
            described = await self.describe_topic(name)
            return TopicInfo(name, len(described.partitions), described.replication_factor, described.internal)
        self._cluster.invalidate(name)
        return TopicInfo(made.topic, made.partitions, made.replication_factor, internal=False)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records."""
        await self._cluster.tell(topics.DeleteTopic(topic=name), Done)
        self._cluster.invalidate(name)

    async def list_topics(self, *, internal: bool = False) -> list[TopicInfo]:
        """Return all topics, sorted by name; internal ones only on request."""
        answer = await self._cluster.ask(topics.ListTopics(internal=internal), topics.ListTopicsAnswer)
        return [
            TopicInfo(topic.topic, topic.partitions, topic.replication_factor, topic.internal)
            for topic in answer.topics
        ]

    async def describe_topic(self, name: str) -> TopicDescription:
        """Return the partitions, offsets, sizes and settings of a topic."""
        answer = await self._cluster.ask(topics.DescribeTopic(topic=name), topics.DescribeTopicAnswer)
        await self._find_offsets(name, answer.partitions)
        return TopicDescription(
            name=answer.topic,
            topic_id=bytes(answer.topic_id),
            internal=answer.internal,
            replication_factor=answer.replication_factor,
            partitions=[
                PartitionInfo(
                    part.partition,
                    part.leader,
                    part.replicas,
                    part.isr,
                    part.start_offset,
                    part.end_offset,
                    part.size_bytes,
                    part.problem,
                    part.elr,
                    part.adding,
                    part.removing,
                )
                for part in answer.partitions
            ],
            settings=answer.settings,
            overrides=answer.overrides,
        )

    async def _find_offsets(self, topic: str, partitions: Sequence[topics.PartitionDescription]) -> None:
        """Add the offsets of partitions that the broker does not have."""
        unknown = {
            TopicPartition(topic, part.partition): part
            for part in partitions
            if part.end_offset < 0 and not part.problem
        }
        for name, start in (await self._known_offsets(list(unknown), AT_EARLIEST)).items():
            unknown[name].start_offset = start
        for name, end in (await self._known_offsets(list(unknown), AT_LATEST)).items():
            unknown[name].end_offset = end

    async def _known_offsets(self, names: Sequence[TopicPartition], at: int) -> dict[TopicPartition, int]:
        """Return the offsets of the partitions that have a leader; nothing if the leaders do not answer soon."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                for topic in {name.topic for name in names}:
                    await self._cluster.topic(topic)
                led = [name for name in names if self._cluster.leader(*name) != topics.NO_BROKER]
                found = await list_offsets(self._cluster, dict.fromkeys(led, at), Isolation.READ_UNCOMMITTED)
        except (FlyMQError, TimeoutError):
            return {}
        return {name: part.offset for name, part in found.items()}

    async def alter_topic(self, name: str, settings: Settings) -> None:
        """Change settings of a topic; None resets a setting to its default."""
        await self._cluster.tell(topics.AlterTopic(topic=name, settings=dict(settings)), Done)
        self._cluster.invalidate(name)

    async def add_partitions(self, name: str, partitions: int) -> None:
        """Increase the number of partitions of a topic to `partitions` in total."""
        await self._cluster.tell(topics.AddPartitions(topic=name, partitions=partitions), Done)
        self._cluster.invalidate(name)

    async def place_replicas(
        self, name: str, replication_factor: int | None = None, *, brokers: Sequence[int] = ()
    ) -> None:
        """Begin to give each partition of a topic so many replicas, or as many as now; on these brokers, or on all.

        Returns before the records are copied; `wait_until_placed` waits for that.
        """
        request = topics.PlaceReplicas(topic=name, replication_factor=replication_factor or 0, brokers=list(brokers))
        await self._cluster.tell(request, Done)
        self._cluster.invalidate(name)

    async def wait_until_placed(self, name: str, on_progress: Callable[[int], None] | None = None) -> None:
        """Return when no replica of a topic is being moved any more; `on_progress` gets the partitions left."""
        left = -1
        while left:
            found = (await self.describe_topic(name)).partitions
            left, before = sum(bool(part.adding or part.removing) for part in found), left
            if left != before and on_progress is not None:
                on_progress(left)
            if left:
                await asyncio.sleep(_LOOK_S)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records before these offsets; return the new log start offset of each partition."""
        parts = [DeleteRecordsPartition(*name, int(offset)) for name, offset in before.items()]
        deleted = await ask_leaders(
            self._cluster, parts, lambda some: DeleteRecords(partitions=some), DeleteRecordsAnswer
        )
        return {TopicPartition(part.topic, part.partition): part.log_start_offset for part in deleted}

    async def earliest_offsets(self, topic: str) -> dict[TopicPartition, int]:
        """Return the offset of the oldest record of each partition."""
        return await self._offsets(topic, AT_EARLIEST)

    async def latest_offsets(self, topic: str) -> dict[TopicPartition, int]:
        """Return the end offset of each partition: that of the next record to be written."""
        return await self._offsets(topic, AT_LATEST)

    async def offsets_at(self, topic: str, timestamp_ms: int) -> dict[TopicPartition, int]:
        """Return the offset of the first record at or after a timestamp; -1 for a partition without one."""
        return await self._offsets(topic, timestamp_ms)

    async def _offsets(self, topic: str, at: int) -> dict[TopicPartition, int]:
        count = await self._partition_count(topic)
        found = await list_offsets(self._cluster, {TopicPartition(topic, n): at for n in range(count)})
        return {name: part.offset for name, part in found.items()}

    async def _partition_count(self, topic: str) -> int:
        return len((await self._cluster.retry(lambda: self._cluster.topic(topic))).partitions)

    # --- groups -----------------------------------------------------------------------------------------------------

    async def list_groups(self) -> list[GroupInfo]:
        """Return all groups, sorted by name. Each broker lists those that it coordinates."""
        return await self._cluster.retry(self._list_groups)

    async def _list_groups(self) -> list[GroupInfo]:
        brokers = [broker.broker for broker in (await self.describe_cluster()).brokers] or [topics.NO_BROKER]
        found: dict[str, GroupInfo] = {}
        for broker in brokers:
            answer = await self._cluster.tell(groups.ListGroups(), groups.ListGroupsAnswer, broker=broker)
            found |= {group.group: GroupInfo(group.group, group.state, group.members) for group in answer.groups}
        return [found[name] for name in sorted(found)]

    async def describe_group(self, name: str) -> GroupDescription:
        """Return the members, assignments and lag of a group."""
        request = groups.DescribeGroup(group=name)
        answer = await self._cluster.coordinators.ask(GROUP, name, request, groups.DescribeGroupAnswer)
        await self._find_lag(answer.positions)
        return GroupDescription(
            name=answer.group,
            state=answer.state,
            assignor=answer.assignor,
            members=[
                GroupMemberInfo(
                    member.member,
                    member.client_id,
                    member.host,
                    [TopicPartition(part.topic, n) for part in member.partitions for n in part.partitions],
                )
                for member in answer.members
            ],
            positions=[
                GroupLag(part.topic, part.partition, part.offset, part.end_offset, part.lag, part.lag_ms, part.member)
                for part in answer.positions
            ],
        )

    async def _find_lag(self, positions: Sequence[groups.GroupPosition]) -> None:
        """Add the lag in partitions that the coordinator does not have."""
        unknown = {TopicPartition(part.topic, part.partition): part for part in positions if part.end_offset < 0}
        for name, end in (await self._known_offsets(list(unknown), AT_LATEST)).items():
            part = unknown[name]
            part.end_offset = end
            if part.offset >= 0:
                part.lag = max(end - part.offset, 0)

    async def delete_group(self, name: str) -> None:
        """Delete a group without members, and its committed offsets."""
        await self._cluster.coordinators.tell(GROUP, name, groups.DeleteGroup(group=name), Done)

    async def reset_offsets(
        self, group: str, topic: str, to: str | int | Mapping[int, int], *, dry_run: bool = False
    ) -> dict[TopicPartition, int]:
        """Reset the committed offsets of a group without members in a topic: all partitions to "earliest", "latest" or
        a timestamp in ms, or the partitions in `to` to the offsets given there."""
        await self._cluster.coordinators.ask(
            GROUP, group, groups.ResetOffsets(group=group, validate_only=True), groups.ResetOffsetsAnswer
        )  # raises if it has members
        if isinstance(to, Mapping):
            targets = await self._checked({TopicPartition(topic, number): int(at) for number, at in to.items()})
        else:
            names = [TopicPartition(topic, number) for number in range(await self._partition_count(topic))]
            targets = await self._found(dict.fromkeys(names, _POSITIONS[to] if isinstance(to, str) else int(to)))
        if targets and not dry_run:
            await self._cluster.coordinators.ask(
                GROUP, group, groups.Commit(group=group, offsets=list(targets.values())), groups.CommitAnswer
            )
        return {name: target.offset for name, target in targets.items()}

    async def _found(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, groups.OffsetToCommit]:
        """Return the offsets at these positions or timestamps; the end where there is no later record."""
        found = await list_offsets(self._cluster, wanted)
        missing = {name: AT_LATEST for name, part in found.items() if part.offset < 0}
        if missing:
            found |= await list_offsets(self._cluster, missing)
        return {name: groups.OffsetToCommit(*name, found[name].offset, found[name].leader_epoch) for name in wanted}

    async def _checked(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, groups.OffsetToCommit]:
        """Return these offsets if they are in their logs."""
        starts = await list_offsets(self._cluster, dict.fromkeys(wanted, AT_EARLIEST))
        ends = await list_offsets(self._cluster, dict.fromkeys(wanted, AT_LATEST), Isolation.READ_UNCOMMITTED)
        for name, offset in wanted.items():
            start, end = starts[name].offset, ends[name].offset
            if not start <= offset <= end:
                raise OffsetOutOfRange(f"{name} has the offsets {start} to {end}")
        return {name: groups.OffsetToCommit(*name, offset) for name, offset in wanted.items()}

    # --- the cluster ------------------------------------------------------------------------------------------------

    async def describe_cluster(self) -> ClusterDescription:
        answer = await self._cluster.ask(topics.Metadata(topics=[]), topics.MetadataAnswer)
        for broker in answer.brokers:
            self._cluster.brokers.learn(broker.broker, (broker.host, broker.port))
        return ClusterDescription(
            cluster_id=answer.cluster_id,
            controller=answer.controller,
            brokers=[BrokerInfo(broker.broker, broker.host, broker.port, broker.rack) for broker in answer.brokers],
        )

    async def cluster_state(self) -> ClusterState:
        """Return the brokers, and the partitions that have no leader or replicas that are behind."""
        answer = await self._cluster.ask(topics.DescribeCluster(), topics.DescribeClusterAnswer)
        return ClusterState(
            answer.cluster_id,
            answer.controller,
            [
                BrokerState(each.broker, each.host, each.port, each.rack, each.live, each.draining)
                for each in answer.brokers
            ],
            answer.topics,
            answer.partitions,
            answer.offline,
            answer.under_replicated,
            answer.under_min_isr,
            [_problem(each) for each in answer.problems],
        )

    async def ping(self) -> None:
        """Check that a broker answers."""
        await self._cluster.ask(Ping(), Done)


def _problem(part: topics.PartitionProblem) -> PartitionProblem:
    return PartitionProblem(
        part.topic,
        part.partition,
        part.leader,
        part.replicas,
        part.isr,
        part.elr,
        part.min_isr,
        [ReplicaLag(lag.broker, lag.records, lag.behind_ms) for lag in part.lags],
    )
