"""The end of a transaction where it was written: a marker in every partition, its offsets in every group.

The coordinator writes to the partitions and groups that this broker leads itself, and asks the other brokers to do so
for theirs. What fails is tried again, on whichever broker leads by then, until all of it is committed.

A marker has the epoch of its coordinator. A coordinator that was replaced, and does not know of it yet, is refused:
its successor may have decided otherwise, or ended the producer's next transaction since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from flymq.broker.coordinators.first_writes import FirstWrites
from flymq.broker.coordinators.groups import Groups
from flymq.broker.coordinators.peers import Peers
from flymq.broker.replicas.replicas import Replicas
from flymq.broker.safety import Safe, wait_safe
from flymq.cluster.image import Image
from flymq.coordination.transactions import Ending, needs_marker
from flymq.host.clock import Clock
from flymq.model.errors import (
    CoordinatorEpochFenced,
    FlyMQError,
    FsyncFailed,
    NotLeader,
    RequestTimedOut,
)
from flymq.model.names import TopicPartition
from flymq.record.control import Marker, MarkerType
from flymq.wire.native.codec import error_of
from flymq.wire.native.messages.fields import Failure, PartitionRef
from flymq.wire.native.messages.peer_transactions import WriteMarkers, WriteMarkersAnswer

REQUEST_TIMEOUT_S = 10.0
COMMITTED_WITHIN_S = 5.0
"""How long a broker waits for its replicas before it answers. The marker is in its log then, and is asked for again."""

Outcomes = dict[TopicPartition | str, FlyMQError | None]
"""Partition or group → the error, or None if it is committed."""


@dataclass(slots=True)
class Targets:
    """Where a transaction has yet to be ended."""

    partitions: Sequence[TopicPartition] = ()
    groups: Sequence[str] = ()
    error: FlyMQError | None = None
    """Why: of one of them."""

    def __bool__(self) -> bool:
        return bool(self.partitions or self.groups)


@dataclass(slots=True)
class _Share:
    """What one broker leads."""

    partitions: list[TopicPartition] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)


class Markers:
    """Ends transactions in partitions and groups."""

    def __init__(
        self,
        image: Image,
        replicas: Replicas,
        groups: Groups,
        first_writes: FirstWrites,
        clock: Clock,
        peers: Peers | None,
    ) -> None:
        self._image = image
        self._replicas = replicas
        self._groups = groups
        self._first_writes = first_writes
        self._clock = clock
        self._peers = peers

    async def write(self, ending: Ending, targets: Targets) -> Targets:
        """End a transaction; return where it could not be ended."""
        shares, errors = self._share_out(targets)
        here = shares.pop(self._replicas.broker_id, None)
        elsewhere = [self._ask(broker, ending, share) for broker, share in shares.items()]
        # First what is led here: without other brokers there is nothing else, and it is done without a task.
        outcomes = errors | (await self.end_here(ending, here.partitions, here.groups) if here is not None else {})
        for each in await asyncio.gather(*elsewhere) if elsewhere else ():
            outcomes |= each
        failed = [error for error in outcomes.values() if error is not None]
        failed.sort(key=lambda error: not isinstance(error, CoordinatorEpochFenced))  # first: nothing helps against it
        return Targets(
            [name for name in targets.partitions if outcomes.get(name) is not None],
            [group for group in targets.groups if outcomes.get(group) is not None],
            failed[0] if failed else None,
        )

    def _share_out(self, targets: Targets) -> tuple[dict[int, _Share], Outcomes]:
        """Return what each broker leads, and what none leads now. A deleted topic needs no marker.

        A topic deleted and created again may have fewer partitions than the one that was written to.
        """
        shares: dict[int, _Share] = {}
        errors: Outcomes = {}
        for name in targets.partitions:
            topic = self._image.find(name.topic)
            if topic is not None and name.partition < len(topic.partitions):
                if (leader := self._leader(name)) is None:
                    errors[name] = NotLeader(f"{name} has no leader")
                else:
                    shares.setdefault(leader, _Share()).partitions.append(name)
        for group in targets.groups:
            home = self._groups.home_of(group)
            if (leader := self._leader(home)) is None:
                errors[group] = NotLeader(f"{home} has no leader")
            else:
                shares.setdefault(leader, _Share()).groups.append(group)
        return shares, errors

    def _leader(self, name: TopicPartition) -> int | None:
        if self._peers is None:
            return self._replicas.broker_id
        leader = self._image.state(name).leader
        return None if leader < 0 else leader

    # --- on this broker

    async def end_here(
        self,
        ending: Ending,
        partitions: Iterable[TopicPartition],
        groups: Iterable[str],
        *,
        within_s: float | None = None,
    ) -> Outcomes:
        """Write to partitions and groups that this broker leads; return when it is committed."""
        outcomes: Outcomes = {}
        written: dict[TopicPartition | str, Safe] = {}
        for name in partitions:
            try:
                written[name] = self._end_in_partition(ending, name)
            except FlyMQError as error:
                outcomes[name] = error
        for group in groups:
            try:
                self._first_writes.ended(group, ending.producer.producer_id)
                self._groups.end_transaction(group, ending.producer, committed=ending.committed)
                written[group] = self._groups.safe(group)
            except FlyMQError as error:
                outcomes[group] = error
        try:
            async with asyncio.timeout(within_s):
                for target, safe in written.items():
                    outcomes[target] = await _outcome(lambda safe=safe: wait_safe(safe))  # type: ignore[misc]
        except TimeoutError:
            late = RequestTimedOut(f"not committed by the in-sync replicas in {within_s} s")
            outcomes |= {target: late for target in written if target not in outcomes}
        return outcomes

    def _end_in_partition(self, ending: Ending, name: TopicPartition) -> Safe:
        partition, producer_id = self._replicas.get(name), ending.producer.producer_id
        partition.check_leads()
        known = partition.log.producers.get(producer_id)
        is_clustered = self._peers is not None
        if is_clustered and known is not None and ending.coordinator_epoch < known.coordinator_epoch:
            raise CoordinatorEpochFenced(
                f"{name}: producer {producer_id} is at coordinator epoch {known.coordinator_epoch}, "
                f"not {ending.coordinator_epoch}"
            )
        self._first_writes.ended(name, producer_id)
        known_epoch, open_epoch = None if known is None else known.epoch, partition.open_epoch(producer_id)
        if needs_marker(ending, known_epoch=known_epoch, open_epoch=open_epoch, fences=is_clustered):
            kind = MarkerType.COMMIT if ending.committed else MarkerType.ABORT
            marker = Marker(kind, producer_id, ending.marker_epoch, ending.coordinator_epoch, self._clock.now_ms())
            partition.append_marker(marker)
        return partition.safe()

    # --- on other brokers

    async def _ask(self, broker: int, ending: Ending, share: _Share) -> Outcomes:
        assert self._peers is not None
        request = WriteMarkers(
            producer_id=ending.producer.producer_id,
            producer_epoch=ending.producer.epoch,
            marker_epoch=ending.marker_epoch,
            coordinator_epoch=ending.coordinator_epoch,
            committed=ending.committed,
            partitions=[PartitionRef(*name) for name in share.partitions],
            groups=share.groups,
        )
        try:
            answer = await self._peers.request(broker, request, WriteMarkersAnswer, timeout_s=REQUEST_TIMEOUT_S)
        except FlyMQError as error:
            return dict.fromkeys([*share.partitions, *share.groups], error)
        outcomes: Outcomes = {
            TopicPartition(each.topic, each.partition): _error(each.error) for each in answer.partitions
        }
        return outcomes | {each.group: _error(each.error) for each in answer.groups}


async def _outcome(work: Callable[[], Awaitable[None]]) -> FlyMQError | None:
    try:
        await work()
    except FsyncFailed:
        raise
    except FlyMQError as error:
        return error
    return None


def _error(failure: Failure | None) -> FlyMQError | None:
    return None if failure is None else error_of(failure)
