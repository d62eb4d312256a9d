"""One flipped bit, one lost file, one power cut: what was acknowledged is there, or the store says what is lost."""

from __future__ import annotations

import contextlib
import logging
import random
from pathlib import Path

import pytest

from flymq.host.disk import SystemDisk, replace_file
from flymq.host.simulated_disk import PowerCut, SimulatedDisk
from flymq.metadata.images import IMAGE_NAME, PREVIOUS_NAME
from flymq.metadata.journal import Change, Described, Line, Row, encode_line, journal_path, list_journals, parse_lines
from flymq.metadata.recovery import recover
from flymq.metadata.sqlite import SqliteMetadataStore
from flymq.metadata.store import Delete, Put, Snapshot
from flymq.model.errors import CorruptMetadata, DiskFull

DATA = Path("/data")
FLIPS_PER_FILE = 60


def simulated_disk(seed: int = 0) -> SimulatedDisk:
    disk = SimulatedDisk(seed)
    disk.make_directory(DATA)
    return disk


async def life(disk: SimulatedDisk, name: str, txns: int, *, killed: bool) -> Snapshot:
    """Change the store, and return what is in it; it is closed or killed."""
    store = SqliteMetadataStore.open(disk, DATA / IMAGE_NAME)
    for number in range(txns):
        puts = [Put(f"p/{name}/{number}/{each}", b"leader %d" % each * 5) for each in range(3)]
        await store.txn(success=[*puts, Put("pid/next", b"%d" % number)])
        if number % 5 == 4:
            await store.txn(success=[Delete(f"p/{name}/{number - 2}/0")])
    content = await store.range("")
    if not killed:
        await store.close()
    disk.end_process()
    return content


async def used_store() -> tuple[SimulatedDisk, Snapshot]:
    """A store with two images and changes after the newer one, whose broker was killed."""
    disk = simulated_disk()
    await life(disk, "a", 30, killed=False)
    await life(disk, "b", 30, killed=False)
    content = await life(disk, "c", 30, killed=True)
    assert disk.list(DATA) == [
        "metadata.changes-00000000000000000037",
        "metadata.changes-00000000000000000073",
        IMAGE_NAME,
        PREVIOUS_NAME,
    ]
    return disk, content


def copy_of(disk: SimulatedDisk) -> SimulatedDisk:
    copy = simulated_disk()
    for path in disk.paths():
        replace_file(copy, path, disk.read(path))
    return copy


async def content_of(disk: SimulatedDisk | SystemDisk, directory: Path = DATA) -> Snapshot:
    store = SqliteMetadataStore.open(disk, directory / IMAGE_NAME)
    content = await store.range("")
    await store.close()
    return content


@pytest.mark.parametrize("path", [IMAGE_NAME, PREVIOUS_NAME, "changes-…37", "changes-…73"])
async def test_one_flipped_bit_in_any_file_costs_nothing(path: str) -> None:
    chance = random.Random(path)
    name = path if "db" in path else "metadata." + path.replace("…", "0" * 18)
    sound, content = await used_store()
    size = sound.size(DATA / name)
    regions = [*range(0, 100, 7), *(chance.randrange(size) for _ in range(FLIPS_PER_FILE)), size - 1, size - 2]
    for position in regions:
        disk = copy_of(sound)
        disk.flip_bit(DATA / name, position, chance.randrange(8))
        assert await content_of(disk) == content, f"byte {position} of {name}"
        assert await content_of(disk) == content


async def test_a_flipped_bit_in_the_newest_image_is_logged_and_the_file_is_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk, content = await used_store()
    disk.flip_bit(DATA / IMAGE_NAME, disk.read(DATA / IMAGE_NAME).index(b"leader 2"))
    damaged = disk.read(DATA / IMAGE_NAME)
    with caplog.at_level(logging.WARNING, "flymq"):
        assert await content_of(disk) == content
    assert "does not match its checksum" in caplog.text
    assert f"restored revision {content.revision}" in caplog.text
    assert disk.read(DATA / f"damaged-1.{IMAGE_NAME}") == damaged
    assert recover(disk, DATA).problems == []


