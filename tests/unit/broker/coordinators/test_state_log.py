"""The tables of an internal topic: loaded where their partitions are led, dropped where they are not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec
import pytest
from tests.unit.broker.world import World
from tests.unit.storage.batches import append_unchecked, poison

from flymq.broker.broker import Broker
from flymq.broker.coordinators.state_log import SETTINGS, Leadership, StateLog
from flymq.broker.safety import wait_safe
from flymq.coordination.entries import Entry, GroupKey, GroupValue, Key, OffsetKey, OffsetValue, encode_entries
from flymq.host.tasks import Tasks
from flymq.host.virtual_time import run
from flymq.model.delivery import Acks
from flymq.model.errors import CoordinatorLoading, NotCoordinator
from flymq.model.names import TopicPartition
from flymq.record.batch import encode_batch

T = TypeVar("T")
OTHER = 7
"""Another broker."""
TOPIC = "__state"
PARTITIONS = 2


class Table:
    """The smallest table: the latest value of each key."""

    kinds: ClassVar[tuple[type[Key], ...]] = (OffsetKey,)

    def __init__(self) -> None:
        self.values: dict[Key, int] = {}

    def check(self, entries: Iterable[Entry]) -> None:
        pass

    def apply(self, entries: Iterable[Entry]) -> None:
        for key, value in entries:
            assert isinstance(value, OffsetValue)
            self.values[key] = value.offset


class HeldThreads:
    """Threads whose work waits until it is let through, one call after the other."""

    def __init__(self) -> None:
        self._turns: asyncio.Queue[None] = asyncio.Queue()
        self.is_held = False
        self.asked = asyncio.Event()

    async def run(self, work: Callable[[], T]) -> T:
        if self.is_held:
            self.asked.set()
            await self._turns.get()
        return work()

    async def until_asked(self) -> None:
        await self.asked.wait()
        self.asked.clear()

    def let_through(self) -> None:
        self._turns.put_nowait(None)

    def close(self) -> None:
        pass


class Coordinator:
    """A state log, and what its leadership has told."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.threads = HeldThreads()
        node = world.node
        self.log = StateLog(TOPIC, PARTITIONS, Table, node.replicas, node.clock, self.threads, node.set_aside)
        self.tasks = Tasks(lambda name, error: pytest.fail(f"{name}: {error!r}"))
        self.loaded: list[int] = []
        self.resigned: list[int] = []
        self.leadership = Leadership(self.log, node.replicas, self.tasks, self._loaded, self._resigned)

    async def _loaded(self, number: int, table: Table) -> None:
        assert self.log.find_table(number) is table
        self.loaded.append(number)

    def _resigned(self, number: int, table: Table) -> None:
        self.resigned.append(number)

    async def write(self, number: int, **offsets: int) -> None:
        await wait_safe(self.log.write(number, [entry(name, offset) for name, offset in offsets.items()]))

    def values(self, number: int) -> dict[str, int] | None:
        table = self.log.find_table(number)
        if table is None:
            return None
        return {key.group: offset for key, offset in table.values.items() if isinstance(key, OffsetKey)}

    async def settle(self) -> None:
        """Let what runs come to an end."""
        await asyncio.sleep(1)


def entry(name: str, offset: int) -> Entry:
    return OffsetKey(name, "orders", 0), OffsetValue(offset)


def name(number: int) -> TopicPartition:
    return TopicPartition(TOPIC, number)


def with_coordinator(scenario: Callable[[World, Broker, Coordinator], Awaitable[None]]) -> None:
    async def live() -> None:
        world = World()
        node = await world.start()
        await node.admin.get_or_create_internal(TOPIC, partitions=PARTITIONS, settings=SETTINGS)
        coordinator = Coordinator(world)
        await coordinator.leadership.open()
        await scenario(world, node, coordinator)
        await coordinator.tasks.close()
        await world.close()

    run(live())


def key_in(log: StateLog[Any], number: int) -> str:
    """Return a key that belongs to this partition."""
    return next(key for key in map(str, range(100)) if log.number_of(key) == number)


# --- find


def test_what_is_led_at_the_start_is_loaded_at_the_start() -> None:
    async def scenario(world: World, node: Broker, coordinator: Coordinator) -> None:
        assert coordinator.loaded == coordinator.log.led() == [0, 1]
        assert coordinator.log.serves_all
        for number in range(PARTITIONS):
            assert coordinator.log.table(key_in(coordinator.log, number)) is coordinator.log.find_table(number)

    with_coordinator(scenario)


