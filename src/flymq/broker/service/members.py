"""Readers and group members that run on the broker, for clients without a position or a group protocol of their own.

A `Reader` keeps the next offset of each of its partitions: it serves push to native clients, and live streams to
browsers. A `Member` is a reader in a consumer group: it joins, keeps its assignment, and rejoins at once when the group
rebalances. The requests of its client are its heartbeats: without any in its session timeout, it is removed from the
group like any other member.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil

from flymq.broker.replicas.fetching import FetchFrom, FetchQuery, PendingFetch
from flymq.broker.replicas.partition import PartitionRead, View
from flymq.broker.safety import Safe, wait_safe
from flymq.broker.service.caller import Caller
from flymq.broker.service.forwarding import Forwarding
from flymq.broker.service.groups import Committer, Groups, NewOffset, OffsetValue, WantedMember
from flymq.broker.service.records import EARLIEST, Fetched, Records
from flymq.host.tasks import Tasks
from flymq.model.delivery import Isolation
from flymq.model.errors import (
    ConsumerNotFound,
    FlyMQError,
    GroupFull,
    MemberFenced,
    OffsetOutOfRange,
    RebalanceInProgress,
    StaleGeneration,
    UnknownMember,
)
from flymq.model.names import TopicPartition
from flymq.record.reading import end_offset
from flymq.record.record import Record

MEMBERS_MAX = 1_000
_ELSEWHERE_S = 0.1
"""How long a leader elsewhere is waited for, while others may have records, too."""


@dataclass(slots=True)
class PartTaken:
    """Records of one partition."""

    name: TopicPartition
    records: list[Record]
    next_offset: int
    high_watermark: int


@dataclass(slots=True)
class Taken:
    """The records that a reader returns; partitions without records are omitted."""

    parts: list[PartTaken]
    throttle_ms: int = 0


class Reader:
    """Reads several partitions from its positions."""

    def __init__(self, records: Records, caller: Caller, isolation: Isolation) -> None:
        self.caller = caller
        self.isolation = isolation
        self.positions: dict[TopicPartition, int] = {}
        """The next offset of each partition."""
        self._records = records

    def start_at(self, name: TopicPartition, position: int) -> None:
        """Start to read a partition at a position: `EARLIEST` or `LATEST`."""
        self.positions[name] = self._records.find_position(self.caller, name, position, self.isolation).offset

    def fetch(self, *, bytes_max: int, wait_ms: int) -> Fetched | PendingFetch[Fetched]:
        """Read the next batches of all partitions, now or when there are some. Call `moved` to advance."""
        return self._records.fetch(self.caller, self._query(bytes_max, wait_ms))

    def moved(self, name: TopicPartition, next_offset: int) -> None:
        """Advance to this offset; the partition moves to the end of the order, so that no partition starves."""
        if name in self.positions:
            del self.positions[name]
            self.positions[name] = next_offset

    def forget(self, topic: str) -> None:
        """Drop the positions in a deleted topic: one created later with the same name starts again."""
        self.positions = {name: offset for name, offset in self.positions.items() if name.topic != topic}

    async def take(self, *, limit: int, bytes_max: int, wait_ms: int) -> Taken:
        """Return the next records, at most `limit`, and advance; wait for some. If a partition cannot be read, its
        error is raised, unless others have records: then at the next call."""
        waiting = self._records.fetch_uncounted(self.caller, self._query(bytes_max, wait_ms))
        return self.take_from(waiting if isinstance(waiting, Fetched) else await waiting, limit)

    def _query(self, bytes_max: int, wait_ms: int) -> FetchQuery:
        return FetchQuery(
            [FetchFrom(name, offset, bytes_max) for name, offset in self.positions.items()],
            bytes_max=bytes_max,
            wait_ms_max=wait_ms,
            view=View.of(self.isolation),
        )

    def take_from(self, fetched: Fetched, limit: int) -> Taken:
        """Return records of what was fetched, at most `limit`, and advance."""
        taken = Taken([])
        error: FlyMQError | None = None
        for read in fetched.reads:
            error = error or read.error
            if read.slice is None or limit <= 0 or read.name not in self.positions:
                continue
            part = self._take_part(read, read.slice.read(), limit)
            limit -= len(part.records)
            self.moved(read.name, part.next_offset)
            throttle_ms = self._records.gave(self.caller, read.name.topic, len(part.records), read.length)
            taken.throttle_ms = max(taken.throttle_ms, throttle_ms)
            taken.parts.append(part)
        if error is not None and not taken.parts:
            raise error
        return taken

    def _take_part(self, read: PartitionRead, run: bytes, limit: int) -> PartTaken:
        offset = self.positions[read.name]
        found = self._records.skipped.parse(read.name, run, offset, read.aborted)
        next_offset = found[limit].offset if len(found) > limit else (end_offset(run) or offset)
        return PartTaken(read.name, found[:limit], next_offset, read.high_watermark)


@dataclass(slots=True)
class NewMember:
    """The topics and timeouts of a member."""

    group: str
    topics: Sequence[str]
    session_timeout_ms: int
    instance: str = ""
    reset: int = EARLIEST
    """The start position in partitions without a committed offset."""


class Member(Reader):
    """One member of a group, kept between the requests of its client."""

    def __init__(self, members: Members, caller: Caller, wanted: NewMember) -> None:
        super().__init__(members.records, caller, Isolation.READ_COMMITTED)
        self.wanted = wanted
        self.member_id = ""
        self.generation = -1
        self._lock = asyncio.Lock()  # two polls at a time would read the same records
        self._members = members
        self._must_rejoin = False
        self._interrupted = asyncio.Event()

    @property
    def group(self) -> str:
        return self.wanted.group

    @property
    def committer(self) -> Committer:
        return Committer(self.member_id, self.generation, self.wanted.instance)

    # --- called by the group

    def rebalancing(self) -> None:
        """Rejoin at once, in the waiting poll or without one: the whole group waits for it."""
        if not self._must_rejoin:
            self._must_rejoin = True
            self._interrupted.set()
            self._members.tasks.spawn(f"join of {self.member_id}", self._rejoin())

    def removed(self) -> None:
        self._members.drop(self)
        self._interrupted.set()

    async def _rejoin(self) -> None:
        async with self._lock:
            if self._must_rejoin:  # a poll may have done it
                with suppress(FlyMQError):  # the next poll rejoins, and returns the error to its client
                    await self.join()

    # --- called by the client

    async def join(self) -> None:
        """Join the next generation of the group."""
        while True:
            self._must_rejoin = False
            try:
                await self._join()
                return
            except (RebalanceInProgress, StaleGeneration):
                continue  # another member joined before the assignment
            except BaseException as error:  # its positions are those of an earlier generation
                self._must_rejoin = not isinstance(error, (UnknownMember, MemberFenced))
                raise

    async def _join(self) -> None:
        groups, wanted = self._members.groups, self.wanted
        asked = WantedMember(
            wanted.topics,
            list(self.positions),
            member_id=self.member_id,
            instance=wanted.instance,
            session_timeout_ms=wanted.session_timeout_ms,
            rebalance_timeout_ms=wanted.session_timeout_ms,
        )
        joined = await groups.subscribe(self.caller, self.group, asked)
        if joined.member_id != self.member_id:
            self._members.renamed(self, joined.member_id)
        self.generation = joined.generation
        assignment = await groups.sync_partitions(self.caller, self.group, self.committer)
        committed, safe = groups.committed(self.caller, self.group)
        starts = {name: committed.get(name) for name in assignment}
        await wait_safe(safe)
        self.positions = {name: await self._start(name, start) for name, start in starts.items()}

    async def _start(self, name: TopicPartition, committed: OffsetValue | None) -> int:
        """Return the positions: its own in partitions it keeps, else the committed offset of the group."""
        if name in self.positions:
            return self.positions[name]
        if committed is not None:
            with suppress(OffsetOutOfRange):
                await self._members.groups.check_offset(self.caller, name, committed.offset)
                return committed.offset
        offset, _ = await self._members.groups.find_reset(self.caller, name, self.wanted.reset)
        return offset

    def heartbeat(self) -> None:
        """Send a heartbeat. If the group rebalances, the member rejoins by itself."""
        try:
            self._members.groups.heartbeat(self.caller, self.group, self.committer)
        except (RebalanceInProgress, StaleGeneration):
            return
        except (UnknownMember, MemberFenced) as error:
            self._members.drop(self)
            raise ConsumerNotFound(error.message) from None

    async def poll(self, *, limit: int, bytes_max: int, wait_ms: int) -> Taken:
        """Return the next records; wait up to this long for some."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + wait_ms / 1000
        async with self._lock:
            while True:
                if self._must_rejoin:
                    await self.join()
                self.heartbeat()
                self._interrupted.clear()
                left_s = max(0.0, ends_s - loop.time())
                fetched = await self._read(bytes_max, min(left_s, self.wanted.session_timeout_ms / 3000))
                taken = self.take_from(fetched, limit)
                if taken.parts or left_s == 0 or not self._records.may_wait:
                    return taken

    async def _read(self, bytes_max: int, wait_s: float) -> Fetched:
        """Read batches; return early if the group rebalances."""
        interrupted = asyncio.ensure_future(self._interrupted.wait())
        try:
            if not self.positions:
                await asyncio.wait([interrupted], timeout=wait_s)
                return Fetched([])
            if elsewhere := [name for name in self.positions if self._members.forwarding.is_elsewhere(name)]:
                return await self._read_everywhere(elsewhere, bytes_max, min(wait_s, _ELSEWHERE_S))
            reading = self._records.fetch_uncounted(self.caller, self._query(bytes_max, ceil(wait_s * 1000)))
            if isinstance(reading, Fetched):
                return reading
            interrupted.add_done_callback(lambda _: reading.finish())
            return await reading
        finally:
            interrupted.cancel()

    async def _read_everywhere(self, elsewhere: Collection[TopicPartition], bytes_max: int, wait_s: float) -> Fetched:
        """Read batches here and from other leaders, which are asked again and again: nobody tells when one has some."""
        here = self._query(bytes_max, wait_ms=0)
        here.partitions = [part for part in here.partitions if part.name not in elsewhere]
        reading = self._records.fetch_uncounted(self.caller, here) if here.partitions else Fetched([])
        reads = (reading if isinstance(reading, Fetched) else await reading).reads
        has_some = any(read.slice is not None for read in reads)
        order = {name: at for at, name in enumerate(self.positions)}
        others = await self._members.forwarding.read_many(
            self.caller,
            {name: self.positions[name] for name in elsewhere},
            self.isolation,
            bytes_max=bytes_max,
            wait_ms=0 if has_some else ceil(wait_s * 1000),
        )
        return Fetched(sorted([*reads, *others], key=lambda read: order[read.name]))

    def commit(self, offsets: Mapping[TopicPartition, NewOffset]) -> tuple[dict[TopicPartition, FlyMQError], Safe]:
        try:
            return self._members.groups.commit(self.caller, self.group, self.committer, offsets)
        except (UnknownMember, MemberFenced) as error:
            self._members.drop(self)
            raise ConsumerNotFound(error.message) from None

    def leave(self) -> None:
        self.removed()
        with suppress(UnknownMember, MemberFenced):  # the group has removed it already
            self._members.groups.leave(self.caller, self.group, self.member_id, instance=self.wanted.instance)


