from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest
from tests.unit.storage.batches import append, batch, settings, values

from flymq.host.disk import SystemDisk
from flymq.host.simulated_disk import SimulatedDisk
from flymq.model.errors import DirectoryLocked
from flymq.model.names import TOPIC_NAME_LENGTH_MAX, TopicPartition
from flymq.storage.data_directory import DataDirectory
from flymq.storage.log import Log
from flymq.storage.memory_log import MemoryLog

ORDERS = TopicPartition("orders", 0)
OLD, NEW = UUID(int=1), UUID(int=2)

HOLD_LOCK = """
import sys
from pathlib import Path
from flymq.host.disk import SystemDisk
from flymq.storage.data_directory import DataDirectory
directory = DataDirectory(SystemDisk(), Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_topic_of_the_same_name_as_a_deleted_one_starts_empty() -> None:
    directory = DataDirectory(SimulatedDisk(), Path("/data"))
    append(directory.open(ORDERS, OLD, settings()), batch("old"))
    assert values(directory.open(ORDERS, NEW, settings())) == []
    assert directory.folders() == [directory.folder_name("orders", OLD), directory.folder_name("orders", NEW)]


def test_removing_a_topic_takes_its_files_and_no_others(tmp_path: Path) -> None:
    directory = DataDirectory(SystemDisk(), tmp_path)
    for topic_id in (OLD, NEW):
        log = directory.open(ORDERS, topic_id, settings())
        append(log, batch("a"))
        log.close()
    remove = directory.removal("orders", OLD)
    remove()
    remove()  # to repeat it is harmless
    assert directory.folders() == [directory.folder_name("orders", NEW)]
    assert values(directory.open(ORDERS, NEW, settings())) == ["a"]


def test_who_removes_a_topic_closes_its_files_so_that_nobody_else_waits_for_the_disk_to_free_them(
    tmp_path: Path,
) -> None:
    directory = DataDirectory(SystemDisk(), tmp_path)
    log = directory.open(ORDERS, OLD, settings())
    assert isinstance(log, Log)
    for value in "abc":
        append(log, batch(value))
        log.roll()
    assert values(log) == ["a", "b", "c"]
    assert open_files_below(tmp_path)
    directory.removal("orders", OLD, [log])()
    assert open_files_below(tmp_path) == []


def test_a_closed_log_holds_no_file_open(tmp_path: Path) -> None:
    log = DataDirectory(SystemDisk(), tmp_path).open(ORDERS, OLD, settings())
    append(log, batch("a"))
    log.close()
    assert open_files_below(tmp_path) == []


def open_files_below(directory: Path) -> list[Path]:
    """Return the log files this process has open there."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that lists the others
            found.append(link.readlink())
    return [path for path in found if path.is_relative_to(directory / "topics")]


def test_the_longest_topic_name_fits_into_a_folders_name(tmp_path: Path) -> None:
    directory = DataDirectory(SystemDisk(), tmp_path)
    log = directory.open(TopicPartition("x" * TOPIC_NAME_LENGTH_MAX, 0), OLD, settings())
    assert append(log, batch("a")) == [0]


def test_a_memory_topic_leaves_no_file() -> None:
    disk = SimulatedDisk()
    log = DataDirectory(disk, Path("/data")).open(ORDERS, OLD, settings(persistence="memory"))
    assert isinstance(log, MemoryLog)
    append(log, batch("a"))
    assert [path.name for path in disk.paths()] == []


def test_a_directory_in_use_by_another_process_is_refused_until_that_one_ends(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(DirectoryLocked, match=f"{tmp_path} is in use by process {holder.pid}"):
            DataDirectory(SystemDisk(), tmp_path)
        holder.kill()  # even then the lock goes with it
    directory = DataDirectory(SystemDisk(), tmp_path)
    with pytest.raises(DirectoryLocked):
        DataDirectory(SystemDisk(), tmp_path)
    directory.close()
    DataDirectory(SystemDisk(), tmp_path).close()
