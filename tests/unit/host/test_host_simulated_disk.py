"""The simulated disk forgets what a real one may forget, and nothing else."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path

import pytest

from flymq.host.disk import replace_file
from flymq.host.simulated_disk import PowerCut, SimulatedDisk
from flymq.model.errors import DiskFull, DiskPermissionDenied, FsyncFailed

FOLDER = Path("/data")
FILE = FOLDER / "file"
SEEDS = range(60)


def begin(seed: int) -> SimulatedDisk:
    disk = SimulatedDisk(seed)
    disk.make_directory(FOLDER)
    return disk


def outcomes(change) -> set[bytes | None]:
    """What a power cut after `change` may leave of the file."""
    found = set()
    for seed in SEEDS:
        disk = begin(seed)
        change(disk)
        disk.cut_power()
        found.add(disk.read(FILE) if disk.exists(FILE) else None)
    return found


def test_a_name_that_was_not_synced_may_be_gone() -> None:
    def change(disk: SimulatedDisk) -> None:
        file = disk.open(FILE)
        file.append([b"ab"])
        file.sync()

    assert outcomes(change) == {None, b"ab"}


def test_what_was_synced_stays_and_of_the_rest_any_beginning() -> None:
    def change(disk: SimulatedDisk) -> None:
        file = disk.open(FILE)
        file.append([b"ab"])
        file.sync()
        disk.sync_directory(FOLDER)
        file.append([b"cd"])

    assert outcomes(change) == {b"ab", b"abc", b"abcd", b"ab\0", b"ab\0\0"}


def test_a_truncation_may_be_undone_until_it_is_synced() -> None:
    def change(disk: SimulatedDisk) -> None:
        file = disk.open(FILE)
        file.append([b"abcd"])
        file.sync()
        disk.sync_directory(FOLDER)
        file.truncate(1)

    assert outcomes(change) == {b"a", b"abcd"}


def test_sectors_of_a_large_write_are_lost_each_on_its_own() -> None:
    def change(disk: SimulatedDisk) -> None:
        file = disk.open(FILE)
        disk.sync_directory(FOLDER)
        file.append([b"x" * 2048])

    holes = [left for left in outcomes(change) if left and left.rstrip(b"\0") and b"\0x" in left]
    assert holes
    assert all(
        left[at : at + 512] in (b"x" * 512, bytes(512)) for left in holes for at in range(0, len(left) - 511, 512)
    )


def test_changes_of_names_survive_in_no_order_to_rely_on() -> None:
    seen = set()
    for seed in SEEDS:
        disk = begin(seed)
        for name in "abc":
            disk.open(FOLDER / name)
        disk.cut_power()
        seen.add("".join(disk.list(FOLDER)))
    assert seen == {"", "a", "b", "c", "ab", "ac", "bc", "abc"}


def test_a_replaced_file_is_the_old_or_the_new_one_at_any_moment() -> None:
    seen = set()
    for seed in SEEDS:
        disk = begin(seed)
        replace_file(disk, FILE, b"old")
        disk.bytes_until_cut = seed % 13
        with suppress(PowerCut):
            replace_file(disk, FILE, b"new")
        disk.cut_power()
        seen.add(disk.read(FILE))
    assert seen == {b"old", b"new"}


def test_the_power_goes_in_the_middle_of_a_write() -> None:
    disk = begin(0)
    file = disk.open(FILE)
    disk.bytes_until_cut = 4
    with pytest.raises(PowerCut):
        file.append([b"abcdefgh"])
    assert file.size() == 3  # to begin the write counted as one


def test_a_full_disk_takes_what_fits() -> None:
    disk = begin(0)
    disk.bytes_free = 3
    file = disk.open(FILE)
    with pytest.raises(DiskFull):
        file.append([b"abcdefgh"])
    assert file.size() == 3


def test_a_chosen_operation_fails_once() -> None:
    disk = begin(0)
    file = disk.open(FILE)
    disk.fail_next("append", "file", errno.EACCES)
    disk.fail_next("sync", "file", errno.EIO)
    with pytest.raises(DiskPermissionDenied):
        file.append([b"a"])
    with pytest.raises(FsyncFailed):
        file.sync()
    file.append([b"a"])
    file.sync()
    assert disk.read(FILE) == b"a"


def test_the_same_seed_leaves_the_same() -> None:
    def left(seed: int) -> list[bytes]:
        disk = begin(seed)
        for name in "abcdefgh":
            disk.open(FOLDER / name).append([b"x" * 100])
        disk.cut_power()
        return [disk.read(path) for path in disk.paths()]

    assert left(5) == left(5)
    assert any(left(5) != left(other) for other in range(5))


def test_a_simulated_file_has_no_descriptor() -> None:
    assert begin(0).open(FILE).fileno() is None
