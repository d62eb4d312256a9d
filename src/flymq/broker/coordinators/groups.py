"""The group coordinator, on the partitions of `__offsets`, for members of all protocols.

A request is decided, written and applied in one step, without an `await`; waiting for the disk or for other members is
a future. A member that disconnects while it waits cancels its future.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from flymq.broker.coordinators.consumer_groups import ConsumerGroups
from flymq.broker.coordinators.deadlines import Deadlines
from flymq.broker.coordinators.state_log import Leadership, StateLog
from flymq.broker.coordinators.streams_groups import StreamsGroups
from flymq.broker.coordinators.unanswered import Joined as Joined
from flymq.broker.coordinators.unanswered import Unanswered, answer_when_safe, fail, resolve, take_all
from flymq.broker.replicas.lag import Lag, LagMeter
from flymq.broker.replicas.replicas import Replicas
from flymq.broker.safety import Safe
from flymq.cluster.image import Image
from flymq.coordination.consumer_group import ConsumerGroup
from flymq.coordination.entries import NO_GENERATION, Entry, OffsetValue, ProducerIdentity
from flymq.coordination.group import Commit, Group, GroupLimits, GroupState, Join
from flymq.coordination.groups import AnyGroup, GroupTable
from flymq.coordination.streams_group import StreamsGroup
from flymq.host.clock import Clock
from flymq.host.entropy import Entropy, new_id
from flymq.host.tasks import Tasks
from flymq.model.errors import (
    FlyMQError,
    GroupNotEmpty,
    InvalidRequest,
    MemberFenced,
    NotCoordinator,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    StorageError,
    UnknownMember,
)
from flymq.model.names import TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")
NO_OFFSET = -1
_RETRY_S = 1.0
OffsetsToCommit = Mapping[TopicPartition, OffsetValue]


@dataclass(frozen=True, slots=True)
class Committer:
    """The sender of a commit: a member of a generation, or a client that is not a member."""

    member_id: str = ""
    generation: int = NO_GENERATION
    instance: str = ""

    def commit_of(self, partitions: Collection[TopicPartition], *, in_transaction: bool = False) -> Commit:
        return Commit(self.member_id, self.generation, self.instance, partitions, in_transaction)


class MemberListener(Protocol):
    """A member that runs on this broker, for a client without a group protocol."""

    def rebalancing(self) -> None:
        """The group is rebalancing: rejoin."""

    def removed(self) -> None:
        """The member was removed from the group."""


class Groups:
    """The groups that this broker coordinates."""

    def __init__(
        self,
        log: StateLog[GroupTable],
        image: Image,
        replicas: Replicas,
        clock: Clock,
        entropy: Entropy,
        tasks: Tasks,
        limits: GroupLimits,
    ) -> None:
        self._log = log
        self._image = image
        self._replicas = replicas
        self._clock = clock
        self._entropy = entropy
        self._limits = limits
        self._leadership = Leadership(log, replicas, tasks, self._loaded, self._resigned)
        self.consumers = ConsumerGroups(log, image, clock, entropy, limits, self._migrated, self._tell)
        """Membership in groups of the consumer protocol; everything else is here for both types."""
        self.streams = StreamsGroups(log, image, clock, limits)
        """Membership in streams groups."""
        self._unanswered: dict[str, Unanswered] = {}
        self._until_stable: dict[str, dict[asyncio.Future[None], None]] = {}
        self._listeners: dict[str, dict[MemberListener, str]] = {}  # group → listener → member id
        self._deadlines = Deadlines(clock, self._look_at)
        self._lag_meter = LagMeter(clock)
        self._is_closed = False
        self._generations_begun = 0

    @property
    def rebalances(self) -> int:
        """Number of rebalances since the start, for metrics."""
        return self._generations_begun + self.consumers.rebalances + self.streams.rebalances

    async def open(self) -> None:
        """Load the groups whose partitions this broker leads, and follow changes of leadership from now on."""
        await self._leadership.open()
        self._replicas.topic_watchers.append(self._topic_changed)

    async def _loaded(self, _number: int, table: GroupTable) -> None:
        for group in table:
            with suppress(StorageError):  # on a full disk they stay until they expire
                gone = {name.topic for name in group.offsets.committed if not self._exists(name)}
                self._delete_offsets_of(group, gone)
            if isinstance(group, Group):
                group.begin_sessions(self._clock.monotonic_s())
                with suppress(StorageError):  # retried at the deadline that was set
                    self._advance(group)
        self.consumers.loaded(table)
        self.streams.loaded(table)

    def _resigned(self, number: int, table: GroupTable) -> None:
        """Another broker coordinates these groups now: their members have to find it."""
        error = NotCoordinator(f"another broker leads {self._log.topic}-{number}")
        for group in table:
            self._unanswered.pop(group.name, Unanswered()).fail_all(error)
            for waiting in self._until_stable.pop(group.name, ()):
                fail(waiting, error)
            for listener in self._listeners.pop(group.name, {}):
                listener.removed()

    def close(self) -> None:
        """Cancel waiting requests. The members stay in their groups."""
        self._is_closed = True
        self._deadlines.close()
        self.consumers.close()
        self.streams.close()
        for unanswered in self._unanswered.values():
            for join in unanswered.joins.values():
                join.cancel()
            for sync in unanswered.syncs.values():
                sync.cancel()

    # --- membership

    def join(self, name: str, join: Join, *, needs_id: bool = False) -> asyncio.Future[Joined]:
        """Add a member; the future is done when its generation begins.

        `needs_id`: a new member first gets its id, by the error `MemberIdRequired`, and has to join again with it.
        """
        if not name:
            raise InvalidRequest("the group id must not be empty")
        table = self._log.table(name)
        if isinstance(found := table.find(name), ConsumerGroup) and found.members:
            place, safe = self.consumers.join(found, join, self._new_member_id(join), needs_id=needs_id)
            joined = Joined(place.member_id, place.epoch, join.kind, join.protocols[0][0], leader="", assigns=False)
            return answer_when_safe(safe, joined)
        if entries := table.decide_type(name, Group, self._clock.now_ms()):
            self._write(name, entries)
        group = table.get_or_add(name)
        assert isinstance(group, Group)
        now_s = self._clock.monotonic_s()
        try:
            group.check_join(join)
            new_member_id = self._new_member_id(join)
            if (replaced := group.find_replaced(join)) is not None:
                self._replace(group, replaced, new_member_id)
            elif needs_id and not join.member_id and not join.instance:
                raise group.promise_id(new_member_id, join, now_s)
            member_id = group.join(join, new_member_id, now_s)
        finally:
            table.drop_if_unused(group)
            self._deadlines.set(name, group.next_deadline_s())
        answer: asyncio.Future[Joined] = asyncio.get_running_loop().create_future()
        if group.state is not GroupState.PREPARING:
            resolve(answer, self.safe(name), self._joined(group, member_id))
            return answer
        unanswered = self._unanswered_in(group)
        fail(unanswered.joins.pop(member_id, None), RebalanceInProgress("the member has sent another join"))
        unanswered.joins[member_id] = answer
        answer.add_done_callback(partial(self._join_ended, group, member_id, bool(join.member_id)))
        with suppress(StorageError):  # the answer has it
            self._advance(group)
        return answer

    def sync(
        self, name: str, committer: Committer, assignments: Mapping[str, bytes] | None = None
    ) -> asyncio.Future[bytes]:
        """Return the assignment of this member, once it is known; the group leader passes those of all members."""
        group = self._find(name, committer.member_id)
        if isinstance(group, ConsumerGroup):
            return answer_when_safe(*self.consumers.sync(group, committer.member_id, committer.generation))
        group.sync(committer.member_id, committer.generation, self._clock.monotonic_s(), instance=committer.instance)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        unanswered = self._unanswered_in(group)
        fail(unanswered.syncs.pop(committer.member_id, None), RebalanceInProgress("the member has sent another sync"))
        unanswered.syncs[committer.member_id] = answer
        entries = group.decide_assignments(
            committer.member_id, committer.generation, assignments or {}, self._clock.now_ms()
        )
        try:
            if entries:
                self._write(name, entries)
        except StorageError:
            del unanswered.syncs[committer.member_id]
            raise
        self._answer_syncs(group)
        return answer

    def heartbeat(self, name: str, member: Committer) -> None:
        """Extend the session of a member."""
        group = self._find(name, member.member_id)
        if isinstance(group, ConsumerGroup):
            self.consumers.classic_heartbeat(group, member.member_id, member.generation, instance=member.instance)
            return
        group.heartbeat(member.member_id, member.generation, self._clock.monotonic_s(), instance=member.instance)

    def session_timeout_ms(self, name: str, member_id: str) -> int:
        """Return the session timeout of a classic member."""
        group = self._find(name, member_id)
        if isinstance(group, ConsumerGroup):
            classic = group.members[member_id].value.classic
            return group.limits.consumer_session_timeout_ms if classic is None else classic.session_timeout_ms
        return group.members[member_id].value.session_timeout_ms

    def leave(self, name: str, member_id: str, *, instance: str = "") -> None:
        """Remove a member."""
        group = self._find(name, member_id)
        if isinstance(group, ConsumerGroup):
            self.consumers.leave(group, member_id, instance=instance)
            return
        group.leave(member_id, self._clock.monotonic_s(), instance=instance)
        unanswered = self._unanswered_in(group)
        for futures in (unanswered.joins, unanswered.syncs):
            fail(futures.pop(member_id, None), UnknownMember(f"{member_id} has left"))
        self._advance(group)

    def _migrated(self, name: str) -> None:
        """A group with members has changed its type: all classic members have to rejoin."""
        error = RebalanceInProgress(f"the group {name!r} changes its protocol")
        self._unanswered.pop(name, Unanswered()).fail_all(error)
        group = self._log.table(name).get(name)
        if isinstance(group, Group):
            group.begin_sessions(self._clock.monotonic_s())
            group.rebalance(self._clock.monotonic_s())
            self._advance(group)

    def _new_member_id(self, join: Join) -> str:
        return f"{join.instance or join.client_id or 'member'}-{new_id(self._entropy)}"

    def _replace(self, group: Group, old: str, new: str) -> None:
        entries = group.decide_replace(old, new)
        if entries:
            self._write(group.name, entries)
        group.replace(old, new)
        unanswered = self._unanswered_in(group)
        for futures in (unanswered.joins, unanswered.syncs):
            fail(futures.pop(old, None), MemberFenced(f"{new} has replaced {old}"))

    def _join_ended(self, group: Group, member_id: str, was_told_its_id: bool, answer: asyncio.Future[Joined]) -> None:
        """Handle a member that disconnects while it waits."""
        joins = self._unanswered_in(group).joins
        if answer.cancelled() and joins.get(member_id) is answer and not self._is_closed:
            del joins[member_id]
            group.stop_waiting(member_id, self._clock.monotonic_s(), was_told_its_id=was_told_its_id)
            self._advance(group)

    # --- rebalance

    def _look_at(self, name: str) -> float | None:
        """Remove the members that timed out; return the next deadline."""
        table = self._log.find_table(self._log.number_of(name))
        group = None if table is None else table.find(name)
        if not isinstance(group, Group):
            return None
        for member_id in group.expire(self._clock.monotonic_s()):
            fail(self._unanswered_in(group).syncs.pop(member_id, None), UnknownMember(f"{member_id} timed out"))
        self._tell_removed(group)
        self._advance(group)
        return group.next_deadline_s()

    def _advance(self, group: Group) -> None:
        """Begin the next generation if all members have joined; else set a deadline."""
        unanswered = self._unanswered_in(group)
        if group.state is GroupState.PREPARING:
            for future in take_all(unanswered.syncs):
                fail(future, RebalanceInProgress(f"the group {group.name!r} is rebalancing"))
        if group.is_ready(self._clock.monotonic_s()):
            counts = {topic: self._count_partitions(topic) for topic in group.topics()}
            try:
                safe = self._write(group.name, group.decide_generation(counts, self._clock.now_ms()))
            except StorageError as error:  # nothing is applied: the members join again
                for join in take_all(unanswered.joins):
                    fail(join, error)
                self._deadlines.set(group.name, self._clock.monotonic_s() + _RETRY_S)
                raise
            self._generations_begun += 1
            group.begin_sessions(self._clock.monotonic_s())
            self._tell_removed(group)
            joins, unanswered.joins = unanswered.joins, {}
            for member_id, answer in joins.items():
                resolve(answer, safe, self._joined(group, member_id))
        elif group.state is GroupState.PREPARING:
            self._tell_rebalancing(group)
        if not unanswered.joins and not unanswered.syncs:
            self._unanswered.pop(group.name, None)
        self._deadlines.set(group.name, group.next_deadline_s())

    def _answer_syncs(self, group: Group) -> None:
        """Answer once the assignment is safe, whoever sent it: another coordinator would assign again."""
        if group.state is GroupState.STABLE:
            syncs, safe = self._unanswered_in(group).syncs, self.safe(group.name)
            for member_id in list(syncs):
                resolve(syncs.pop(member_id), safe, group.members[member_id].value.assignment)

    def _joined(self, group: Group, member_id: str) -> Joined:
        value = group.value
        assigns = value.leader == member_id and not value.is_assigned
        # A static leader that rejoins a stable group is not told that it leads: it would assign again.
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
        """A topic was created, deleted or extended. A failed write for a group must not stop the image."""
        for group in self._all():
            try:
                self._follow_topic(group, topic)
            except StorageError as error:
                logger.error("cannot update the group %s after a change of the topic %s: %s", group.name, topic, error)

    def _follow_topic(self, group: AnyGroup, topic: str) -> None:
        if topic not in self._image:
            self._delete_offsets_of(group, {topic})
        if isinstance(group, ConsumerGroup):
            self.consumers.topic_changed(group, topic)
        elif isinstance(group, StreamsGroup):
            self.streams.topic_changed(group, topic)
        elif group.members and topic in group.topics():
            counts = {name: self._count_partitions(name) for name in group.topics()}
            group.reconsider(counts, self._clock.monotonic_s())
            self._advance(group)

    # --- members that run on this broker

    def listen(self, name: str, member_id: str, listener: MemberListener) -> None:
        """Notify this member when its group rebalances or has removed it. A member may have several listeners: a client
        that has connected again, while an answer to its old connection waits."""
        self._listeners.setdefault(name, {})[listener] = member_id

    def stop_listening(self, name: str, listener: MemberListener) -> None:
        listeners = self._listeners.get(name, {})
        listeners.pop(listener, None)
        if not listeners:
            self._listeners.pop(name, None)

    def _tell(self, group: ConsumerGroup) -> None:
        """The assignments of members of both protocols have changed."""
        self._tell_removed(group)
        for listener, member_id in list(self._listeners.get(group.name, {}).items()):
            member = group.members.get(member_id)
            if member is not None and group.must_rejoin(member):
                listener.rebalancing()

    def _tell_rebalancing(self, group: Group) -> None:
        for listener, member_id in list(self._listeners.get(group.name, {}).items()):
            member = group.members.get(member_id)
            if member is not None and not member.is_joining:
                listener.rebalancing()

    def _tell_removed(self, group: AnyGroup) -> None:
        for listener, member_id in list(self._listeners.get(group.name, {}).items()):
            if member_id not in group.members:
                self.stop_listening(group.name, listener)
                listener.removed()

    # --- offsets

    def commit(
        self, name: str, committer: Committer, offsets: OffsetsToCommit
    ) -> tuple[dict[TopicPartition, FlyMQError], Safe]:
        """Commit offsets; return the errors of some, and when the others are durable."""
        group = self._check_commit(name, committer.commit_of(offsets))
        good, errors = self._check_offsets(offsets)
        safe = self._write(name, group.offsets.decide_commit(good)) if good else None
        self._log.table(name).drop_if_unused(group)
        return errors, safe

    def commit_in_transaction(
        self, name: str, committer: Committer, producer: ProducerIdentity, offsets: OffsetsToCommit
    ) -> tuple[dict[TopicPartition, FlyMQError], Safe]:
        """Like `commit`, but the offsets take effect if the producer's transaction commits.

        A producer that names no member is not checked against the group: it is fenced by its transactional id instead.
        """
        is_anonymous = committer == Committer()
        table, commit = self._log.table(name), committer.commit_of(offsets, in_transaction=True)
        group = table.get_or_add(name) if is_anonymous else self._check_commit(name, commit)
        good, errors = self._check_offsets(offsets)
        safe = self._write(name, group.offsets.decide_pend(producer, good)) if good else None
        table.drop_if_unused(group)
        return errors, safe

    def end_transaction(self, name: str, producer: ProducerIdentity, *, committed: bool) -> Safe:
        """Commit or drop the offsets of a transaction. Idempotent."""
        group = self._log.table(name).find(name)
        entries = [] if group is None else group.offsets.decide_end(producer, committed=committed)
        safe = self._write(name, entries) if entries else None
        for waiting in self._until_stable.pop(name, ()):
            if not waiting.done():
                waiting.set_result(None)
        return safe

    def home_of(self, name: str) -> TopicPartition:
        """Return the partition to which the group belongs; the broker that leads it is its coordinator."""
        return TopicPartition(self._log.topic, self._log.number_of(name))

    def check_coordinates(self, name: str) -> None:
        """Raise an error unless this broker coordinates the group."""
        self._log.table(name)

    def leader_epoch(self, name: str) -> int:
        """Return the epoch of the coordinator of the group."""
        return self._log.leader_epoch(self._log.number_of(name))

    def has_pending(self, name: str, producer: ProducerIdentity) -> bool:
        """Whether the transaction of this producer has offsets of the group."""
        group = self._log.table(name).find(name)
        return group is not None and producer in group.offsets.waiting_for()

    def safe(self, name: str) -> Safe:
        """Return when everything written so far for the group is durable."""
        return self._log.safe(self._log.number_of(name))

    def committed(self, name: str) -> dict[TopicPartition, OffsetValue]:
        """Return the committed offsets of a group; none if it is unknown."""
        group = self._log.table(name).find(name)
        return {} if group is None else group.offsets.committed

    def is_stable(self, name: str, partitions: Iterable[TopicPartition] | None) -> bool:
        """Whether no open transaction has offsets of these partitions; None: of any."""
        group = self._log.table(name).find(name)
        if group is None or not group.offsets.pending:
            return True
        return partitions is not None and not any(map(group.offsets.is_pending, partitions))

    async def until_stable(self, name: str, partitions: Sequence[TopicPartition] | None) -> None:
        """Wait for the end of the transactions that have offsets of these partitions."""
        while not self.is_stable(name, partitions):
            waiting = asyncio.get_running_loop().create_future()
            self._until_stable.setdefault(name, {})[waiting] = None
            try:
                await waiting
            finally:
                self._until_stable.get(name, {}).pop(waiting, None)

    def check_reader(self, name: str, member_id: str, epoch: int) -> None:
        """Raise an error if a member fetches offsets with a stale epoch. Not for a classic group."""
        group = self._log.table(name).find(name)
        if isinstance(group, (ConsumerGroup, StreamsGroup)) and (member_id or epoch >= 0):
            group.check_epoch(member_id, epoch)

    def _check_commit(self, name: str, commit: Commit) -> AnyGroup:
        table = self._log.table(name)
        group = table.find(name)
        if group is None and commit.generation >= 0:
            raise UnknownMember(f"the group {name!r} has no member {commit.member_id!r}")
        group = group or table.get_or_add(name)
        group.check_commit(commit)
        if isinstance(group, Group) and commit.member_id in group.members:
            group.members[commit.member_id].touch(self._clock.monotonic_s())
        return group

    def _check_offsets(self, offsets: OffsetsToCommit) -> tuple[OffsetsToCommit, dict[TopicPartition, FlyMQError]]:
        good: dict[TopicPartition, OffsetValue] = {}
        errors: dict[TopicPartition, FlyMQError] = {}
        for partition, value in offsets.items():
            try:
                self._image.state(partition)
                if len(value.metadata) > self._limits.offset_metadata_bytes_max:
                    bytes_max = self._limits.offset_metadata_bytes_max
                    raise OffsetMetadataTooLarge(f"the metadata of an offset has at most {bytes_max} bytes")
                if value.offset < 0:
                    raise InvalidRequest(f"the offset {value.offset} of {partition} is negative")
                good[partition] = value
            except FlyMQError as error:
                errors[partition] = error
        return good, errors

    def _delete_offsets_of(self, group: AnyGroup, topics: Iterable[str]) -> None:
        gone = set(topics)
        entries = group.offsets.decide_delete([name for name in group.offsets.committed if name.topic in gone])
        if entries:
            self._write(group.name, entries)

    # --- administration

    def check_loaded(self) -> None:
        """Raise an error while some groups that this broker coordinates are being loaded."""
        self._log.check_loaded()

    def list(self) -> list[AnyGroup]:
        """All groups that this broker coordinates, sorted by name."""
        return sorted(self._all(), key=lambda group: group.name)

    def get(self, name: str) -> AnyGroup:
        return self._log.table(name).get(name)

    def check_empty(self, name: str) -> None:
        """Raise an error if the group has members, which would not notice the change."""
        group = self._log.table(name).find(name)
        if group is not None and group.members:
            raise GroupNotEmpty(f"the group {name!r} has {len(group.members)} members")

    def lag(self, partition: TopicPartition, offset: int) -> Lag:
        """Return the lag of a reader whose next offset is `offset`; unknown if the partition was deleted."""
        found = self._replicas.find(partition)
        return Lag(NO_OFFSET) if found is None else self._lag_meter.measure(found, offset)

    def forget_offsets(self, name: str, partitions: Collection[TopicPartition]) -> Safe:
        """Delete committed offsets of partitions that no member reads."""
        group = self.get(name)
        in_use = group.topics()
        for partition in partitions:
            if partition.topic in in_use:
                raise GroupNotEmpty(f"members of the group {name!r} read {partition.topic!r}")
        entries = group.offsets.decide_delete(partitions)
        return self._write(name, entries) if entries else None

    def expire(self, now_ms: int) -> None:
        """Delete unused offsets, and groups without members and offsets."""
        before_ms = now_ms - self._limits.offset_retention_ms
        for group in self.list():
            if not group.members and group.generation and group.value.changed_at_ms > before_ms:
                continue  # its members left only recently: they may come back
            unused = group.offsets.unused_since(before_ms, but_topics=group.topics())
            entries: list[Entry] = group.offsets.decide_delete(unused)
            is_left_empty = len(unused) == len(group.offsets.committed) and not group.offsets.pending
            if not group.members and is_left_empty:
                entries += group.decide_delete()
            if entries:
                self._write(group.name, entries)

    def delete(self, name: str) -> Safe:
        """Delete a group without members, and its offsets."""
        group = self.get(name)
        self.check_empty(name)
        entries: list[Entry] = [*group.offsets.decide_delete_all(), *group.decide_delete()]
        return self._write(name, entries) if entries else None

    # --- internal

    def _all(self) -> Iterator[AnyGroup]:
        for table in self._log.tables():
            yield from table

    def _write(self, name: str, entries: Sequence[Entry]) -> Safe:
        return self._log.write(self._log.number_of(name), entries)

    def _find(self, name: str, member_id: str) -> Group | ConsumerGroup:
        group = self._log.table(name).find(name)
        if group is None or isinstance(group, StreamsGroup):
            raise UnknownMember(f"the group {name!r} has no member {member_id!r}")
        return group

    def _unanswered_in(self, group: Group) -> Unanswered:
        return self._unanswered.setdefault(group.name, Unanswered())

    def _count_partitions(self, topic: str) -> int:
        found = self._image.find(topic)
        return 0 if found is None else len(found.partitions)

    def _exists(self, partition: TopicPartition) -> bool:
        return partition.topic in self._image
