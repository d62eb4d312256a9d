"""Remove from internal topics what cannot be read, offline: no broker may run on the data directory.

The state that the readable records give is written again at the end of the partition, and what lies before it is
deleted. So a crash at any point leaves a log that replays to the same state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flymq.broker.coordinators.set_aside import SetAside
from flymq.broker.coordinators.state_log import OFFSETS, TRANSACTIONS, Belongs, Table, keys_of, replay
from flymq.cluster.image import Topic
from flymq.coordination.entries import Entry, Unreadable, encode_entries
from flymq.coordination.group import GroupLimits
from flymq.coordination.groups import GroupTable
from flymq.coordination.transaction_table import TransactionTable
from flymq.host.host import Host
from flymq.host.tasks import run_steps_here
from flymq.model.errors import UncleanShutdown
from flymq.model.names import TopicPartition
from flymq.server.stopped_broker import stopped_broker
from flymq.storage.data_directory import DataDirectory
from flymq.storage.log import Log

_ENTRIES_PER_BATCH = 1_000

_TABLES: dict[str, Callable[[], GroupTable | TransactionTable]] = {
    OFFSETS: lambda: GroupTable(GroupLimits()),
    TRANSACTIONS: TransactionTable,
}


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was found in one partition."""

    name: TopicPartition
    unreadable: list[Unreadable]
    kept: int
    """Entries of the state that the readable records give."""


async def repair_internal_topics(host: Host, data_dir: Path, *, dry_run: bool) -> list[Repaired]:
    """Remove unreadable records from the internal topics; return what was found. A dry run changes nothing."""
    found = []
    async with stopped_broker(host, data_dir) as broker:
        for topic_name in _TABLES:
            if (topic := broker.image.find(topic_name)) is not None:
                for number in range(len(topic.partitions)):
                    found.append(_repair(host, data_dir, broker.directory, topic, number, dry_run=dry_run))
    return found


def _repair(
    host: Host, data_dir: Path, directory: DataDirectory, topic: Topic, number: int, *, dry_run: bool
) -> Repaired:
    name = TopicPartition(topic.name, number)
    log = directory.open(name, topic.topic_id, topic.config)
    assert isinstance(log, Log), "internal topics are on disk"
    if not log.recovery.clean:
        raise UncleanShutdown(f"{name} was not closed cleanly")
    table = _TABLES[topic.name]()
    unreadable = _replay_all(log, table, keys_of(number, len(topic.partitions)))
    entries: list[Entry] = [(key, value) for key, value in table.entries().items()]
    if unreadable and not dry_run:
        SetAside(host.disk, data_dir).copy(name, unreadable)
        snapshot_offset = log.end_offset
        epoch, now_ms = topic.partitions[number].leader_epoch, host.clock.now_ms()
        for start in range(0, len(entries), _ENTRIES_PER_BATCH):
            some = entries[start : start + _ENTRIES_PER_BATCH]
            log.append(encode_entries(some, now_ms=now_ms), leader_epoch=epoch, now_ms=now_ms)
        run_steps_here(log.delete_before(snapshot_offset))
    log.close()
    return Repaired(name, unreadable, len(entries))


def _replay_all(log: Log, table: Table, belongs: Belongs) -> list[Unreadable]:
    unreadable: list[Unreadable] = []
    offset = log.start_offset
    while (found := log.read(offset, bytes_max=1 << 20)) is not None:
        offset = replay(found, table, belongs, unreadable)
    return unreadable
