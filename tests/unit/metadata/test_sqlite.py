"""What is special to the engine in a file: what it survives, and how it names what it does not."""

from __future__ import annotations

import contextlib
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from flymq.host.disk import SystemDisk
from flymq.host.simulated_disk import PowerCut, SimulatedDisk
from flymq.metadata.sqlite import APPLICATION_ID, FORMAT_VERSION, SqliteMetadataStore
from flymq.metadata.store import Get, Put, exists, is_absent
from flymq.model.errors import (
    CorruptMetadata,
    DirectoryLocked,
    DiskFull,
    DiskPermissionDenied,
    MetadataTooNew,
    RevisionCompacted,
)

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


async def test_a_txn_is_synced_to_a_write_ahead_log(tmp_path: Path) -> None:
    store = SqliteMetadataStore.open(SystemDisk(), tmp_path / "metadata.db")
    assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,), "2 is FULL: an fsync for each commit"
    await store.close()


async def test_a_second_broker_on_the_same_file_is_refused(tmp_path: Path) -> None:
    store = SqliteMetadataStore.open(SystemDisk(), tmp_path / "metadata.db")
    with pytest.raises(DirectoryLocked):
        SqliteMetadataStore.open(SystemDisk(), tmp_path / "metadata.db")
    assert (await store.txn([is_absent("a")], [Put("a", b"")])).succeeded
    await store.close()
    await SqliteMetadataStore.open(SystemDisk(), tmp_path / "metadata.db").close()


async def test_a_full_disk_is_named_and_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    store = SqliteMetadataStore.open(SystemDisk(), tmp_path / "metadata.db")
    before = await store.range("")
    store._connection.execute("PRAGMA max_page_count = 10")  # the one way to fill a disk that needs no disk
    with pytest.raises(DiskFull):
        await store.txn(success=[Put("small", b""), Put("large", bytes(100_000))])
    assert await store.range("") == before
    assert (await store.txn(success=[Put("small", b"")])).revision == before.revision + 1
    await store.close()


def test_a_file_of_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    SqliteMetadataStore.open(SystemDisk(), path)._connection.close()
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {FORMAT_VERSION + 1}")
    database.close()
    before = path.read_bytes()
    with pytest.raises(MetadataTooNew, match=f"metadata.db has format {FORMAT_VERSION + 1}") as caught:
        SqliteMetadataStore.open(SystemDisk(), path)
    assert "newer version" in caught.value.hint
    assert path.read_bytes() == before


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


async def test_a_file_with_a_damaged_page_is_refused(tmp_path: Path) -> None:
    path = await _filled(tmp_path)
    content = bytearray(path.read_bytes())
    content[-4096:-4000] = bytes(96)  # the head of a page of the tree
    path.write_bytes(content)
    with pytest.raises(CorruptMetadata):
        SqliteMetadataStore.open(SystemDisk(), path)


async def test_a_flipped_bit_in_a_value_is_detected_and_never_served(tmp_path: Path) -> None:
    path = await _filled(tmp_path)
    content = path.read_bytes()
    assert content.count(b"leader of 77") == 1
    path.write_bytes(content.replace(b"leader of 77", b"leader of 76"))
    store = SqliteMetadataStore.open(SystemDisk(), path)
    with pytest.raises(CorruptMetadata, match="p/77"):
        await store.range("p/")
    with pytest.raises(CorruptMetadata, match="p/77"):
        await store.txn([exists("p/77")], [Put("p/77", b"")])
    assert (await store.txn(success=[Get("p/78")])).found[0] is not None
    await store.close()


async def test_a_revision_that_went_back_is_detected(tmp_path: Path) -> None:
    path = await _filled(tmp_path)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE latest SET revision = 1")
    database.close()
    with pytest.raises(CorruptMetadata, match="revision 2, but the latest revision is 1"):
        SqliteMetadataStore.open(SystemDisk(), path)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(DiskPermissionDenied, match=r"missing/metadata\.db"):
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
