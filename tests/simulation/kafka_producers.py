"""Transactional producers of Kafka's protocol, on a way that delivers some requests twice, the second time late.

A producer gives up a connection in the middle of a request, opens another one and repeats the request there. What it
sent first arrives too, some time later: perhaps in the middle of its next transaction.
"""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

from kio.schema.add_partitions_to_txn import v3 as add_partitions
from kio.schema.end_txn import v4 as end_old
from kio.schema.end_txn import v5 as end_new
from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id import v5 as init_producer
from kio.schema.produce import v11 as produce_old
from kio.schema.produce import v12 as produce_new
from tests.simulation.kafka import KafkaLink
from tests.simulation.producers import TRANSACTION_TIMEOUT_MS, Outcome, Tried
from tests.simulation.world import BROKER, World, patiently

from flymq.model.names import TopicPartition
from flymq.record.batch import encode_batch

MS = datetime.timedelta(milliseconds=1)
GIVES_UP = 0.25
LATE_S = 0.3
MUST_RETRY = {
    ErrorCode.concurrent_transactions,
    ErrorCode.not_enough_replicas,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.not_coordinator,
    ErrorCode.not_leader_or_follower,
    ErrorCode.kafka_storage_error,
    ErrorCode.request_timed_out,
    ErrorCode.unknown_topic_or_partition,
}
MUST_ABORT = {
    ErrorCode.transaction_abortable,
    ErrorCode.unknown_producer_id,
    ErrorCode.invalid_producer_id_mapping,
    ErrorCode.invalid_txn_state,
    ErrorCode.out_of_order_sequence_number,
}


class MustAbort(Exception):
    """The broker has refused a request of the transaction."""


class UnsteadyLink(KafkaLink):
    """Repeats some requests on a new connection, while the first copy is still on its way."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world.host(name).network, BROKER, 9092, name)
        self._chance = world.chance

    async def ask(self, request: Any, response: Any, timeout_s: float = 2.0) -> Any:
        given_up = self._stream
        if given_up is not None and self._chance.random() < GIVES_UP:
            self._stream = None
            late_s = self._chance.expovariate(1 / LATE_S)
            asyncio.get_running_loop().call_later(late_s, self._send, given_up, request)
        return await super().ask(request, response, timeout_s)


class KafkaProducer:
    """A producer that is the only one of its transactional id: nothing may fence it."""

    def __init__(self, world: World, name: str, *, has_new_epochs: bool) -> None:
        self.world = world
        self.name = name
        self.has_new_epochs = has_new_epochs
        self._link = UnsteadyLink(world, name)
        self._id, self._epoch = -1, -1
        self._sequences: dict[TopicPartition, int] = {}

    async def run(self, partitions: list[TopicPartition], count: int) -> list[Tried]:
        """Run so many transactions; return what became of them."""
        history: list[Tried] = []
        await self._init()
        for number in range(count):
            history.append(Tried(f"{self.name}/0/{number}"))
            try:
                history[-1].outcome = await self._run_transaction(history[-1], partitions)
            except MustAbort:
                history[-1].outcome = Outcome.ABORTED
                await self._end(commit=False)
                if not self.has_new_epochs:
                    await self._init()
        self._link.close()
        return history

    async def _run_transaction(self, tried: Tried, partitions: list[TopicPartition]) -> Outcome:
        chance = self.world.chance
        added: set[TopicPartition] = set()
        for step in range(chance.randint(1, 4)):
            partition = chance.choice(partitions)
            value = f"{tried.name}/{step}/0".encode()
            if not self.has_new_epochs and partition not in added:
                await self._add(partition)
                added.add(partition)
            tried.writes.setdefault(partition, []).append(value)
            await self._produce(partition, value)
            await asyncio.sleep(chance.expovariate(1 / 0.02))
        if chance.random() < 0.05:
            await asyncio.sleep(TRANSACTION_TIMEOUT_MS / 1000 * 1.5)
        commit = chance.random() < 0.6
        await self._end(commit=commit)
        return Outcome.COMMITTED if commit else Outcome.ABORTED

    # --- requests

    def _named(self) -> dict[str, Any]:
        return {"transactional_id": self.name, "producer_id": self._id, "producer_epoch": self._epoch}

    async def _init(self) -> None:
        request = init_producer.InitProducerIdRequest(**self._named(), transaction_timeout=TRANSACTION_TIMEOUT_MS * MS)
        answer = await self._ask(request, init_producer.InitProducerIdResponse)
        self._adopt(answer)

    def _adopt(self, answer: Any) -> None:
        self._id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()

    async def _add(self, partition: TopicPartition) -> None:
        topic = add_partitions.request.AddPartitionsToTxnTopic(name=partition.topic, partitions=(partition.partition,))
        named = {f"v3_and_below_{key}": value for key, value in self._named().items()}
        request = add_partitions.AddPartitionsToTxnRequest(**named, v3_and_below_topics=(topic,))
        await self._ask(request, add_partitions.AddPartitionsToTxnResponse)

    async def _produce(self, partition: TopicPartition, value: bytes) -> None:
        version: Any = produce_new if self.has_new_epochs else produce_old
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + 1
        batch = encode_batch(
            [(None, value)],
            timestamp_ms=1,
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = version.request.PartitionProduceData(index=partition.partition, records=bytes(batch))
        request = version.ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout=1000 * MS,
            topic_data=(version.request.TopicProduceData(name=partition.topic, partition_data=(data,)),),
        )
        await self._ask(request, version.ProduceResponse)

    async def _end(self, *, commit: bool) -> None:
        version: Any = end_new if self.has_new_epochs else end_old
        answer = await self._ask(version.EndTxnRequest(**self._named(), committed=commit), version.EndTxnResponse)
        if self.has_new_epochs:
            self._adopt(answer)

    async def _ask(self, request: Any, response: Any) -> Any:
        """Ask until there is an answer that is not an error, or one that ends the transaction."""
        while True:
            answer = await patiently(self._link.ask, request, response)
            code = _code(answer)
            if code is ErrorCode.none:
                return answer
            if code in MUST_ABORT:
                raise MustAbort
            assert code in MUST_RETRY, f"{self.name}: {type(request).__name__} failed with {code!r}"
            await asyncio.sleep(0.1)


def _code(answer: Any) -> ErrorCode:
    if hasattr(answer, "responses"):
        found: ErrorCode = answer.responses[0].partition_responses[0].error_code
    elif hasattr(answer, "results_by_topic_v3_and_below"):
        found = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    else:
        found = answer.error_code
    return found
