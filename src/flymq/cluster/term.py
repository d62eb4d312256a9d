"""The term of one controller, from its election until it is replaced: it keeps the partitions adapted to the brokers.

When the brokers change, all topics are looked at; when a topic changes, that topic alone. Both in time slices: there
may be tens of thousands of partitions. Every change is a compare on the state it was decided on, on the seat of the
controller, and on the registration of a broker that is made a leader. So a decision that has become wrong meanwhile is
refused by the store, and made again from what the image shows then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from flymq.cluster.brokers import CONTROLLER_KEY, Admission, admission_key, encode, registration_key
from flymq.cluster.catalog import PartitionState
from flymq.cluster.image import Image, Topic
from flymq.cluster.plan import Roster, StateChange, plan_partition, plan_preferred
from flymq.cluster.state_changes import write_changes
from flymq.host.time_slices import TimeSlice
from flymq.metadata.store import TXN_OPS_MAX, Compare, MetadataStore, Put, Session, created_at
from flymq.model.errors import MetadataError, StorageError

logger = logging.getLogger(__name__)

_RETRY_S = 0.2
_CHANGES_AT_ONCE = 100 * TXN_OPS_MAX
"""Decided before they are carried out."""
_LOOKS_PER_CHECK = 50
"""Partitions between two looks at the clock."""


class Term:
    """What the controller does while it is seated."""

    def __init__(
        self,
        store: MetadataStore,
        image: Image,
        epoch: int,
        *,
        preferred_every_s: float,
        on_unclean: Callable[[StateChange], None] = lambda _: None,
    ) -> None:
        """`on_unclean` is called with every election of a leader that may lack committed records."""
        self._store = store
        self._on_unclean = on_unclean
        self._image = image
        self._preferred_every_s = preferred_every_s
        self._roster = Roster.of(image.members)
        self._unadapted = self._all_topics()
        """Topics that may not be adapted to the roster yet. Nobody is admitted before all are."""
        self._changed: dict[str, None] = {}
        """Topics that have changed since they were looked at."""
        self._not_preferred: dict[str, None] = {}
        """Topics whose preferred leaders are due to lead again."""
        self._dead: dict[int, int] = {}
        self._wake = asyncio.Event()
        self.epoch = epoch

    # --- what happens meanwhile

    def topic_changed(self, name: str) -> None:
        self._changed[name] = None
        self._wake.set()

    def members_changed(self) -> None:
        self._wake.set()

    def is_dead(self, broker_id: int, epoch: int) -> None:
        """Nobody listens where this registration says: fence it, before its lease ends."""
        self._dead[broker_id] = epoch
        self._wake.set()

    # --- govern

    async def run(self, session: Session) -> None:
        """Govern until another controller is elected."""
        loop = asyncio.get_running_loop()
        prefer_at_s = loop.time() + self._preferred_every_s
        while not session.has_ended and self._is_seated:
            self._wake.clear()
            if loop.time() >= prefer_at_s:
                prefer_at_s = loop.time() + self._preferred_every_s
                self._not_preferred = self._all_topics()
            try:
                if await self._do_something():
                    continue
            except (MetadataError, StorageError) as error:
                # Whatever was done is in the store, and looked at again.
                logger.warning("the controller's work is interrupted: %s", error.message)
                await asyncio.sleep(_RETRY_S)
                self._unadapted = self._all_topics()
                continue
            try:
                async with asyncio.timeout_at(prefer_at_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    @property
    def _is_seated(self) -> bool:
        seat = self._image.members.controller
        return seat is not None and seat.epoch == self.epoch

    async def _do_something(self) -> bool:
        """Do the next step; return whether there may be another one."""
        if self._dead:
            await self._image.until(await self._fence_dead())
        if (roster := Roster.of(self._image.members)) != self._roster:
            self._roster = roster
            self._unadapted = self._all_topics()
        if changes := await self._decide():
            await self._image.until(await self._carry_out(changes))
            return True
        if self._roster.joining and not self._unadapted:
            await self._image.until(await self._admit())
            return True
        return False

    def _all_topics(self) -> dict[str, None]:
        return {topic.name: None for topic in self._image}

    async def _decide(self) -> list[StateChange]:
        """Look at the topics that are due. One that needs no change is done with; others are looked at again."""
        roster, changes = self._roster, list[StateChange]()
        slice_ = TimeSlice()
        for name in {**self._unadapted, **self._changed, **self._not_preferred}:
            self._changed.pop(name, None)  # before the look: a change during it counts as a new one
            found: list[StateChange] = []
            if (topic := self._image.find(name)) is not None:
                plan = plan_preferred if name in self._not_preferred else plan_partition
                found = await self._look_at(topic, roster, plan, slice_)
            if found:
                changes += found
                self._changed[name] = None
            else:
                self._unadapted.pop(name, None)
                self._not_preferred.pop(name, None)
            if len(changes) >= _CHANGES_AT_ONCE:
                break
            await slice_.yield_if_over()
        return changes

    async def _look_at(
        self, topic: Topic, roster: Roster, plan: Callable[[Topic, int, Roster], PartitionState], slice_: TimeSlice
    ) -> list[StateChange]:
        changes = []
        for number, before in enumerate(topic.partitions):
            after = plan(topic, number, roster)
            if after is not before:
                changes.append(StateChange(topic.topic_id, number, before, after))
            if number % _LOOKS_PER_CHECK == 0:
                await slice_.yield_if_over()
        return changes

    # --- write; each returns the revision after it

    async def _fence_dead(self) -> int:
        revision = 0
        for broker_id, epoch in list(self._dead.items()):
            member = self._image.members.find(broker_id)
            if member is not None and member.epoch == epoch and not member.is_fenced:
                revision = max(revision, await self._fence(broker_id, epoch))
            if self._dead.get(broker_id) == epoch:
                del self._dead[broker_id]
        return revision

    async def _fence(self, broker_id: int, epoch: int) -> int:
        fence = Put(admission_key(broker_id), encode(Admission(epoch, is_fenced=True)))
        result = await self._store.txn([self._seat, created_at(registration_key(broker_id), epoch)], [fence])
        if result.succeeded:
            member = self._image.members.find(broker_id)
            was_stopping = member is not None and member.registration.is_draining
            level = logging.INFO if was_stopping else logging.WARNING
            logger.log(level, "broker %d is fenced: nobody listens at its address", broker_id)
        return result.revision

    async def _admit(self) -> int:
        revision = 0
        for broker_id, epoch in self._roster.joining.items():
            admit = Put(admission_key(broker_id), encode(Admission(epoch)))
            result = await self._store.txn([self._seat, created_at(registration_key(broker_id), epoch)], [admit])
            if result.succeeded:
                logger.info("broker %d has joined, with epoch %d", broker_id, epoch)
            revision = max(revision, result.revision)
        return revision

    async def _carry_out(self, changes: Sequence[StateChange]) -> int:
        """Change partitions. What met a concurrent change is left out: it is looked at again."""
        urgent_first = sorted(changes, key=lambda change: change.elected is None)  # who has no leader cannot wait
        written = await write_changes(self._store, urgent_first, self._roster, only_if=[self._seat])
        elected, slice_ = 0, TimeSlice()
        for change in written.changes:
            await slice_.yield_if_over()
            if change.elected is not None:
                elected += 1
                if change.is_unclean:
                    self._on_unclean(change)
        if elected:
            logger.info("the leaders of %d partitions were elected", elected)
        return written.revision

    @property
    def _seat(self) -> Compare:
        return created_at(CONTROLLER_KEY, self.epoch)
