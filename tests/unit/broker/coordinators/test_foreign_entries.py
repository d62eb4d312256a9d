"""What coordinators find in their internal topics, whoever wrote it: the broker starts and serves the rest."""

from __future__ import annotations

import pytest
from tests.unit.broker.world import World

from flymq.broker.coordinators.groups import Committer
from flymq.broker.safety import wait_safe
from flymq.coordination.entries import (
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberKey,
    ConsumerMemberValue,
    Entry,
    OffsetKey,
    OffsetValue,
    encode_entries,
)
from flymq.host.virtual_time import run
from flymq.model.delivery import Acks
from flymq.model.names import TopicPartition
from flymq.record.partitioning import partition_for_key

ORDERS = TopicPartition("orders", 0)


async def restart_with(world: World, number: int, *entries: Entry) -> None:
    """Write entries past the coordinators, next to an offset of theirs, and start again."""
    await world.create_topic("orders", 1)
    _, safe = world.node.groups.commit("billing", Committer(), {ORDERS: OffsetValue(3)})
    await wait_safe(safe)
    await wait_safe(world.partition("__offsets", number).append(encode_entries(entries, now_ms=1), Acks.ALL).safe)
    node = await world.restart()
    assert node.groups.committed("billing")[ORDERS].offset == 3


def test_an_entry_that_belongs_to_another_partition_is_skipped_and_reported() -> None:
    async def live() -> None:
        world = World(internal_partitions=2)
        await world.start()
        other = 1 - partition_for_key(b"audit", 2)
        await restart_with(world, other, (OffsetKey("audit", "gone", 0), OffsetValue(7)))
        assert list(world.node.set_aside.problems) == [TopicPartition("__offsets", other)]
        await world.close()

    run(live())


@pytest.mark.parametrize("wanted", [{"assignor": "of-the-future"}, {"pattern": "("}])
def test_a_group_whose_member_wants_what_is_not_known_here_does_not_keep_a_broker_from_starting(
    wanted: dict[str, str],
) -> None:
    async def live() -> None:
        world = World(internal_partitions=1)
        await world.start()
        member = ConsumerMemberValue(("orders",), **wanted)  # type: ignore[arg-type]
        group = ConsumerGroupKey("audit"), ConsumerGroupValue(1)
        await restart_with(world, 0, group, (ConsumerMemberKey("audit", "m"), member))
        assert world.node.groups.get("audit").assignments() is not None
        await world.close()

    run(live())