@pytest.mark.parametrize("name", [IMAGE_NAME, PREVIOUS_NAME])
async def test_a_missing_image_costs_nothing(name: str) -> None:
    disk, content = await used_store()
    disk.remove(DATA / name)
    assert await content_of(disk) == content


async def test_two_damaged_images_are_refused_and_nothing_is_changed() -> None:
    disk, _ = await used_store()
    for name in (IMAGE_NAME, PREVIOUS_NAME):
        disk.flip_bit(DATA / name, 3)
    before = {path: disk.read(path) for path in disk.paths()}
    with pytest.raises(CorruptMetadata, match=r"metadata\.db.*metadata\.previous\.db") as caught:
        SqliteMetadataStore.open(disk, DATA / IMAGE_NAME)
    assert "flymq repair catalog" in caught.value.hint
    assert {path: disk.read(path) for path in disk.paths()} == before


async def test_a_missing_journal_is_refused_and_not_taken_for_an_older_state() -> None:
    disk, _ = await used_store()
    disk.remove(journal_path(DATA, 73))
    with pytest.raises(CorruptMetadata, match=r"the changes after revision 73: metadata\.changes-0*73 is missing"):
        SqliteMetadataStore.open(disk, DATA / IMAGE_NAME)


async def test_an_acknowledged_change_that_cannot_be_read_is_refused_unless_its_loss_is_accepted() -> None:
    disk, content = await used_store()
    journal = journal_path(DATA, 73)
    raw = disk.read(journal)
    first = raw.index(b'"revision":80')
    for position in (first, raw.index(b'"revision":80', first + 1)):
        disk.flip_bit(journal, position)
    with pytest.raises(CorruptMetadata, match=f"cannot read the changes of the revisions 80 to {content.revision - 1}"):
        SqliteMetadataStore.open(disk, DATA / IMAGE_NAME)
    accepted = recover(disk, DATA, accept_loss=True)
    assert accepted.lost == [f"the changes of the revisions 80 to {content.revision - 1}"]
    store = SqliteMetadataStore.open(disk, DATA / IMAGE_NAME, recovered=accepted)
    result = await store.txn(success=[Put("after", b"")])
    assert result.revision == 80
    disk.end_process()  # killed
    assert (await content_of(disk)).revision == 80, "what came after the gap does not come back"


async def test_a_torn_change_that_was_not_acknowledged_is_not_missed() -> None:
    disk, content = await used_store()
    journal = disk.open_existing(journal_path(DATA, 73))
    unsynced = [Change(content.revision + n, [Row("x", b"", 1, 0)], [], content.revision) for n in (1, 2)]
    journal.append([encode_line(unsynced[0])[:-50].replace(b"change", b"chunge"), encode_line(unsynced[1])])
    found = recover(disk, DATA)
    assert found.revision == content.revision
    assert await content_of(disk) == content
    store = SqliteMetadataStore.open(disk, DATA / IMAGE_NAME)
    assert (await store.txn(success=[Put("y", b"")])).revision == content.revision + 1
    disk.end_process()
    assert (await content_of(disk)).revision == content.revision + 1, "the other change of this number is dead"


async def test_a_store_whose_images_cannot_be_written_goes_on_and_loses_nothing() -> None:
    disk = simulated_disk()
    store = SqliteMetadataStore.open(disk, DATA / IMAGE_NAME)
    await store.txn(success=[Put("a", b"1")])
    disk.bytes_free = 0
    with pytest.raises(DiskFull):
        await store.txn(success=[Put("b", b"2")])
    await store.close()
    disk.bytes_free = None
    assert [each.key for each in (await content_of(disk)).key_values] == ["a"]


async def test_a_full_disk_at_the_start_does_not_keep_the_store_from_being_read() -> None:
    disk, content = await used_store()
    disk.bytes_free = 0
    store = SqliteMetadataStore.open(disk, DATA / IMAGE_NAME)
    assert await store.range("") == content
    await store.close()


