"""Consumer groups, run on the partitions of `__offsets`. Every protocol's members meet here.

A request is decided, written and applied in one step, without an `await`; what takes time, the disk or the other
members of the group, comes back as a future. A member that goes away while it waits cancels its future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from flymq.broker.consumer_groups import ConsumerGroups
from flymq.broker.deadlines import Deadlines
from flymq.broker.group_log import Durable, GroupLog
from flymq.broker.internal_topics import InternalTopic
from flymq.broker.lag import Lag, LagMeter
from flymq.broker.topics import Topics
from flymq.coordination.consumer_group import ConsumerGroup
from flymq.coordination.entries import NO_GENERATION, Entry, MemberValue, OffsetValue, ProducerIdentity
from flymq.coordination.group import Group, GroupLimits, GroupState, Join
from flymq.coordination.groups import AnyGroup
from flymq.host.clock import Clock
from flymq.host.entropy import Entropy, new_id
from flymq.model.errors import (
    FlyMQError,
    GroupNotEmpty,
    InvalidRequest,
    MemberFenced,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    UnknownMember,
)
from flymq.model.names import TopicPartition

T = TypeVar("T")
NO_OFFSET = -1
OffsetsToCommit = Mapping[TopicPartition, OffsetValue]


@dataclass(slots=True)
class Joined:
    """A member's place in a generation."""

    member_id: str
    generation: int
    kind: str
    protocol: str
    leader: str
    assigns: bool
    """Whether this member has to share out for everybody."""
    members: Sequence[MemberValue] = ()
    """All members, for the one that shares out."""


@dataclass(frozen=True, slots=True)
class Committer:
    """Who commits: a member of a generation, or somebody from outside."""

    member_id: str = ""
    generation: int = NO_GENERATION
    instance: str = ""


@dataclass(slots=True)
class _Waiting:
    """Members of one group that wait for an answer."""

    joins: dict[str, asyncio.Future[Joined]] = field(default_factory=dict)
    syncs: dict[str, asyncio.Future[bytes]] = field(default_factory=dict)


