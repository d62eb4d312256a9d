"""Consume, transform, produce: exactly once, whatever crashes.

The consumed offsets are committed in the transaction that produces the results. When a transaction is aborted, the
consumer seeks back to the committed offsets and the records are transformed again.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

from flymq.client.aio.consumer import AsyncConsumer
from flymq.client.aio.transaction import AsyncTransaction
from flymq.client.records import ConsumerRecord
from flymq.model.errors import FlyMQError, StaleGeneration, TransactionAborted, UnknownMember

Output: TypeAlias = tuple[str, Any] | tuple[str, Any, Any]
"""Topic and value, or topic, value and key."""

Transformation: TypeAlias = Callable[[ConsumerRecord], Iterable[Output] | Awaitable[Iterable[Output]]]
"""Takes one record and returns what to produce for it, possibly nothing. May be a coroutine function."""


# The transaction is lost, and the records are read again by whoever has their partitions then.
_MAY_BE_REPEATED = (TransactionAborted, StaleGeneration, UnknownMember)
_PAUSE_S = 0.1


async def transform(
    consumer: AsyncConsumer, transformation: Transformation, new_transaction: Callable[[], AsyncTransaction]
) -> None:
    """Transform until the consumer is stopped. Raises only errors that a retry cannot fix."""
    while not consumer.is_stopping:
        records = await consumer.poll()
        if not records:
            continue
        try:
            async with new_transaction() as transaction:
                for record in records:
                    with consumer.span(record):
                        for topic, value, *key in await _outputs(transformation, record):
                            await transaction.send(topic, value, *key)
                await transaction.commit_consumed(consumer)
        except FlyMQError as error:
            if not (error.retriable or isinstance(error, _MAY_BE_REPEATED)):
                raise
            await _go_back(consumer)


async def _go_back(consumer: AsyncConsumer) -> None:
    """Go back to what is committed, however long it takes: to read on from here would skip records."""
    while not consumer.is_stopping:
        try:
            await consumer.seek_to_committed()
            return
        except FlyMQError as error:
            if not error.retriable:
                raise
        await asyncio.sleep(_PAUSE_S)


async def _outputs(transformation: Transformation, record: ConsumerRecord) -> Iterable[Output]:
    outputs = transformation(record)
    return await outputs if inspect.isawaitable(outputs) else outputs
