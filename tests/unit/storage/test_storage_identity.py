"""A data directory belongs to one broker of one cluster, and an empty one is nobody's."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from flymq.host.disk import SystemDisk
from flymq.host.simulated_disk import PowerCut, SimulatedDisk
from flymq.model.errors import ForeignDataDirectory
from flymq.storage.identity import (
    CLEAN_NAME,
    IDENTITY_NAME,
    Identity,
    forget_clean,
    mark_clean,
    open_identity,
    read_identity,
)

DATA = Path("/data")
CHANCE = random.Random(0)


def new_disk(seed: int = 0) -> SimulatedDisk:
    disk = SimulatedDisk(seed)
    disk.make_directory(DATA)
    return disk


def opened(disk: SimulatedDisk, *, cluster: str = "blue", broker_id: int = 1) -> Identity:
    return open_identity(disk, DATA, CHANCE, cluster=cluster, broker_id=broker_id)


def test_an_empty_directory_gets_an_id_which_it_keeps() -> None:
    disk = new_disk()
    first = opened(disk)
    assert first.is_new and not first.was_clean
    again = opened(disk)
    assert again == Identity(first.directory_id, is_new=False, was_clean=False)


def test_a_directory_of_another_broker_or_cluster_is_refused_and_not_touched() -> None:
    disk = new_disk()
    mark_clean(disk, DATA, opened(disk), broker_epoch=7)
    before = {path: disk.read(path) for path in disk.paths()}
    with pytest.raises(ForeignDataDirectory, match="belongs to broker 1 of the cluster blue, not to broker 2 of the"):
        opened(disk, broker_id=2)
    with pytest.raises(ForeignDataDirectory, match="not to broker 1 of the cluster green"):
        opened(disk, cluster="green")
    assert {path: disk.read(path) for path in disk.paths()} == before


def test_an_emptied_directory_has_another_id() -> None:
    disk = new_disk()
    first = opened(disk)
    mark_clean(disk, DATA, first)
    disk.remove(DATA / IDENTITY_NAME)
    emptied = opened(disk)
    assert emptied.is_new and not emptied.was_clean
    assert emptied.directory_id != first.directory_id


def test_a_clean_stop_is_known_at_the_next_start_and_to_no_start_after_it() -> None:
    disk = new_disk()
    identity = opened(disk)
    mark_clean(disk, DATA, identity, broker_epoch=42)
    disk.cut_power()
    assert opened(disk) == Identity(identity.directory_id, is_new=False, was_clean=True, clean_epoch=42)
    forget_clean(disk, DATA)
    disk.cut_power()
    assert not opened(disk).was_clean


def test_the_marker_of_another_directory_counts_for_nothing() -> None:
    copied = new_disk()
    mark_clean(copied, DATA, opened(copied))
    disk = new_disk()
    opened(disk)
    disk.overwrite(DATA / CLEAN_NAME, copied.read(DATA / CLEAN_NAME), sync=True)
    assert not opened(disk).was_clean


def test_a_copy_from_before_the_last_registration_of_the_broker_is_not_complete() -> None:
    disk = new_disk()
    mark_clean(disk, DATA, opened(disk), broker_epoch=42)
    left = opened(disk)
    assert left.is_complete(last_epoch=42) and left.is_complete(last_epoch=0)
    assert not left.is_complete(last_epoch=43)
    forget_clean(disk, DATA)
    assert not opened(disk).is_complete(last_epoch=0)


@pytest.mark.parametrize("seed", range(30))
def test_after_a_power_failure_a_directory_has_its_identity_or_none(seed: int) -> None:
    disk = new_disk(seed)
    disk.bytes_until_cut = seed * 10
    first = None
    with suppress(PowerCut):
        first = opened(disk)
    disk.cut_power()
    again = opened(disk)
    if first is not None:
        assert again == Identity(first.directory_id, is_new=False, was_clean=False)
    assert not again.was_clean


def test_one_flipped_bit_does_no_harm_and_a_ruined_identity_is_a_new_one(caplog: pytest.LogCaptureFixture) -> None:
    disk = new_disk()
    first = opened(disk)
    disk.flip_bit(DATA / IDENTITY_NAME, 3)
    assert opened(disk).directory_id == first.directory_id
    disk.overwrite(DATA / IDENTITY_NAME, b"x" * disk.size(DATA / IDENTITY_NAME), sync=True)
    ruined = opened(disk)
    assert ruined.is_new and ruined.directory_id != first.directory_id
    assert "identity cannot be read and is replaced" in caplog.text


def test_a_full_disk_keeps_no_broker_from_starting() -> None:
    disk = new_disk()
    disk.bytes_free = 0
    identity = opened(disk)
    assert identity.is_new
    mark_clean(disk, DATA, identity)
    assert read_identity(disk, DATA) is None


def test_the_files_are_plain_ones_on_a_real_disk(tmp_path: Path) -> None:
    identity = open_identity(SystemDisk(), tmp_path, CHANCE, cluster="blue", broker_id=3)
    mark_clean(SystemDisk(), tmp_path, identity)
    assert {path.name for path in tmp_path.iterdir()} == {IDENTITY_NAME, CLEAN_NAME}
    assert open_identity(SystemDisk(), tmp_path, CHANCE, cluster="blue", broker_id=3).was_clean
