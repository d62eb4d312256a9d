"""Ask the coordinator of a transaction, whichever broker it is, also while it moves to another one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from flymq.broker.coordinators.peers import Peers
from flymq.broker.coordinators.state_log import StateLog
from flymq.cluster.image import Image
from flymq.coordination.attempts import home_of
from flymq.coordination.entries import ProducerIdentity
from flymq.coordination.transaction_table import TransactionTable
from flymq.host.clock import Clock
from flymq.model.errors import (
    BrokerUnavailable,
    ConnectionLost,
    CoordinatorLoading,
    CoordinatorUnavailable,
    NotCoordinator,
    RequestTimedOut,
)
from flymq.model.names import TopicPartition
from flymq.wire.native.messages.peer_transactions import AbortOwned, AbortOwnedAnswer, JoinTransaction
from flymq.wire.native.messages.session import Done

_WITHIN_S = 5.0
_AGAIN_S = 0.05
_ABORT_WITHIN_S = 10.0
_MOVES = (
    NotCoordinator,
    CoordinatorLoading,
    CoordinatorUnavailable,
    BrokerUnavailable,
    ConnectionLost,
    RequestTimedOut,
)
"""Errors after which another broker, or the same one a little later, can answer."""


class OtherCoordinators:
    """The coordinators of transactions in a cluster."""

    def __init__(
        self, log: StateLog[TransactionTable], image: Image, broker_id: int, clock: Clock, peers: Peers
    ) -> None:
        self._log = log
        self._image = image
        self._broker_id = broker_id
        self._clock = clock
        self._peers = peers

    async def join(self, request: JoinTransaction, *, here: Callable[[], Awaitable[None]]) -> None:
        """Send a request to the coordinator; if it is this broker, call `here`. Short absences are waited out."""
        name, until_s = request.transactional_id, self._clock.monotonic_s() + _WITHIN_S
        home = TopicPartition(self._log.topic, self._log.number_of(home_of(name)))
        while True:
            coordinator = self._image.state(home).leader
            try:
                if coordinator == self._broker_id:
                    await here()
                elif coordinator < 0:
                    raise NotCoordinator(f"{home} has no leader")
                else:
                    await self._peers.request(coordinator, request, Done, timeout_s=_WITHIN_S)
                return
            except _MOVES as error:
                if self._clock.monotonic_s() >= until_s:
                    raise CoordinatorUnavailable(
                        f"the coordinator of {name!r} could not be asked in {_WITHIN_S:.0f} s: {error.message}",
                        hint="Retry: another broker takes over when the coordinator is gone.",
                    ) from error
            await asyncio.sleep(_AGAIN_S)

    async def abort_owned(
        self, producer: ProducerIdentity, *, here: Callable[[ProducerIdentity], Awaitable[tuple[bool, set[int]]]]
    ) -> bool:
        """Abort the open transaction of this producer, whichever broker coordinates it; False if none does."""
        found, looked_through = await here(producer)
        leaders = {state.leader for state in self._image.get(self._log.topic).partitions} - {-1, self._broker_id}
        for broker in sorted(leaders):
            if not found:
                request = AbortOwned(producer_id=producer.producer_id, producer_epoch=producer.epoch)
                answer = await self._peers.request(broker, request, AbortOwnedAnswer, timeout_s=_ABORT_WITHIN_S)
                found = answer.found
                looked_through |= set(answer.looked_through)
        if not found and len(looked_through) < self._log.partitions:
            raise CoordinatorUnavailable(
                f"producer {producer.producer_id} may have a coordinator that moves to another broker, or still loads",
                hint="Retry once all partitions of the internal topics have a leader.",
            )
        return found
