"""What is special to the engine in a file: what it survives, and how it names what it does not."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from flymq.host.disk import SystemDisk
from flymq.host.simulated_disk import PowerCut, SimulatedDisk
from flymq.metadata.images import APPLICATION_ID, FORMAT_VERSION
from flymq.metadata.journal import journal_path, list_journals
from flymq.metadata.sqlite import SqliteMetadataStore
from flymq.metadata.store import Get, Put, is_absent
from flymq.model.errors import (
    CorruptMetadata,
    DiskFull,
    FileVanished,
    FsyncFailed,
    MetadataTooNew,
    RevisionCompacted,
)

T = TypeVar("T")

# Counts in two keys at once, and says each number once it is written; dies when it is killed.
COUNTING_BROKER = """
import asyncio, sys
from pathlib import Path
from flymq.host.disk import SystemDisk
from flymq.metadata.sqlite import SqliteMetadataStore
from flymq.metadata.store import Get, Put, is_absent, modified_at

async def main():
    store = SqliteMetadataStore.open(SystemDisk(), Path(sys.argv[1]))
    session = await store.session(ttl_s=5)
    (await store.txn([is_absent("broker")], [Put("broker", b"", session.lease)])).succeeded or sys.exit(3)
    (left,) = (await store.txn(success=[Get("left")])).found
    number, revision = (int(left.value), left.mod_revision) if left else (0, 0)
    while True:
        number += 1
        value = b"%d" % number
        result = await store.txn([modified_at("left", revision)], [Put("left", value), Put("right", value)])
        assert result.succeeded
        revision = result.revision
        print(number, flush=True)

