"""Periodically delete unused offsets, groups, transactional ids and queries."""

from __future__ import annotations

import asyncio
import logging

from flymq.broker.coordinators.groups import Groups
from flymq.broker.coordinators.transactions import Transactions
from flymq.host.clock import Clock
from flymq.host.failure_log import FailureLog

logger = logging.getLogger(__name__)

_INTERVAL_S = 600


async def run_expiry(groups: Groups, transactions: Transactions, clock: Clock) -> None:
    """`clock` decides what is old: storage/steady_clock.py."""
    failures = FailureLog(logger, "unused %s cannot be deleted")
    while True:
        await asyncio.sleep(_INTERVAL_S)
        for name, expire in (("groups", groups.expire), ("transactional ids", transactions.expire)):
            try:
                expire(clock.now_ms())
                failures.succeeded(name)
            except Exception as error:  # the next time may succeed
                failures.failed(name, error)
