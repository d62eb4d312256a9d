"""Transactional producers that never give up, and the account of what they tried."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tests.simulation.world import Node, World

from flymq.coordination.entries import ProducerIdentity
from flymq.model.delivery import Acks
from flymq.model.errors import (
    ConnectionLost,
    InvalidTransactionState,
    OutOfOrderSequence,
    ProducerFenced,
    TransactionAborted,
    TransactionInProgress,
    UnknownProducer,
)
from flymq.model.names import TopicPartition
from flymq.record.batch import encode_batch

MUST_BEGIN_ANEW = (
    ProducerFenced,
    TransactionAborted,
    InvalidTransactionState,
    OutOfOrderSequence,
    UnknownProducer,
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


class Producer:
    """A client that retries what may be retried and starts anew where it must."""

    def __init__(self, world: World, name: str, number: int = 0, *, timeout_ms: int = 3_000) -> None:
        self.world = world
        self.name = name
        self.number = number
        self.timeout_ms = timeout_ms
        self.identity: ProducerIdentity | None = None
        self.sequences: dict[TopicPartition, int] = {}

    async def retry(self, ask: Any) -> Any:
        """Ask until there is an answer."""
        while True:
            try:
                return await self.world.call(ask)
            except (ConnectionLost, TransactionInProgress):
                await asyncio.sleep(self.world.chance.uniform(0.01, 0.3))

    async def init(self) -> None:
        self.identity = await self.retry(lambda node: node.transactions.init(self.name, self.timeout_ms))
        self.sequences.clear()

    async def begin(self) -> None:
        identity = self.identity
        assert identity is not None
        await self.retry(lambda node: node.transactions.begin(self.name, identity))

    async def write(self, partition: TopicPartition, values: list[bytes], acks: Acks) -> None:
        identity = self.identity
        assert identity is not None
        sequence = self.sequences.get(partition, 0)
        self.sequences[partition] = sequence + len(values)
        batch = encode_batch(
            [(None, value) for value in values],
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=sequence,
            transactional=True,
        )

        async def produce(node: Node) -> None:
            _, waiting = node.transactions.produce(self.name, node.topics.partition(partition), batch, acks)
            await asyncio.gather(*waiting)

        await self.retry(produce)

    async def end(self, *, commit: bool) -> None:
        identity = self.identity
        assert identity is not None
        self.identity = await self.retry(lambda node: node.transactions.end(self.name, identity, commit=commit))
        self.sequences.clear()


async def run_producer(world: World, producer: Producer, partitions: list[TopicPartition], count: int) -> list[Tried]:
    """Run so many transactions; return what became of them."""
    chance = world.chance
    history = []
    for number in range(count):
        tried = Tried(f"{producer.name}/{producer.number}/{number}")
        history.append(tried)
        is_committing = False
        try:
            if producer.identity is None:
                await producer.init()
            await producer.begin()
            for step in range(chance.randint(1, 4)):
                partition = chance.choice(partitions)
                values = [f"{tried.name}/{step}/{n}".encode() for n in range(chance.randint(1, 3))]
                tried.writes.setdefault(partition, []).extend(values)
                await producer.write(partition, values, chance.choice([Acks.ALL, Acks.LEADER]))
                await asyncio.sleep(chance.expovariate(1 / 0.02))
            if chance.random() < 0.05:
                await asyncio.sleep(producer.timeout_ms / 1000 * 1.5)  # long enough to be given up
            is_committing = chance.random() < 0.75
            await producer.end(commit=is_committing)
            tried.outcome = Outcome.COMMITTED if is_committing else Outcome.ABORTED
        except TransactionAborted:
            tried.outcome = Outcome.ABORTED
            producer.identity = None
        except MUST_BEGIN_ANEW:
            tried.outcome = Outcome.IN_DOUBT if is_committing else Outcome.ABORTED
            producer.identity = None
    return history


def check_history(world: World, history: list[Tried], partitions: list[TopicPartition]) -> None:
    """Compare what readers of committed records see with what the producers were told."""
    assert world.node is not None
    seen: dict[TopicPartition, list[bytes]] = {}
    for partition in partitions:
        served = world.node.topics.partition(partition)
        assert served.last_stable_offset == served.high_watermark, f"a transaction is left open in {partition}"
        seen[partition] = [record.value or b"" for record in world.read(*partition)]
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