@pytest.mark.parametrize("written", [0, 40])
async def test_a_journal_that_could_not_be_begun_hides_no_later_change(written: int) -> None:
    disk = simulated_disk()
    content = await life(disk, "a", 7, killed=True)
    torn = disk.open(journal_path(DATA, content.revision - 2))  # it was removed, and is back after a power failure
    torn.append([encode_line(Described(content.revision - 2, 1, 1, 1))[:written]])
    torn.sync()
    disk.sync_directory(DATA)
    store = SqliteMetadataStore.open(disk, DATA / IMAGE_NAME)
    assert (await store.range("")).key_values == content.key_values
    await store.close()


async def test_images_are_written_as_the_journal_grows_and_old_journals_are_removed() -> None:
    disk = simulated_disk()
    store = SqliteMetadataStore.open(disk, DATA / IMAGE_NAME)
    for number in range(300):
        await store.txn(success=[Put("key", bytes([number % 256]) * 10_000)])
    assert len(list_journals(disk, DATA)) <= 3
    assert sum(disk.size(path) for path in disk.paths()) < 2_000_000
    content = await store.range("")
    disk.end_process()
    assert await content_of(disk) == content


@pytest.mark.parametrize("seed", range(60))
async def test_what_was_acknowledged_survives_power_cuts_at_any_byte_and_a_flipped_bit_after_each(seed: int) -> None:
    chance, disk = random.Random(seed), simulated_disk(seed)
    acknowledged: dict[str, bytes] = {}
    is_healed = True
    for _ in range(6):
        disk.bytes_until_cut = chance.randrange(300_000)
        pending: dict[str, bytes] = {}
        with contextlib.suppress(PowerCut):
            store = SqliteMetadataStore.open(disk, DATA / IMAGE_NAME)
            is_healed = True
            found = {each.key: each.value for each in (await store.range("")).key_values}
            assert acknowledged.items() <= found.items()
            acknowledged = found
            while True:
                pending = {f"k/{chance.randrange(40)}": chance.randbytes(chance.randrange(3_000)) for _ in range(3)}
                await store.txn(success=[Put(key, value) for key, value in pending.items()])
                acknowledged |= pending
        acknowledged = {key: value for key, value in acknowledged.items() if key not in pending}
        disk.cut_power()
        if is_healed and chance.random() < 0.5 and (files := [path for path in disk.paths() if disk.size(path)]):
            path = chance.choice(files)
            disk.flip_bit(path, chance.randrange(disk.size(path)), chance.randrange(8))
            is_healed = False


async def test_one_flipped_bit_in_real_files_costs_nothing(tmp_path: Path) -> None:
    store = SqliteMetadataStore.open(SystemDisk(), tmp_path / IMAGE_NAME)
    await store.txn(success=[Put(f"p/{n}", b"leader of %d" % n) for n in range(100)])
    await store.close()
    content = await content_of(SystemDisk(), tmp_path)
    chance = random.Random(1)
    for _ in range(40):
        flip_a_bit(tmp_path, chance)
        assert await content_of(SystemDisk(), tmp_path) == content


def flip_a_bit(directory: Path, chance: random.Random) -> None:
    path = chance.choice(sorted(directory.glob("metadata.*")))
    raw = bytearray(path.read_bytes())
    raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
    path.write_bytes(raw)


# --- lines ------------------------------------------------------------------------------------------------------------

LINES: list[Line] = [
    Described(7, 2, 123, 1),
    Change(8, [Row("t/é", b"\n\x00value", 8, 0)], ["p/1"], 7),
    Change(9, [], ["t/é"], 8),
]


def test_lines_survive_a_flipped_bit_at_every_position() -> None:
    raw = b"".join(map(encode_line, LINES))
    assert parse_lines(raw) == (LINES, len(raw))
    for position in range(len(raw)):
        for bit in range(8):
            damaged = bytearray(raw)
            damaged[position] ^= 1 << bit
            found, whole = parse_lines(bytes(damaged))
            assert found == LINES, (position, bit)
            assert whole <= position


def test_of_a_torn_line_nothing_is_read_before_its_first_copy_is_whole() -> None:
    raw = b"".join(map(encode_line, LINES))
    last = len(raw) - len(encode_line(LINES[-1]))
    for size in range(last, len(raw)):
        found, whole = parse_lines(raw[:size])
        one_copy = size >= last + len(encode_line(LINES[-1])) // 2 - 1
        assert found == LINES[: 3 if one_copy else 2]
        assert whole <= size