def test_a_partition_that_another_broker_leads_is_coordinated_there() -> None:
    async def scenario(world: World, node: Broker, coordinator: Coordinator) -> None:
        await world.elect(name(1), OTHER)
        with pytest.raises(NotCoordinator, match="another broker leads __state-1"):
            coordinator.log.table(key_in(coordinator.log, 1))
        coordinator.log.table(key_in(coordinator.log, 0))
        assert coordinator.resigned == [1]
        assert coordinator.log.led() == [0] and not coordinator.log.serves_all

    with_coordinator(scenario)


def test_a_partition_that_is_being_loaded_asks_for_patience() -> None:
    async def scenario(world: World, node: Broker, coordinator: Coordinator) -> None:
        await coordinator.write(1, g=5)
        coordinator.threads.is_held = True
        await world.elect(name(1), world.broker_id)
        await coordinator.threads.until_asked()
        with pytest.raises(CoordinatorLoading, match="__state-1 is being loaded"):
            coordinator.log.table(key_in(coordinator.log, 1))
        coordinator.log.table(key_in(coordinator.log, 0))  # the others are served meanwhile
        coordinator.threads.let_through()
        await coordinator.settle()
        assert coordinator.values(1) == {"g": 5}

    with_coordinator(scenario)


# --- load


def test_leading_again_gives_the_same_table_and_what_was_written_elsewhere_meanwhile() -> None:
    async def scenario(world: World, node: Broker, coordinator: Coordinator) -> None:
        await coordinator.write(1, g=5, h=6)
        await coordinator.write(1, g=7)
        before = coordinator.log.find_table(1)
        epoch = await world.elect(name(1), OTHER)
        follow_up(world, epoch, entry("n", 8))
        await world.elect(name(1), world.broker_id)
        await coordinator.settle()
        assert coordinator.values(1) == {"g": 7, "h": 6, "n": 8}
        assert coordinator.log.find_table(1) is not before
        assert coordinator.loaded == [0, 1, 1] and coordinator.resigned == [1]

    with_coordinator(scenario)


def follow_up(world: World, leader_epoch: int, *entries: Entry) -> None:
    """Copy what the leader of this epoch has written to partition 1."""
    partition = world.partition(TOPIC, 1)
    batch = encode_entries(entries, now_ms=world.node.clock.now_ms())
    batch[0:8] = partition.log.end_offset.to_bytes(8, "big")
    batch[12:16] = leader_epoch.to_bytes(4, "big")
    partition.append_as_follower(batch, leader_epoch=leader_epoch)


def test_a_leadership_lost_while_loading_leaves_no_half_loaded_table() -> None:
    async def scenario(world: World, node: Broker, coordinator: Coordinator) -> None:
        await coordinator.write(1, g=5)
        coordinator.threads.is_held = True
        await world.elect(name(1), world.broker_id)
        await coordinator.threads.until_asked()
        await world.elect(name(1), OTHER)
        coordinator.threads.let_through()
        await coordinator.settle()
        assert coordinator.values(1) is None
        assert coordinator.loaded == [0, 1]
        with pytest.raises(NotCoordinator):
            coordinator.log.table(key_in(coordinator.log, 1))

    with_coordinator(scenario)


def test_a_leadership_lost_and_won_while_loading_loads_what_is_there_then() -> None:
    async def scenario(world: World, node: Broker, coordinator: Coordinator) -> None:
        await coordinator.write(1, g=5)
        coordinator.threads.is_held = True
        await world.elect(name(1), world.broker_id)
        await coordinator.threads.until_asked()
        epoch = await world.elect(name(1), OTHER)
        follow_up(world, epoch, entry("g", 9))
        await world.elect(name(1), world.broker_id)
        coordinator.threads.is_held = False
        coordinator.threads.let_through()
        await coordinator.settle()
        assert coordinator.values(1) == {"g": 9}
        assert coordinator.loaded == [0, 1, 1]

    with_coordinator(scenario)