class Groups:
    """All groups of this broker."""

    def __init__(
        self, topic: InternalTopic, topics: Topics, clock: Clock, entropy: Entropy, limits: GroupLimits
    ) -> None:
        self._log = GroupLog(topic, limits)
        self._topics = topics
        self._clock = clock
        self._entropy = entropy
        self._limits = limits
        self.consumers = ConsumerGroups(self._log, topics, clock, entropy, limits)
        """Membership in groups of the other type; whatever else there is to a group is here for both."""
        self._waiting: dict[str, _Waiting] = {}
        self._until_stable: dict[str, dict[asyncio.Future[None], None]] = {}
        self._deadlines = Deadlines(clock, self._look_at)
        self._lag_meter = LagMeter(clock)
        self._is_closed = False
        self._generations_begun = 0

    @property
    def rebalances(self) -> int:
        """How often a group was shared out anew since the start, for metrics."""
        return self._generations_begun + self.consumers.rebalances

    def open(self) -> None:
        """Replay the log and go on where it ends."""
        self._log.replay()
        for group in self._log:
            self._forget_topics(group, {name.topic for name in group.offsets.committed if not self._exists(name)})
            if isinstance(group, Group):
                group.begin_sessions(self._clock.monotonic_s())
                self._advance(group)
        self.consumers.open()
        self._topics.watchers.append(self._topic_changed)

    def close(self) -> None:
        """Let nobody wait any more. Whoever did is no less a member for it."""
        self._is_closed = True
        self._deadlines.close()
        self.consumers.close()
        for waiting in self._waiting.values():
            for join in waiting.joins.values():
                join.cancel()
            for sync in waiting.syncs.values():
                sync.cancel()

    # --- membership

    def join(self, name: str, join: Join, *, needs_id: bool = False) -> asyncio.Future[Joined]:
        """Let a member in; the future is done when the generation it is part of begins.

        `needs_id`: a new member is first told its id, by the error `MemberIdRequired`, and comes back with it.
        """
        if not name:
            raise InvalidRequest("a group needs a name")
        table = self._log.table(name)
        if entries := table.decide_type(name, Group, self._clock.now_ms()):
            self._log.write(name, entries)
        group = table.get_or_add(name)
        assert isinstance(group, Group)
        now_s = self._clock.monotonic_s()
        durable: Durable = None
        try:
            group.check_join(join)
            new_member_id = f"{join.instance or join.client_id or 'member'}-{new_id(self._entropy)}"
            if (replaced := group.find_replaced(join)) is not None:
                durable = self._replace(group, replaced, new_member_id)
            elif needs_id and not join.member_id and not join.instance:
                raise group.promise_id(new_member_id, join, now_s)
            member_id = group.join(join, new_member_id, now_s)
        finally:
            table.drop_if_unused(group)
            self._deadlines.set(name, group.next_deadline_s())
        answer: asyncio.Future[Joined] = asyncio.get_running_loop().create_future()
        if group.state is not GroupState.PREPARING:
            _resolve(answer, durable, self._joined(group, member_id))
            return answer
        waiting = self._waiting_in(group)
        _fail(waiting.joins.pop(member_id, None), RebalanceInProgress("the same member has joined again"))
        waiting.joins[member_id] = answer
        answer.add_done_callback(partial(self._join_ended, group, member_id, bool(join.member_id)))
        self._advance(group)
        return answer

    def sync(self, name: str, committer: Committer, shares: Mapping[str, bytes] | None = None) -> asyncio.Future[bytes]:
        """Return this member's share, once it is known; the member that shares out brings everybody's."""
        group = self._find(name, committer.member_id)
        group.sync(committer.member_id, committer.generation, self._clock.monotonic_s(), instance=committer.instance)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        waiting = self._waiting_in(group)
        _fail(waiting.syncs.pop(committer.member_id, None), RebalanceInProgress("the same member asks again"))
        waiting.syncs[committer.member_id] = answer
        entries = group.decide_shares(committer.member_id, committer.generation, shares or {}, self._clock.now_ms())
        self._answer_syncs(group, self._log.write(name, entries) if entries else None)
        return answer

    def heartbeat(self, name: str, member: Committer) -> None:
        """A member lives."""
        group = self._find(name, member.member_id)
        group.heartbeat(member.member_id, member.generation, self._clock.monotonic_s(), instance=member.instance)

    def leave(self, name: str, member_id: str, *, instance: str = "") -> None:
        """A member goes."""
        group = self._find(name, member_id)
        group.leave(member_id, self._clock.monotonic_s(), instance=instance)
        waiting = self._waiting_in(group)
        for futures in (waiting.joins, waiting.syncs):
            _fail(futures.pop(member_id, None), UnknownMember(f"{member_id} has left"))
        self._advance(group)

    def _replace(self, group: Group, old: str, new: str) -> Durable:
        entries = group.decide_replace(old, new)
        durable = self._log.write(group.name, entries) if entries else None
        group.replace(old, new)
        waiting = self._waiting_in(group)
        for futures in (waiting.joins, waiting.syncs):
            _fail(futures.pop(old, None), MemberFenced(f"{new} has taken the place of {old}"))
        return durable

    def _join_ended(self, group: Group, member_id: str, was_told_its_id: bool, answer: asyncio.Future[Joined]) -> None:
        """Notice a member whose connection went away while it waited."""
        joins = self._waiting_in(group).joins
        if answer.cancelled() and joins.get(member_id) is answer and not self._is_closed:
            del joins[member_id]
            group.stop_waiting(member_id, self._clock.monotonic_s(), was_told_its_id=was_told_its_id)
            self._advance(group)

    # --- from one generation to the next

    def _look_at(self, name: str) -> float | None:
        """A deadline of the group has come, or had come before somebody spoke."""
        group = self._log.table(name).find(name)
        if not isinstance(group, Group):
            return None
        for member_id in group.expire(self._clock.monotonic_s()):
            _fail(self._waiting_in(group).syncs.pop(member_id, None), UnknownMember(f"{member_id} was silent"))
        self._advance(group)
        return group.next_deadline_s()

    def _advance(self, group: Group) -> None:
        """Begin the next generation if everybody is there; else see to it that somebody looks again."""
        waiting = self._waiting_in(group)
        if group.state is GroupState.PREPARING:
            for future in _take_all(waiting.syncs):
                _fail(future, RebalanceInProgress(f"the group {group.name!r} is being shared out anew"))
        if group.is_ready(self._clock.monotonic_s()):
            counts = {topic: self._count_partitions(topic) for topic in group.topics()}
            durable = self._log.write(group.name, group.decide_generation(counts, self._clock.now_ms()))
            self._generations_begun += 1
            group.begin_sessions(self._clock.monotonic_s())
            joins, waiting.joins = waiting.joins, {}
            for member_id, answer in joins.items():
                _resolve(answer, durable, self._joined(group, member_id))
        if not waiting.joins and not waiting.syncs:
            self._waiting.pop(group.name, None)
        self._deadlines.set(group.name, group.next_deadline_s())

    def _answer_syncs(self, group: Group, durable: Durable) -> None:
        if group.state is GroupState.STABLE:
            syncs = self._waiting_in(group).syncs
            for member_id in list(syncs):
                _resolve(syncs.pop(member_id), durable, group.members[member_id].value.share)

    def _joined(self, group: Group, member_id: str) -> Joined:
        value = group.value
        assigns = value.leader == member_id and not value.is_shared
        # A leader that comes back to a group whose shares are known is told of no leader: it would share out again.
        leader = value.leader if assigns or value.leader != member_id else ""
        return Joined(
            member_id,
            value.generation,
            value.kind,
            value.protocol,
            leader,
            assigns,
            value.members if assigns else (),
        )

    def _topic_changed(self, topic: str) -> None:
        """A topic has come, gone or grown."""
        for group in self._log:
            if topic not in self._topics:
                self._forget_topics(group, {topic})
            if isinstance(group, ConsumerGroup):
                self.consumers.topic_changed(group, topic)
            elif group.members and topic in group.topics():
                counts = {name: self._count_partitions(name) for name in group.topics()}
                group.reconsider(counts, self._clock.monotonic_s())
                self._advance(group)

    # --- offsets

    def commit(
        self, name: str, committer: Committer, offsets: OffsetsToCommit
    ) -> tuple[dict[TopicPartition, FlyMQError], Durable]:
        """Save how far the group has read; return what is wrong with some of it, and when the rest is safe."""
        group = self._check_commit(name, committer)
        good, errors = self._check_offsets(offsets)
        durable = self._log.write(name, group.offsets.decide_commit(good)) if good else None
        self._log.table(name).drop_if_unused(group)
        return errors, durable

    def commit_in_transaction(
        self, name: str, committer: Committer, producer: ProducerIdentity, offsets: OffsetsToCommit
    ) -> tuple[dict[TopicPartition, FlyMQError], Durable]:
        """As `commit`, but the offsets count only once the producer's transaction commits.

        A producer that does not say for which member it commits is taken at its word: its transactional id, which only
        one producer holds, stands for the member.
        """
        is_anonymous = committer == Committer()
        group = self._log.table(name).get_or_add(name) if is_anonymous else self._check_commit(name, committer)
        good, errors = self._check_offsets(offsets)
        durable = self._log.write(name, group.offsets.decide_pend(producer, good)) if good else None
        self._log.table(name).drop_if_unused(group)
        return errors, durable

    def end_transaction(self, name: str, producer: ProducerIdentity, *, committed: bool) -> Durable:
        """Let the offsets of a transaction count, or drop them; to do it again is harmless."""
        group = self._log.table(name).find(name)
        entries = [] if group is None else group.offsets.decide_end(producer, committed=committed)
        durable = self._log.write(name, entries) if entries else None
        for waiting in self._until_stable.pop(name, ()):
            if not waiting.done():
                waiting.set_result(None)
        return durable

    def durable(self, name: str) -> Durable:
        """Return when everything written so far about the group is on the disk."""
        return self._log.durable(name)

    def committed(self, name: str) -> dict[TopicPartition, OffsetValue]:
        """Return how far the group has read; nothing for one that is not known."""
        group = self._log.table(name).find(name)
        return {} if group is None else group.offsets.committed

    def is_stable(self, name: str, partitions: Iterable[TopicPartition] | None) -> bool:
        """Whether no open transaction is about to commit an offset of these partitions; None: of any."""
        group = self._log.table(name).find(name)
        if group is None or not group.offsets.pending:
            return True
        return partitions is not None and not any(map(group.offsets.is_pending, partitions))

    async def until_stable(self, name: str, partitions: Sequence[TopicPartition] | None) -> None:
        """Wait for the end of transactions that are about to commit offsets of these partitions."""
        while not self.is_stable(name, partitions):
            waiting = asyncio.get_running_loop().create_future()
            self._until_stable.setdefault(name, {})[waiting] = None
            try:
                await waiting
            finally:
                self._until_stable.get(name, {}).pop(waiting, None)

    def check_reader(self, name: str, member_id: str, epoch: int) -> None:
        """Raise if a member asks for offsets in an epoch that is over. Only a `ConsumerGroup` wants to know."""
        group = self._log.table(name).find(name)
        if isinstance(group, ConsumerGroup) and (member_id or epoch >= 0):
            group.check_epoch(member_id, epoch)

    def _check_commit(self, name: str, committer: Committer) -> AnyGroup:
        table = self._log.table(name)
        group = table.find(name)
        if group is None and (committer.member_id or committer.generation >= 0):
            raise UnknownMember(f"the group {name!r} has no member {committer.member_id!r}")
        group = group or table.get_or_add(name)
        group.check_commit(
            committer.member_id,
            committer.generation,
            instance=committer.instance,
            now_s=self._clock.monotonic_s(),
        )
        return group

    def _check_offsets(self, offsets: OffsetsToCommit) -> tuple[OffsetsToCommit, dict[TopicPartition, FlyMQError]]:
        good: dict[TopicPartition, OffsetValue] = {}
        errors: dict[TopicPartition, FlyMQError] = {}
        for partition, value in offsets.items():
            try:
                self._topics.partition(partition)
                if len(value.metadata) > self._limits.offset_metadata_bytes_max:
                    raise OffsetMetadataTooLarge(f"a note has at most {self._limits.offset_metadata_bytes_max} bytes")
                good[partition] = value
            except FlyMQError as error:
                errors[partition] = error
        return good, errors

    def _forget_topics(self, group: AnyGroup, topics: Iterable[str]) -> None:
        gone = set(topics)
        entries = group.offsets.decide_forget([name for name in group.offsets.committed if name.topic in gone])
        if entries:
            self._log.write(group.name, entries)

    # --- administration

    def list(self) -> list[AnyGroup]:
        """All groups, in the order of their names."""
        return sorted(self._log, key=lambda group: group.name)

    def get(self, name: str) -> AnyGroup:
        return self._log.table(name).get(name)

    def check_empty(self, name: str) -> None:
        """Raise if the group has members: what is done to it from outside would take them by surprise."""
        group = self._log.table(name).find(name)
        if group is not None and group.members:
            raise GroupNotEmpty(f"the group {name!r} has {len(group.members)} members")

    def lag(self, partition: TopicPartition, offset: int) -> Lag:
        """Return how far somebody who will read `offset` next is behind; unknown if the partition is gone."""
        if partition.topic not in self._topics:
            return Lag(NO_OFFSET)
        return self._lag_meter.measure(self._topics.partition(partition), offset)

    def forget_offsets(self, name: str, partitions: Collection[TopicPartition]) -> Durable:
        """Forget what a group has committed for partitions that none of its members reads."""
        group = self.get(name)
        in_use = group.topics()
        for partition in partitions:
            if partition.topic in in_use:
                raise GroupNotEmpty(f"members of the group {name!r} read {partition.topic!r}")
        entries = group.offsets.decide_forget(partitions)
        return self._log.write(name, entries) if entries else None

    def expire(self) -> None:
        """Forget offsets that nobody has used for long, and groups that have nothing left."""
        before_ms = self._clock.now_ms() - self._limits.offset_retention_ms
        for group in self.list():
            if not group.members and group.generation and group.value.changed_at_ms > before_ms:
                continue  # its members went only lately: they may come back
            unused = group.offsets.unused_since(before_ms, but_topics=group.topics())
            entries: list[Entry] = group.offsets.decide_forget(unused)
            is_left_empty = len(unused) == len(group.offsets.committed) and not group.offsets.pending
            if not group.members and is_left_empty:
                entries += group.decide_forget()
            if entries:
                self._log.write(group.name, entries)

    def delete(self, name: str) -> Durable:
        """Forget a group without members, and its offsets."""
        group = self.get(name)
        self.check_empty(name)
        entries: list[Entry] = [*group.offsets.decide_forget_all(), *group.decide_forget()]
        return self._log.write(name, entries) if entries else None

    # --- within

    def _find(self, name: str, member_id: str) -> Group:
        group = self._log.table(name).find(name)
        if not isinstance(group, Group):
            raise UnknownMember(f"the group {name!r} has no member {member_id!r}")
        return group

    def _waiting_in(self, group: Group) -> _Waiting:
        return self._waiting.setdefault(group.name, _Waiting())

    def _count_partitions(self, topic: str) -> int:
        return len(self._topics.get(topic).partitions) if topic in self._topics else 0

    def _exists(self, partition: TopicPartition) -> bool:
        return partition.topic in self._topics


def _resolve(answer: asyncio.Future[T], durable: Durable, result: T) -> None:
    """Answer once what the answer rests on is on the disk."""

    def done(future: asyncio.Future[Any]) -> None:
        if answer.done():
            return
        if future.cancelled():
            answer.cancel()
        elif (error := future.exception()) is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)

    if durable is not None:
        durable.add_done_callback(done)
    elif not answer.done():
        answer.set_result(result)


def _fail(answer: asyncio.Future[Any] | None, error: FlyMQError) -> None:
    if answer is not None and not answer.done():
        answer.set_exception(error)


def _take_all(futures: dict[str, asyncio.Future[T]]) -> list[asyncio.Future[T]]:
    taken = list(futures.values())
    futures.clear()
    return taken
