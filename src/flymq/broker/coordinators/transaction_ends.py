"""Decided ends of transactions, completed: markers everywhere, then the entry that the transaction has ended."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from flymq.broker.coordinators.markers import Markers, Targets
from flymq.broker.coordinators.state_log import StateLog
from flymq.broker.safety import wait_safe
from flymq.coordination.attempts import decide_delete, home_of
from flymq.coordination.entries import TransactionState, TransactionValue
from flymq.coordination.transaction_table import TransactionTable
from flymq.coordination.transactions import decide_complete, ending_of
from flymq.host.clock import Clock
from flymq.host.failure_log import FailureLog
from flymq.host.tasks import Tasks
from flymq.model.errors import (
    CoordinatorEpochFenced,
    FlyMQError,
    FsyncFailed,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeader,
    StorageError,
)

logger = logging.getLogger(__name__)

_RETRY_S_MIN, _RETRY_S_MAX = 0.05, 1.0


class TransactionEnds:
    """The ends that this broker completes."""

    def __init__(self, log: StateLog[TransactionTable], markers: Markers, clock: Clock, tasks: Tasks) -> None:
        self._log = log
        self._markers = markers
        self._clock = clock
        self._tasks = tasks
        self._ending: dict[str, asyncio.Future[TransactionValue]] = {}
        self.completed: Counter[TransactionState] = Counter()
        self._failures = FailureLog(logger, "the transaction %r cannot end yet, retrying")

    def complete(self, name: str) -> asyncio.Future[TransactionValue]:
        """Complete a decided end, whether or not the client still waits for it."""
        ended = self._ending.get(name)
        if ended is None:
            ended = self._ending[name] = asyncio.get_running_loop().create_future()
            self._tasks.spawn(f"end of the transaction {name}", self._run_end(name, ended))
        return ended

    def resign(self, name: str, error: NotCoordinator) -> None:
        """Leave an end to another broker."""
        if (ended := self._ending.pop(name, None)) is not None:
            _fail(ended, error)

    async def _run_end(self, name: str, ended: asyncio.Future[TransactionValue]) -> None:
        """Complete the end. If this broker resigns meanwhile, `ended` fails, and another broker completes it."""
        if ended.done():
            return
        value = self._get(name)
        try:
            await self._until_written(name, value, ended)
            if ended.done():
                return
        except (NotCoordinator, NotLeader) as error:  # another broker completes it
            _fail(ended, error)
            return
        except FlyMQError as error:
            _fail(ended, error)
            raise
        except BaseException:
            ended.cancel()
            raise
        finally:
            if self._ending.get(name) is ended:
                del self._ending[name]
        self.completed[value.state] += 1
        if not ended.done():
            ended.set_result(value)

    async def _until_written(self, name: str, value: TransactionValue, ended: asyncio.Future[TransactionValue]) -> None:
        """Write all parts of the end, and retry until they are durable: a full disk has room again some time."""
        number = self._log.number_of(home_of(name))
        ending = ending_of(value, self._log.leader_epoch(number))
        left, wait_s = Targets(value.partitions, value.groups), _RETRY_S_MIN
        while not ended.done():
            try:
                await wait_safe(self._log.safe(number))  # a coordinator that was replaced does not get further
                if ended.done():
                    return
                left = await self._markers.write(ending, left)
                if not left:
                    if not ended.done():
                        await self._write_completion(name, value)
                    self._failures.succeeded(name)
                    return
                assert left.error is not None
                error: FlyMQError = left.error
            except (FsyncFailed, NotCoordinator):
                raise
            except (StorageError, NotLeader, NotEnoughReplicas) as failed:
                error = failed
            if isinstance(error, CoordinatorEpochFenced):
                logger.warning("the transaction %r is left to a later coordinator: %s", name, error.message)
                raise NotCoordinator(error.message)
            self._failures.failed(name, error)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _RETRY_S_MAX)

    async def _write_completion(self, name: str, value: TransactionValue) -> None:
        number = self._log.number_of(home_of(name))
        last_batch = self._log.table(home_of(name)).last_batch(home_of(name))
        entries = decide_delete(name, value, last_batch=last_batch)
        entries = entries or decide_complete(name, value, now_ms=self._clock.now_ms())
        safe = self._log.write(number, entries)
        # The producer begins its next transaction with its successor's identity, which another coordinator must know.
        # Without others this entry is waited for only if nothing else separates the next transaction from this one.
        await wait_safe(safe if value.successor == value.producer else self._log.replicated(number))

    def _get(self, name: str) -> TransactionValue:
        value = self._log.table(home_of(name)).find(name)
        assert value is not None, f"the transactional id {name!r} is known"
        return value


def _fail(ended: asyncio.Future[TransactionValue], error: FlyMQError) -> None:
    if not ended.done():
        ended.set_exception(error)
        ended.exception()  # mark the exception as retrieved: nobody may be waiting