def test_a_leadership_lost_while_unreadable_records_are_set_aside_leaves_no_table() -> None:
    async def scenario(world: World, node: Broker, coordinator: Coordinator) -> None:
        world.partition(TOPIC, 1).append(encode_batch([(b"no key", b"")]), Acks.LEADER)
        coordinator.threads.is_held = True
        await world.elect(name(1), world.broker_id)
        await coordinator.threads.until_asked()
        coordinator.threads.let_through()  # replayed
        await coordinator.threads.until_asked()
        await world.elect(name(1), OTHER)
        coordinator.threads.let_through()  # set aside
        await coordinator.settle()
        assert coordinator.values(1) is None

    with_coordinator(scenario)


def test_a_leadership_won_again_while_unreadable_records_are_set_aside_loads_again() -> None:
    async def scenario(world: World, node: Broker, coordinator: Coordinator) -> None:
        world.partition(TOPIC, 1).append(encode_batch([(b"no key", b"")]), Acks.LEADER)
        coordinator.threads.is_held = True
        await world.elect(name(1), world.broker_id)
        await coordinator.threads.until_asked()
        coordinator.threads.let_through()  # replayed
        await coordinator.threads.until_asked()
        await world.elect(name(1), OTHER)
        await world.elect(name(1), world.broker_id)
        coordinator.threads.is_held = False
        coordinator.threads.let_through()  # set aside
        await coordinator.settle()
        assert coordinator.values(1) == {}
        assert coordinator.loaded == [0, 1, 1]

    with_coordinator(scenario)


def test_many_elections_at_once_end_with_each_table_loaded_once_for_its_last_epoch() -> None:
    async def scenario(world: World, node: Broker, coordinator: Coordinator) -> None:
        await coordinator.write(0, a=0)
        await coordinator.write(1, g=1)
        for _ in range(5):
            for number in range(PARTITIONS):
                await world.elect(name(number), OTHER)
                await world.elect(name(number), world.broker_id)
        await coordinator.settle()
        assert [coordinator.values(number) for number in range(PARTITIONS)] == [{"a": 0}, {"g": 1}]
        assert [coordinator.log.leader_epoch(number) for number in range(PARTITIONS)] == [10, 10]

    with_coordinator(scenario)


# --- write


def test_what_is_written_is_in_the_table_at_once_and_on_the_disk_when_it_is_safe() -> None:
    async def scenario(world: World, node: Broker, coordinator: Coordinator) -> None:
        safe = coordinator.log.write(0, [entry("g", 1)])
        assert coordinator.values(0) == {"g": 1}
        assert safe is not None and not safe.done()
        await safe
        assert coordinator.log.safe(0) is None

    with_coordinator(scenario)


# --- records that cannot be read


def test_a_batch_of_noise_is_set_aside_and_the_entries_around_it_count() -> None:
    async def scenario(world: World, node: Broker, coordinator: Coordinator) -> None:
        log = world.partition(TOPIC, 1).log
        append_unchecked(log, bytes(encode_entries([entry("before", 1)], now_ms=0)), poison(3))
        append_unchecked(log, bytes(encode_entries([entry("after", 2)], now_ms=0)))
        await world.elect(name(1), world.broker_id)
        await coordinator.settle()
        assert coordinator.values(1) == {"before": 1, "after": 2}
        assert "1 records are unreadable" in node.set_aside.problems[name(1)]

    with_coordinator(scenario)


def test_unreadable_records_are_set_aside_one_by_one_and_the_rest_of_their_batch_counts() -> None:
    async def scenario(world: World, node: Broker, coordinator: Coordinator) -> None:
        encode = msgspec.msgpack.encode
        key, value = entry("good", 3)
        batch = encode_batch(
            [
                (b"\xc1", b"no MessagePack"),
                (encode(key), encode(value)),
                (encode(GroupKey("g")), encode(GroupValue())),  # of another topic
                (encode(OffsetKey("bad", "orders", 0)), b"\xc1"),
                (encode(OffsetKey("last", "orders", 0)), encode(OffsetValue(4))),
            ]
        )
        world.partition(TOPIC, 1).append(batch, Acks.LEADER)
        await world.elect(name(1), world.broker_id)
        await coordinator.settle()
        assert coordinator.values(1) == {"good": 3, "last": 4}
        assert "3 records are unreadable" in node.set_aside.problems[name(1)]
        assert node.set_aside.records == 3
        lines = world.disk.read(Path("/data/set-aside/__state-1.jsonl")).decode().splitlines()
        assert [json.loads(line)["offset"] for line in lines] == [0, 2, 3]

    with_coordinator(scenario)
