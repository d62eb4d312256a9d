"""Clients that write and read for as long as they are let, whatever happens to the broker, and keep the history.

Each runs in a thread of its own: producers and transactional producers of librdkafka and of the SDK, and members of a
group of each. After an error that ends a client, another takes its place, as a process that is started again.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TypeVar

import confluent_kafka
from confluent_kafka import KafkaException
from tests.campaigns.history import History, Log, Outcome, Transaction, make_value

from flymq import FlyMQClient
from flymq.client.settings import ClientSettings
from flymq.client.sync.consumer import Consumer
from flymq.client.sync.producer import Producer
from flymq.errors import FlyMQError
from flymq.model.errors import TransactionAborted
from flymq.model.names import TopicPartition

T = TypeVar("T")

GIVE_UP_S = 90
"""How long anything is tried again: far longer than a broker is away."""
TRANSACTION_TIMEOUT_MS = 10_000
PACE_S = 0.01
LIBRDKAFKA = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 50,
    "socket.timeout.ms": 10_000,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "log_level": 0,
}
SDK: ClientSettings = {
    "acks": "all",
    "connect_timeout_ms": 2_000,
    "request_timeout_ms": 10_000,
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 500,
}


class Client(threading.Thread):
    """One client. `stop` lets it finish what it has begun; what went wrong with it is in `failures`."""

    def __init__(self, name: str, address: str, topics: Sequence[str], history: History, seed: object) -> None:
        super().__init__(name=name, daemon=True)
        self.address = address
        self.topics = topics
        self.history = history
        self.chance = Random(f"{seed} {name}")
        self.failures: list[str] = []
        self.errors = 0
        self._stopping = threading.Event()
        self._number = 0

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:
            self.failures.append(f"client failed: {self.name} ended with {error!r}")

    def work(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def pause(self, longest_s: float = PACE_S) -> None:
        self._stopping.wait(self.chance.uniform(0, longest_s))

    def next_value(self, transaction: Transaction | None = None) -> bytes:
        value = make_value(self.name, self._number, self.chance)
        self.history.write(self.name, self._number, value, transaction)
        self._number += 1
        return value

    def patiently(self, attempt: Callable[[], T]) -> T:
        """Try until it is done, as long as the client says that trying again may help."""
        deadline = time.monotonic() + GIVE_UP_S
        while True:
            try:
                return attempt()
            except (FlyMQError, KafkaException) as error:
                if not _is_retriable(error) or time.monotonic() > deadline:
                    raise
                self.errors += 1
                time.sleep(0.02)


def _is_retriable(error: Exception) -> bool:
    if isinstance(error, KafkaException):
        return bool(error.args[0].retriable())
    return isinstance(error, FlyMQError) and error.retriable


# --- librdkafka ------------------------------------------------------------------------------------------------------


class KafkaWriter(Client):
    """An idempotent producer of librdkafka."""

    def work(self) -> None:
        settings = {"enable.idempotence": True, "linger.ms": self.chance.choice([0, 5]), "message.timeout.ms": 120_000}
        while not self.is_stopping:
            producer = confluent_kafka.Producer({"bootstrap.servers": self.address, **LIBRDKAFKA, **settings})
            fatal = self._write(producer)
            producer.flush(GIVE_UP_S)
            self.errors += fatal

    def _write(self, producer: confluent_kafka.Producer) -> bool:
        """Write until stopped, or until an error that this producer does not survive."""
        fatal: list[object] = []
        while not self.is_stopping and not fatal:
            for _ in range(self.chance.randint(1, 5)):
                value, topic = self.next_value(), self.chance.choice(self.topics)
                producer.produce(topic, value, partition=0, on_delivery=partial(self._delivered, value, fatal))
            producer.poll(0)
            self.pause()
        return bool(fatal)

    def _delivered(self, value: bytes, fatal: list[object], error: object, message: confluent_kafka.Message) -> None:
        if error is None:
            place = TopicPartition(message.topic(), message.partition())
            self.history.acknowledge(value, place, message.offset())
        else:
            self.errors += 1
            if error.fatal():  # type: ignore[attr-defined]
                fatal.append(error)


class KafkaTransactions(Client):
    """A transactional producer of librdkafka, the same id in all its lives."""

    def work(self) -> None:
        while not self.is_stopping:
            producer = self._new_producer()
            with contextlib.suppress(KafkaException):  # fatal for this producer, and noted
                while not self.is_stopping:
                    self._run(producer)
        self._new_producer()  # what the last one left open is aborted

    def _new_producer(self) -> confluent_kafka.Producer:
        settings = {"transactional.id": self.name, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
        producer = confluent_kafka.Producer({"bootstrap.servers": self.address, **LIBRDKAFKA, **settings})
        self.patiently(lambda: producer.init_transactions(GIVE_UP_S))
        return producer

    def _run(self, producer: confluent_kafka.Producer) -> None:
        transaction = self.history.begin(f"{self.name}/{self._number}")
        is_committing = False
        try:
            producer.begin_transaction()
            for _ in range(self.chance.randint(1, 4)):
                for topic in self.topics:
                    value = self.next_value(transaction)
                    producer.produce(topic, value, partition=0, on_delivery=partial(self._delivered, value))
                producer.poll(0)
                self.pause()
            is_committing = self.chance.random() < 0.7
            end = producer.commit_transaction if is_committing else producer.abort_transaction
            self.patiently(lambda: end(GIVE_UP_S))
            transaction.outcome = Outcome.COMMITTED if is_committing else Outcome.ABORTED
        except KafkaException as error:
            self.errors += 1
            if not is_committing:
                transaction.outcome = Outcome.ABORTED
            if not error.args[0].txn_requires_abort():
                raise
            self.patiently(lambda: producer.abort_transaction(GIVE_UP_S))
            transaction.outcome = Outcome.ABORTED

    def _delivered(self, value: bytes, error: object, message: confluent_kafka.Message) -> None:
        if error is None:
            place = TopicPartition(message.topic(), message.partition())
            self.history.acknowledge(value, place, message.offset())


class KafkaReader(Client):
    """A member of a group, of librdkafka. It reads on after `stop` until `is_enough`."""

    group = "librdkafka readers"
    is_enough: Callable[[], bool] = staticmethod(lambda: True)

    def work(self) -> None:
        settings = {
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 6_000,
        }
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.address, **LIBRDKAFKA, **settings})
        consumer.subscribe(list(self.topics))
        while not (self.is_stopping and self.is_enough()):
            messages = consumer.consume(20, 0.1)
            self.errors += sum(message.error() is not None for message in messages)
            messages = [message for message in messages if message.error() is None]
            for message in messages:
                place = TopicPartition(message.topic(), message.partition())
                self.history.see(place, message.offset(), message.value(), self.group)
            if messages and self.chance.random() < 0.3:
                self._commit(consumer, messages[-1])
        consumer.close()

    def _commit(self, consumer: confluent_kafka.Consumer, message: confluent_kafka.Message) -> None:
        try:
            for done in consumer.commit(message, asynchronous=False):
                if done.error is None:
                    self.history.commit(self.group, TopicPartition(done.topic, done.partition), done.offset)
        except KafkaException:
            self.errors += 1


# --- the SDK ---------------------------------------------------------------------------------------------------------


class SdkWriter(Client):
    """An idempotent producer of the SDK. An impatient one gives up records while the broker is away."""

    delivery_timeout_ms = 120_000

    def work(self) -> None:
        client = FlyMQClient(self.address, **SDK)
        producer = client.producer(
            idempotent=True, linger_ms=self.chance.choice([0, 5]), delivery_timeout_ms=self.delivery_timeout_ms
        )
        while not self.is_stopping:
            try:
                self._send(producer)
            except FlyMQError as error:
                self.errors += 1
                if not error.retriable:
                    raise
            self.pause()
        with contextlib.suppress(FlyMQError):  # reported to `_delivered`
            producer.close()
        client.close()

    def _send(self, producer: Producer) -> None:
        for _ in range(self.chance.randint(1, 5)):
            value, topic = self.next_value(), self.chance.choice(self.topics)
            partition = self.chance.randrange(2)
            producer.send(topic, value, partition=partition, on_delivery=partial(self._delivered, value))

    def _delivered(self, value: bytes, metadata: object, error: FlyMQError | None) -> None:
        if error is None:
            place = TopicPartition(metadata.topic, metadata.partition)  # type: ignore[attr-defined]
            self.history.acknowledge(value, place, int(metadata))  # type: ignore[call-overload]
        else:
            self.errors += 1


class ImpatientSdkWriter(SdkWriter):
    delivery_timeout_ms = 700


class SdkTransactions(Client):
    """A transactional producer of the SDK, the same id in all its lives."""

    def work(self) -> None:
        while not self.is_stopping:
            client = FlyMQClient(self.address, **SDK)
            with contextlib.suppress(FlyMQError):  # fatal for this client, and noted
                while not self.is_stopping:
                    self._run(client)
            client.abort()
        client = FlyMQClient(self.address, **SDK)  # what the last one left open is aborted
        last = client.transaction(self.name, timeout_ms=TRANSACTION_TIMEOUT_MS)
        self.patiently(last.begin)
        self.patiently(last.abort)
        client.close()

    def _run(self, client: FlyMQClient) -> None:
        transaction = self.history.begin(f"{self.name}/{self._number}")
        handle = client.transaction(self.name, timeout_ms=TRANSACTION_TIMEOUT_MS)
        is_committing = False
        try:
            self.patiently(handle.begin)
            for _ in range(self.chance.randint(1, 4)):
                for topic in self.topics:
                    values = [self.next_value(transaction) for _ in range(self.chance.randint(1, 3))]
                    written = handle.produce_batch(topic, values)
                    for value, metadata in zip(values, written, strict=True):
                        place = TopicPartition(metadata.topic, metadata.partition)
                        self.history.acknowledge(value, place, int(metadata))
                self.pause()
            is_committing = self.chance.random() < 0.7
            self.patiently(handle.commit if is_committing else handle.abort)
            transaction.outcome = Outcome.COMMITTED if is_committing else Outcome.ABORTED
        except FlyMQError as error:
            self.errors += 1
            if not is_committing or isinstance(error, TransactionAborted):
                transaction.outcome = Outcome.ABORTED
            raise


class SdkReader(Client):
    """A member of a group, of the SDK. It reads on after `stop` until `is_enough`."""

    group = "sdk readers"
    is_enough: Callable[[], bool] = staticmethod(lambda: True)

    def work(self) -> None:
        while not (self.is_stopping and self.is_enough()):
            client = FlyMQClient(self.address, **SDK)
            try:
                self._read(
                    client.consumer(
                        *self.topics,
                        group=self.group,
                        auto_commit=False,
                        session_timeout_ms=6_000,
                        heartbeat_interval_ms=1_000,
                        fetch_wait_ms=100,
                    )
                )
            except FlyMQError:
                self.errors += 1
                self.pause(0.2)
            finally:
                client.abort()

    def _read(self, consumer: Consumer) -> None:
        while not (self.is_stopping and self.is_enough()):
            records = consumer.poll(timeout_ms=100, max_records=20)
            for record in records:
                place = TopicPartition(record.topic, record.partition)
                self.history.see(place, record.offset, record.value, self.group)
            if records and self.chance.random() < 0.3:
                place = TopicPartition(records[-1].topic, records[-1].partition)
                consumer.commit({place: records[-1].offset + 1})
                self.history.commit(self.group, place, records[-1].offset + 1)
        consumer.close()


ALL_CLIENTS: Sequence[type[Client]] = (
    KafkaWriter,
    KafkaTransactions,
    KafkaReader,
    SdkWriter,
    SdkTransactions,
    SdkReader,
)


# --- the auditor -----------------------------------------------------------------------------------------------------


def read_log(address: str, topics: Sequence[str], isolation: str, give_up_s: float = GIVE_UP_S) -> Log:
    """Return everything from the first to the last offset of each partition."""
    with FlyMQClient(address, **SDK) as client:
        ends = {name: end for topic in topics for name, end in client.admin.latest_offsets(topic).items()}
        found: dict[TopicPartition, list[tuple[int, bytes]]] = {name: [] for name in ends}
        consumer = client.consumer(*topics, isolation=isolation, fetch_wait_ms=50)
        deadline = time.monotonic() + give_up_s
        with consumer:
            while behind := [name for name, end in ends.items() if consumer.position(*name) < end]:
                assert time.monotonic() < deadline, f"{behind[0]} cannot be read to its end, {ends[behind[0]]}"
                for record in consumer.poll(timeout_ms=100):
                    found[TopicPartition(record.topic, record.partition)].append((record.offset, record.value))
    return found


def see_commits(address: str, groups: Sequence[str], history: History) -> None:
    """Look at what is committed. A group that has committed is known to the broker for ever."""
    with FlyMQClient(address, **SDK) as client:
        for name in groups:
            acknowledged = dict(history.commits)  # before the question: others may come before its answer
            known = {group.name for group in client.admin.list_groups()}
            positions = client.admin.describe_group(name).positions if name in known else []
            committed = {TopicPartition(at.topic, at.partition): at.offset for at in positions}
            for (group, partition), offset in acknowledged.items():
                if group == name:
                    history.see_commit(name, partition, committed.get(partition, -1), at_least=offset)