asyncio.run(main())
"""


async def test_what_was_acknowledged_is_there_after_a_kill_at_any_time(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    for lines_before_kill in (1, 40, 250):
        acknowledged = _count_and_kill(path, lines_before_kill)
        store = SqliteMetadataStore.open(SystemDisk(), path)
        left, right, lease_key = (await store.txn(success=[Get("left"), Get("right"), Get("broker")])).found
        assert left is not None and right is not None
        assert left.value == right.value
        assert acknowledged <= int(left.value) <= acknowledged + 1
        assert lease_key is None
        await store.close()


def _count_and_kill(path: Path, lines_before_kill: int) -> int:
    """Return the last number the broker said before it died."""
    with subprocess.Popen([sys.executable, "-c", COUNTING_BROKER, str(path)], stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        for _ in range(lines_before_kill):
            last = int(broker.stdout.readline())
        broker.kill()
        for line in broker.stdout:  # said between the last line we read and the kill
            last = int(line)
    assert broker.returncode == -signal.SIGKILL
    return last


async def test_a_reopened_store_goes_on_where_it_was(tmp_path: Path) -> None:
    store = SqliteMetadataStore.open(SystemDisk(), tmp_path / "metadata.db")
    await store.txn(success=[Put("a", b"1"), Put("é", b"2")])
    before = await store.range("")
    await store.close()
    store = SqliteMetadataStore.open(SystemDisk(), tmp_path / "metadata.db")
    assert await store.range("") == before
    assert (await store.txn(success=[Put("b", b"")])).revision == before.revision + 1
    with pytest.raises(RevisionCompacted):
        await anext(store.watch("", from_revision=before.revision))
    await store.close()


async def test_a_registration_made_after_reopening_has_a_new_epoch(tmp_path: Path) -> None:
    epochs = []
    for _ in range(2):
        store = SqliteMetadataStore.open(SystemDisk(), tmp_path / "metadata.db")
        session = await store.session(ttl_s=5)
        result = await store.txn([is_absent("b/0")], [Put("b/0", b"", session.lease)])
        assert result.succeeded
        epochs.append(result.revision)
        await store.close()
    assert epochs[0] < epochs[1]


async def test_a_txn_returns_when_its_change_is_on_the_disk() -> None:
    disk, path = SimulatedDisk(), Path("/data/metadata.db")
    disk.make_directory(path.parent)
    store = SqliteMetadataStore.open(disk, path)
    for number in range(5):
        before = disk.syncs
        await store.txn(success=[Put("a", b"%d" % number)])
        assert disk.syncs == before + 1
    disk.cut_power()
    found = await SqliteMetadataStore.open(disk, path).range("a")
    assert [each.value for each in found.key_values] == [b"4"]


async def test_txns_that_wait_at_the_same_time_share_an_fsync_and_keep_their_order() -> None:
    disk, path = SimulatedDisk(), Path("/data/metadata.db")
    disk.make_directory(path.parent)
    store = SqliteMetadataStore.open(disk, path)
    before = disk.syncs
    results = await asyncio.gather(*(store.txn(success=[Put(f"k/{n}", b"")]) for n in range(50)))
    assert disk.syncs - before == 1
    assert [each.revision for each in results] == list(range(results[0].revision, results[0].revision + 50))


async def test_watchers_see_a_change_when_it_is_on_the_disk() -> None:
    disk, path = SimulatedDisk(), Path("/data/metadata.db")
    disk.make_directory(path.parent)
    threads = HeldThreads()
    store = SqliteMetadataStore.open(disk, path, threads=threads)
    batches = store.watch("", from_revision=2)
    seen = asyncio.ensure_future(anext(batches))
    change = asyncio.ensure_future(store.txn(success=[Put("a", b"")]))
    await threads.held.wait()
    assert not seen.done() and not change.done()
    threads.release.set()
    assert (await seen).revision == (await change).revision == 2
    await store.close()


async def test_a_watch_that_falls_behind_what_is_kept_says_so(tmp_path: Path) -> None:
    store = SqliteMetadataStore.open(SystemDisk(), tmp_path / "metadata.db", history_bytes_max=10_000)
    watch = store.watch("", from_revision=(await store.txn(success=[Put("a", b"")])).revision)
    await anext(watch)
    await store.txn(success=[Put("missed", b"")])
    await store.txn(success=[Put("large", bytes(20_000))])
    with pytest.raises(RevisionCompacted):
        await anext(watch)
    await store.close()


async def test_a_change_is_made_even_if_its_caller_does_not_wait_for_it() -> None:
    disk, path = SimulatedDisk(), Path("/data/metadata.db")
    disk.make_directory(path.parent)
    threads = HeldThreads()
    store = SqliteMetadataStore.open(disk, path, threads=threads)
    change = asyncio.ensure_future(store.txn(success=[Put("a", b"")]))
    await threads.held.wait()
    change.cancel()
    threads.release.set()
    assert (await anext(store.watch("", from_revision=2))).events[0].key == "a"
    await store.close()


async def test_a_change_waits_for_a_free_descriptor() -> None:
    disk, path = SimulatedDisk(), Path("/data/metadata.db")
    disk.make_directory(path.parent)
    store = SqliteMetadataStore.open(disk, path)
    await store.txn(success=[Put("a", b"")])
    store._begin_image()  # the next change goes to a new journal, whose name must be made durable
    disk.has_descriptors = False
    change = asyncio.ensure_future(store.txn(success=[Put("b", b"")]))
    await asyncio.sleep(0.01)
    assert not change.done()
    disk.has_descriptors = True
    changed = await change
    assert (await store.range("b")).key_values[0].mod_revision == changed.revision
    await store.close()


async def test_a_failed_fsync_is_reported_once_and_nothing_is_changed_after_it() -> None:
    disk, path = SimulatedDisk(), Path("/data/metadata.db")
    disk.make_directory(path.parent)
    fatal: list[FsyncFailed] = []
    store = SqliteMetadataStore.open(disk, path, on_fatal=fatal.append)
    disk.fail_next("sync", "changes", errno.EIO)
    with pytest.raises(FsyncFailed):
        await store.txn(success=[Put("a", b"")])
    with pytest.raises(FsyncFailed):
        await store.txn(success=[Put("b", b"")])
    await store.close()
    assert len(fatal) == 1


async def test_a_file_of_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = await _without_journals(tmp_path)
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {FORMAT_VERSION + 1}")
    database.close()
    before = path.read_bytes()
    with pytest.raises(MetadataTooNew, match=f"metadata.db has format {FORMAT_VERSION + 1}") as caught:
        SqliteMetadataStore.open(SystemDisk(), path)
    assert "newer version" in caught.value.hint
    assert path.read_bytes() == before


async def test_a_store_of_the_first_versions_is_read_with_its_write_ahead_log(tmp_path: Path) -> None:
    path = await _without_journals(tmp_path)
    running = sqlite3.connect(path, isolation_level=None)
    running.execute("DELETE FROM latest WHERE rowid > 1")
    running.execute("PRAGMA journal_mode = WAL")
    running.execute("DELETE FROM entries WHERE key = ?", (b"p/7",))
    killed = tmp_path / "killed"
    killed.mkdir()
    for name in ("metadata.db", "metadata.db-wal"):
        shutil.copy(tmp_path / name, killed)
    running.close()
    path = killed / "metadata.db"
    store = SqliteMetadataStore.open(SystemDisk(), path)
    assert len((await store.range("p/")).key_values) == 99
    result = await store.txn(success=[Put("a", b"")])
    await store.close()
    reopened = SqliteMetadataStore.open(SystemDisk(), path)
    assert (await reopened.range("a")).key_values[0].mod_revision == result.revision
    assert not reopened.recovered.problems
    await reopened.close()


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE notes (text)")
    database.close()
    with pytest.raises(CorruptMetadata, match="not a FlyMQ metadata store"):
        SqliteMetadataStore.open(SystemDisk(), path)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    path.write_bytes(b"These are not the bytes you are looking for. " * 200)
    with pytest.raises(CorruptMetadata, match=r"metadata\.db"):
        SqliteMetadataStore.open(SystemDisk(), path)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileVanished, match="missing/metadata"):
        SqliteMetadataStore.open(SystemDisk(), tmp_path / "missing" / "metadata.db")


async def test_the_file_says_what_it_is(tmp_path: Path) -> None:
    path = await _filled(tmp_path)
    assert path.read_bytes()[68:72] == APPLICATION_ID.to_bytes(4, "big")


@pytest.mark.parametrize("seed", range(30))
async def test_what_was_acknowledged_is_there_after_a_power_cut_at_any_byte(seed: int) -> None:
    chance, disk, path = random.Random(seed), SimulatedDisk(seed), Path("/data/metadata.db")
    disk.make_directory(path.parent)
    acknowledged = 0
    for _ in range(5):
        disk.bytes_until_cut = chance.randrange(100_000)
        with contextlib.suppress(PowerCut):
            store = SqliteMetadataStore.open(disk, path)
            left, right = (await store.txn(success=[Get("left"), Get("right")])).found
            number = 0 if left is None else int(left.value)
            assert left is None or (right is not None and left.value == right.value)
            assert acknowledged <= number <= acknowledged + 1
            while True:
                value = b"%d" % (number + 1)
                await store.txn(success=[Put("left", value), Put("right", value)])
                number = acknowledged = number + 1
        disk.cut_power()


async def test_a_full_simulated_disk_refuses_a_change_as_a_real_one_does() -> None:
    disk, path = SimulatedDisk(), Path("/data/metadata.db")
    disk.make_directory(path.parent)
    store = SqliteMetadataStore.open(disk, path)
    before = await store.range("")
    disk.bytes_free = 100
    with pytest.raises(DiskFull):
        await store.txn(success=[Put("small", b"")])
    assert await store.range("") == before
    disk.bytes_free = None
    assert (await store.txn(success=[Put("small", b"")])).revision == before.revision + 1
    await store.close()


async def _filled(directory: Path) -> Path:
    """Return a closed metadata file of a few pages."""
    path = directory / "metadata.db"
    store = SqliteMetadataStore.open(SystemDisk(), path)
    await store.txn(success=[Put(f"p/{n}", b"leader of %d" % n + b" " * 200) for n in range(100)])
    await store.close()
    return path


async def _without_journals(directory: Path) -> Path:
    """Return a metadata file alone, as the first versions had it."""
    path = await _filled(directory)
    for journal in list_journals(SystemDisk(), directory):
        journal_path(directory, journal).unlink()
    return path


class HeldThreads:
    """Runs the work when it is released."""

    def __init__(self) -> None:
        self.held, self.release = asyncio.Event(), asyncio.Event()

    async def run(self, work: Callable[[], T]) -> T:
        self.held.set()
        await self.release.wait()
        return work()

    def close(self) -> None:
        pass
