"""Transactional producers that never give up, and the account of what they tried."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

from tests.simulation.world import Clients, patiently

from flymq.client.aio.transaction import AsyncTransaction
from flymq.model.errors import (
    BrokerUnavailable,
    FlyMQError,
    InvalidTransactionState,
    OutOfOrderSequence,
    ProducerFenced,
    RequestTimedOut,
    TransactionAborted,
    UnknownProducer,
)
from flymq.model.names import TopicPartition

TRANSACTION_TIMEOUT_MS = 3_000
MUST_BEGIN_ANEW = (
    ProducerFenced,
    TransactionAborted,
    InvalidTransactionState,
    OutOfOrderSequence,
    UnknownProducer,
    # A producer that cannot even ask where to write gives up too.
    BrokerUnavailable,
    RequestTimedOut,
)


class Outcome(Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    IN_DOUBT = "in doubt"
    """The commit was sent, and what became of it was never heard."""


@dataclass
class Tried:
    """One transaction as its producer saw it."""

    name: str
    writes: dict[TopicPartition, list[bytes]] = field(default_factory=dict)
    outcome: Outcome = Outcome.OPEN


async def run_producer(
    world: Clients, name: str, number: int, partitions: list[TopicPartition], count: int
) -> list[Tried]:
    """Run so many transactions; return what became of them. After an error it starts again, as another process."""
    history: list[Tried] = []
    while len(history) < count:
        client = world.client(f"{name}-{number}", acks=world.chance.choice(["all", "leader"]))
        await patiently(client.connect)
        with suppress(*MUST_BEGIN_ANEW):
            while len(history) < count:
                history.append(Tried(f"{name}/{number}/{len(history)}"))
                transaction = client.transaction(name, timeout_ms=TRANSACTION_TIMEOUT_MS)
                await run_transaction(world, transaction, history[-1], partitions)
        client.abort()
    return history


async def run_transaction(
    world: Clients, transaction: AsyncTransaction, tried: Tried, partitions: list[TopicPartition]
) -> None:
    chance, is_committing = world.chance, False
    try:
        await patiently(transaction.begin)
        for step in range(chance.randint(1, 4)):
            partition = chance.choice(partitions)
            values = [f"{tried.name}/{step}/{n}".encode() for n in range(chance.randint(1, 3))]
            tried.writes.setdefault(partition, []).extend(values)
            await transaction.producer.produce_batch(partition.topic, values, partition=partition.partition)
            await asyncio.sleep(chance.expovariate(1 / 0.02))
        if chance.random() < 0.05:
            await asyncio.sleep(TRANSACTION_TIMEOUT_MS / 1000 * 1.5)  # long enough to be given up
        is_committing = chance.random() < 0.75
        await patiently(transaction.commit if is_committing else transaction.abort)
        tried.outcome = Outcome.COMMITTED if is_committing else Outcome.ABORTED
    except TransactionAborted:
        tried.outcome = Outcome.ABORTED
        raise
    except FlyMQError as error:
        assert isinstance(error, MUST_BEGIN_ANEW) or not is_committing, f"{tried} ends with {error!r}"
        tried.outcome = Outcome.IN_DOUBT if is_committing else Outcome.ABORTED
        raise


async def check_history(world: Clients, history: list[Tried], partitions: list[TopicPartition]) -> None:
    """Compare what readers of committed records see with what the producers were told."""
    await world.check_no_transaction_is_open("t", len(partitions))
    auditor = world.client("auditor")
    seen = await world.read(auditor, "t")
    await auditor.close()
    for partition in partitions:
        assert len(set(seen[partition])) == len(seen[partition]), f"duplicates in {partition}"
    for tried in history:
        expected = tried.writes
        found = {
            partition: [value for value in seen[partition] if value.rsplit(b"/", 2)[0] == tried.name.encode()]
            for partition in expected
        }
        assert found in (expected, {partition: [] for partition in expected}), f"{tried} is half there: {found}"
        is_there = any(found.values())
        if tried.outcome is Outcome.COMMITTED:
            assert is_there or not any(expected.values()), f"{tried} was committed and is gone"
        if tried.outcome is Outcome.ABORTED:
            assert not is_there, f"{tried} was aborted and is there"
