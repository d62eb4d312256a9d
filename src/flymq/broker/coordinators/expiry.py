"""Periodically delete unused offsets, groups, transactional ids and queries."""

from __future__ import annotations

import asyncio
import logging

from flymq.broker.coordinators.groups import Groups
from flymq.broker.coordinators.transactions import Transactions
from flymq.model.errors import StorageError

logger = logging.getLogger(__name__)

_INTERVAL_S = 600


async def run_expiry(groups: Groups, transactions: Transactions) -> None:
    while True:
        await asyncio.sleep(_INTERVAL_S)
        for expire in (groups.expire, transactions.expire):
            try:
                expire()
            except StorageError as error:
                logger.error("unused groups and transactional ids cannot be deleted now: %s", error)
