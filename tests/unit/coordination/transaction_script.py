"""The commands of the scenarios in scenarios/transactions: transactional ids, their log, and where they are open."""

from __future__ import annotations

from collections.abc import Iterator

from tests.unit.coordination.scripts import Command, split_options

from flymq.coordination.attempts import Attempt, decide_commit_attempts, decide_delete
from flymq.coordination.entries import Entry, OffsetValue, ProducerIdentity
from flymq.coordination.group import GroupLimits
from flymq.coordination.groups import GroupTable
from flymq.coordination.request_order import RequestOrder
from flymq.coordination.transaction_table import TransactionTable
from flymq.coordination.transactions import (
    Joining,
    check_announced,
    check_identity,
    check_ongoing,
    check_producer,
    check_renewal,
    decide_abort_left_open,
    decide_acknowledge,
    decide_add,
    decide_begin,
    decide_complete,
    decide_end,
    decide_init,
    ending_of,
    find_ended,
    needs_marker,
)
from flymq.model.names import TopicPartition

Open = dict[TopicPartition, dict[int, int]]
"""Partition → producer id → epoch of the transaction it has open there."""


class TransactionScript:
    def __init__(self) -> None:
        self.log: list[Entry] = []
        self.table = TransactionTable()
        self.groups = GroupTable(GroupLimits())
        self.order = RequestOrder()
        self.open: Open = {}
        self.next_producer_id = 0
        self.now_ms = 0

    def find(self, name: str) -> Command:
        command: Command = getattr(self, f"do_{name.replace('-', '_')}")
        return command

    def write(self, entries: list[Entry]) -> None:
        self.now_ms += 1
        self.table.check(entries)
        self.log += entries
        self.table.apply(entries)

    def show(self, name: str) -> str:
        value = self.table.find(name)
        if value is None:
            return f"{name}: unknown"
        return f"{name}: {value.state.value}, {_identity(value.producer)}"

    def fresh(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id - 1

    def producer(self, name: str, options: dict[str, str]) -> ProducerIdentity:
        """The producer of a request: by default the current one of the id."""
        value = self.table.find(name)
        if "as" in options:
            producer_id, epoch = options["as"].split("/")
            return ProducerIdentity(int(producer_id), int(epoch))
        return ProducerIdentity(-1, -1) if value is None else value.producer

    # --- commands

    def do_init(self, words: list[str]) -> Iterator[str]:
        name = words[0]
        value = self.table.find(name)
        if value is not None and not value.state.is_idle:
            if not value.state.is_ending:
                self.write(decide_end(name, value, commit=False, now_ms=self.now_ms))
            yield from self.do_finish([name])
            value = self.table.find(name)
        fresh = self.fresh() if value is None or value.producer.epoch > 32_000 else -1
        self.write(decide_init(name, value, fresh, timeout_ms=1000, now_ms=self.now_ms))
        yield self.show(name)

    def do_renew(self, words: list[str]) -> Iterator[str]:
        """A producer requests a new epoch for itself."""
        (name, *_), options = split_options(words)
        producer = self.producer(name, options)
        value = self.table.find(name)
        if (renewed := check_renewal(name, value, producer)) is not None:
            yield f"was done before: go on as {_identity(renewed)}"
            return
        assert value is None or value.state.is_idle
        self.write(decide_init(name, value, -1, timeout_ms=1000, predecessor=producer, now_ms=self.now_ms))
        yield self.show(name)

    def do_age(self, words: list[str]) -> Iterator[str]:
        """Pretend that the producer has had so many epochs."""
        name, epoch = words
        while (value := self.table.find(name)) is not None and value.producer.epoch < int(epoch):
            self.write(decide_init(name, value, -1, timeout_ms=1000, now_ms=self.now_ms))
        yield self.show(name)

    def do_begin(self, words: list[str]) -> Iterator[str]:
        (name, *_), options = split_options(words)
        value = check_producer(name, self.table.find(name), self.producer(name, options))
        self.write(decide_begin(name, value, now_ms=self.now_ms))
        yield self.show(name)

    def do_add(self, words: list[str]) -> Iterator[str]:
        """Add partitions as a Kafka client without KIP-890, on the connection of this number."""
        (name, *partitions), options = split_options(words)
        self.order.check(name, int(options.get("via", 0)))
        self.begin_with(name, self.producer(name, options), partitions, keeps_epoch=True)
        yield self.show(name)

    def begin_with(self, name: str, producer: ProducerIdentity, partitions: list[str], *, keeps_epoch: bool) -> None:
        value = check_producer(name, self.table.find(name), producer)
        if value.state.is_idle:
            self.write(decide_begin(name, value, keeps_epoch=keeps_epoch, now_ms=self.now_ms))
        value = check_ongoing(name, self.table.find(name), producer)
        self.write(decide_add(name, value, partitions=list(map(_partition, partitions)), now_ms=self.now_ms))

    def do_write(self, words: list[str]) -> Iterator[str]:
        """Write to partitions, which join the transaction as in FlyMQ's protocol unless another way is named."""
        (name, *partitions), options = split_options(words)
        producer = self.producer(name, options)
        joining = Joining(options.get("joining", "written"))
        names = [_partition(partition) for partition in partitions]
        if joining is Joining.BEGINS:
            self.begin_with(name, producer, partitions, keeps_epoch=False)
        value = check_ongoing(name, self.table.find(name), producer)
        if joining is Joining.ANNOUNCED:
            check_announced(name, value, partitions=names)
        self.write(decide_add(name, value, partitions=names, now_ms=self.now_ms))
        for partition in names:
            self.open.setdefault(partition, {})[producer.producer_id] = producer.epoch
        yield "written"

    def do_offsets(self, words: list[str]) -> Iterator[str]:
        (name, group), options = split_options(words)
        producer = self.producer(name, options)
        value = check_ongoing(name, self.table.find(name), producer)
        self.write(decide_add(name, value, groups=[group], now_ms=self.now_ms))
        offsets = self.groups.get_or_add(group).offsets
        values = {_partition(key): OffsetValue(int(at)) for key, at in options.items() if key != "as"}
        self.groups.apply(offsets.decide_pend(producer, values))
        yield "waiting"

    def do_committed(self, words: list[str]) -> Iterator[str]:
        for partition, value in sorted(self.groups.get_or_add(words[0]).offsets.committed.items()):
            yield f"{partition.topic}:{partition.partition} at {value.offset}"

    def do_commit(self, words: list[str]) -> Iterator[str]:
        yield from self.end(words, commit=True)

    def do_abort(self, words: list[str]) -> Iterator[str]:
        yield from self.end(words, commit=False)

    def end(self, words: list[str], *, commit: bool) -> Iterator[str]:
        (name, *flags), options = split_options(words)
        producer = self.producer(name, options)
        if "via" in options:
            self.order.check(name, int(options["via"]))
        value = self.table.find(name)
        if (before := find_ended(value, producer, commit=commit)) is not None:
            yield f"was done before: go on as {_identity(before.successor)}"
            return
        keeps_epoch = "keeping-the-epoch" in flags
        value = check_identity(name, value, producer)
        if value.state.is_idle and not commit and keeps_epoch:
            self.write(decide_acknowledge(name, value, now_ms=self.now_ms))
            yield self.show(name)
            return
        if commit or not value.state.is_idle:
            value = check_ongoing(name, value, producer)
        fresh = self.fresh() if value.producer.epoch > 32_000 else -1
        self.write(decide_end(name, value, fresh, commit=commit, keeps_epoch=keeps_epoch, now_ms=self.now_ms))
        yield self.show(name)

    def do_time_out(self, words: list[str]) -> Iterator[str]:
        [name] = words
        value = self.table.find(name)
        assert value is not None
        keeps_epoch = value.keeps_epoch
        self.write(decide_end(name, value, commit=False, keeps_epoch=keeps_epoch, by_broker=True, now_ms=self.now_ms))
        yield self.show(name)

    def do_mark(self, words: list[str]) -> Iterator[str]:
        """Write the markers, in the named partitions only if some are named."""
        name, *only = words
        value = self.table.find(name)
        assert value is not None
        producer_id = value.producer.producer_id
        for partition in value.partitions:
            if only and partition not in map(_partition, only):
                continue
            opened = self.open.get(partition, {}).get(producer_id)
            ending = ending_of(value, coordinator_epoch=0)
            if needs_marker(ending, known_epoch=opened, open_epoch=opened, fences=False):
                del self.open[partition][producer_id]
                yield f"marker at epoch {ending.marker_epoch} in {_show(partition)}"
            else:
                yield f"no marker in {_show(partition)}"
        for group in value.groups:
            offsets = self.groups.get_or_add(group).offsets
            self.groups.apply(offsets.decide_end(value.producer, committed=value.state.value == "committing"))
            yield f"offsets of {group} ended"

    def do_complete(self, words: list[str]) -> Iterator[str]:
        [name] = words
        value = self.table.find(name)
        assert value is not None
        last_batch = self.table.last_batch(name.split(":")[0])
        entries = decide_delete(name, value, last_batch=last_batch)
        self.write(entries or decide_complete(name, value, now_ms=self.now_ms))
        yield self.show(name)

    def do_finish(self, words: list[str]) -> Iterator[str]:
        yield from self.do_mark(words)
        yield from self.do_complete(words)

    def do_commit_attempts(self, words: list[str]) -> Iterator[str]:
        query, batch, *names = words
        listed = {name: self.producer(name, {}) for name in names}
        entries = decide_commit_attempts(
            Attempt(query, int(batch)),
            listed,
            last_batch=self.table.last_batch(query),
            known=self.table.attempts(query),
            now_ms=self.now_ms,
        )
        self.write(entries)
        yield f"{query} is at batch {self.table.last_batch(query)}"
        for name, value in self.table.attempts(query):
            yield f"{name}: {value.state.value}"

    def do_crash(self, words: list[str]) -> Iterator[str]:
        """Forget everything but the log, and of that the last entries."""
        lost = int(split_options(words)[1].get("losing", 0))
        del self.log[len(self.log) - lost :]
        self.table = TransactionTable()
        self.table.apply(self.log)
        for name, _ in self.table:
            yield self.show(name)

    def do_recover(self, _words: list[str]) -> Iterator[str]:
        """Do as the broker does when it starts after a crash."""
        for name, value in self.table:
            if value.state.is_ending:
                yield from self.do_finish([name])
        for name, value in self.table:
            left_open = [
                partition
                for partition, producers in self.open.items()
                if producers.get(value.producer.producer_id) == value.producer.epoch
            ]
            if left_open or value.state.value == "ongoing":
                self.write(decide_abort_left_open(name, value, partitions=left_open, now_ms=self.now_ms))
                yield from self.do_finish([name])

    def do_open(self, _words: list[str]) -> Iterator[str]:
        for partition, producers in sorted(self.open.items()):
            for producer_id, epoch in producers.items():
                yield f"{_show(partition)}: {_identity(ProducerIdentity(producer_id, epoch))}"


def _identity(producer: ProducerIdentity) -> str:
    return f"producer {producer.producer_id} epoch {producer.epoch}"


def _partition(name: str) -> TopicPartition:
    topic, number = name.split(":")
    return TopicPartition(topic, int(number))


def _show(partition: TopicPartition) -> str:
    return f"{partition.topic}:{partition.partition}"
