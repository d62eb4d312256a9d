"""The controller: one broker of the cluster, which decides who leads each partition.

The brokers compete for the key `ctl`; whoever has created it is the controller until its session ends. Every txn of
the controller compares the revision at which it was created: what a controller writes that was paused, and has been
replaced meanwhile, is refused by the store. No clock is involved.

What is to be done follows from the image alone (plan.py). So a new controller continues where the last one stopped, and
a plan that met a concurrent change is simply made again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from flymq.cluster.brokers import CONTROLLER_KEY, Admission, admission_key, encode, registration_key
from flymq.cluster.catalog import encode_state, partition_key
from flymq.cluster.image import Image, TopicChange
from flymq.cluster.plan import Plan, StateChange, make_plan
from flymq.metadata.store import TXN_OPS_MAX, Compare, MetadataStore, Put, Session, created_at, has_value, is_absent
from flymq.model.errors import IndeterminateResult, MetadataUnavailable, SessionEnded

logger = logging.getLogger(__name__)

_RETRY_S = 0.5


class Controller:
    """Takes part in the election of the controller, and does its work when elected."""

    def __init__(
        self, store: MetadataStore, image: Image, broker_id: int, *, ttl_s: int = 4, preferred_every_s: float = 60.0
    ) -> None:
        self._store = store
        self._image = image
        self._broker_id = broker_id
        self._ttl_s = ttl_s
        self._preferred_every_s = preferred_every_s
        self._changed = asyncio.Event()
        self.epoch: int | None = None
        """Set while this broker is the controller."""
        image.member_watchers.append(self._changed.set)
        image.watchers.append(self._topic_changed)

    def _topic_changed(self, _: TopicChange) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Compete, and govern when elected, for ever."""
        while True:
            try:
                await self._until_vacant()
                session = await self._store.session(self._ttl_s)
                try:
                    await self._compete(session)
                finally:
                    self.epoch = None
                    await session.close()
            except (MetadataUnavailable, IndeterminateResult, SessionEnded) as error:
                logger.warning("the controller's work is interrupted: %s", error.message)
                await asyncio.sleep(_RETRY_S)

    async def _until_vacant(self) -> None:
        while self._image.members.controller is not None:
            self._changed.clear()
            await self._changed.wait()

    async def _compete(self, session: Session) -> None:
        seat = Put(CONTROLLER_KEY, str(self._broker_id).encode(), session.lease)
        elected = await self._store.txn([is_absent(CONTROLLER_KEY)], [seat])
        await self._image.until(elected.revision)
        if not elected.succeeded:
            return
        self.epoch = elected.revision
        logger.info("this broker is the controller, with epoch %d", self.epoch)
        await self._govern(self.epoch, session)
        logger.info("this broker is no longer the controller")

    async def _govern(self, epoch: int, session: Session) -> None:
        loop = asyncio.get_running_loop()
        prefer_at_s = loop.time() + self._preferred_every_s
        while not session.has_ended and self._is_seated(epoch):
            self._changed.clear()
            is_due = loop.time() >= prefer_at_s
            if is_due:
                prefer_at_s = loop.time() + self._preferred_every_s
            plan = make_plan(self._image, prefers_leaders=is_due)
            if plan:
                await self._image.until(await self._carry_out(plan, epoch))
                continue
            try:
                async with asyncio.timeout_at(prefer_at_s):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _is_seated(self, epoch: int) -> bool:
        seat = self._image.members.controller
        return seat is not None and seat.epoch == epoch

    async def _carry_out(self, plan: Plan, epoch: int) -> int:
        """Do what is planned; return the revision after it. What met a concurrent change is left for the next plan."""
        revision = await self._change_states(plan.changes, epoch)
        if plan.changes:
            return revision  # the next plan shows whether all of them are there
        for broker_id, broker_epoch in plan.admissions.items():
            compares = [self._fence(epoch), created_at(registration_key(broker_id), broker_epoch)]
            admit = Put(admission_key(broker_id), encode(Admission(broker_epoch)))
            result = await self._store.txn(compares, [admit])
            if result.succeeded:
                logger.info("broker %d has joined, with epoch %d", broker_id, broker_epoch)
            revision = max(revision, result.revision)
        return revision

    async def _change_states(self, changes: Sequence[StateChange], epoch: int) -> int:
        revision = 0
        size = TXN_OPS_MAX - 1
        for some in (changes[at : at + size] for at in range(0, len(changes), size)):
            revision = max(revision, await self._change_some(some, epoch))
        return revision

    async def _change_some(self, changes: Sequence[StateChange], epoch: int) -> int:
        compares: list[Compare] = [self._fence(epoch)]
        puts = []
        for change in changes:
            key = partition_key(change.topic_id, change.partition)
            compares.append(has_value(key, encode_state(change.before)))
            puts.append(Put(key, encode_state(change.after)))
        result = await self._store.txn(compares, puts)
        if result.succeeded or len(changes) == 1:
            return result.revision
        half = len(changes) // 2  # find the few that were changed meanwhile
        first = await self._change_some(changes[:half], epoch)
        return max(first, await self._change_some(changes[half:], epoch))

    def _fence(self, epoch: int) -> Compare:
        return created_at(CONTROLLER_KEY, epoch)