@dataclass(slots=True)
class Members:
    """All members that run on this broker."""

    records: Records
    groups: Groups
    tasks: Tasks
    forwarding: Forwarding
    _members: dict[tuple[str, str], Member] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._members)

    def reader(self, caller: Caller, isolation: Isolation) -> Reader:
        return Reader(self.records, caller, isolation)

    async def add(self, caller: Caller, wanted: NewMember) -> Member:
        """Join a group for a client."""
        if len(self._members) >= MEMBERS_MAX:
            raise GroupFull(f"this broker runs at most {MEMBERS_MAX} consumers for clients", hint="Delete some first.")
        member = Member(self, caller, wanted)
        try:
            await member.join()
        except BaseException:  # also if the client has disconnected
            if member.member_id:
                with suppress(FlyMQError):
                    member.leave()
            raise
        return member

    def get(self, group: str, member_id: str) -> Member:
        member = self._members.get((group, member_id))
        if member is None:
            raise ConsumerNotFound(f"the group {group!r} has no consumer {member_id!r} on this broker")
        return member

    def renamed(self, member: Member, member_id: str) -> None:
        """A member has a new id."""
        self.drop(member)
        member.member_id = member_id
        self._members[member.group, member_id] = member
        self.groups.listen(member.group, member_id, member)

    def topic_deleted(self, name: str) -> None:
        for member in self._members.values():
            member.forget(name)

    def drop(self, member: Member) -> None:
        if self._members.pop((member.group, member.member_id), None) is not None:
            self.groups.stop_listening(member.group, member)
