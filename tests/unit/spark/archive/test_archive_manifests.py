"""An archive is what its manifests say."""

from __future__ import annotations

import json

import msgspec
import pytest
from tests.unit.spark.archive.archives import published, written

from flymq.model.errors import ArchiveDamaged, ArchiveInUse, ArchiveNotFound, ArchiveTooNew
from flymq.model.names import TopicPartition
from flymq.spark.archive.archive import MANIFESTS, Archive
from flymq.spark.archive.manifest import encode_manifest, end_offsets, parse_manifest
from flymq.spark.archive.verify import verify


def test_manifests_come_back_in_the_order_of_their_batches(archive: Archive) -> None:
    first, second = archive.manifests()
    assert (first.batch, first.rows, second.batch, second.rows) == (0, 60, 1, 40)
    assert first.topics["orders"].settings == {"retention.ms": 1000}
    assert first.groups == {"billing": {"orders": {0: 5}}}


def test_a_batch_that_is_run_again_changes_nothing(archive: Archive) -> None:
    before = archive.manifests()
    published(archive, 1, [written(archive.root, 60, 100, attempt="b")])
    assert archive.manifests() == before
    assert archive.sweep() == 1
    assert verify(archive).is_whole


def test_an_archive_ends_where_its_last_range_ends(archive: Archive) -> None:
    published(archive, 2, [written(archive.root, 0, 7, partition=1)])
    assert end_offsets(archive.manifests()) == {TopicPartition("orders", 0): 100, TopicPartition("orders", 1): 7}


@pytest.mark.parametrize("keep", [0, 1, 50, -2])
def test_a_manifest_that_was_cut_short_is_named(archive: Archive, keep: int) -> None:
    [path, _] = sorted((archive.root / MANIFESTS).iterdir())
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ArchiveDamaged) as caught:
        archive.manifests()
    assert str(path) in caught.value.message


@pytest.mark.parametrize("content", [b'{"format": 1, "query": "\xff"}', b'{"format": 1, "x": ' + b"[" * 9_000])
def test_a_manifest_that_is_no_text_or_endlessly_nested_is_refused(content: bytes) -> None:
    with pytest.raises(ArchiveDamaged, match=r"x\.json"):
        parse_manifest(content, "x.json")


def test_a_manifest_that_was_altered_is_refused(archive: Archive) -> None:
    [manifest, _] = archive.manifests()
    text = encode_manifest(manifest).replace(b'"rows": 60', b'"rows": 61')
    with pytest.raises(ArchiveDamaged, match="modified"):
        parse_manifest(text, "x.json")


def test_a_manifest_of_a_newer_format_says_so(archive: Archive) -> None:
    [manifest, _] = archive.manifests()
    newer = json.loads(encode_manifest(manifest)) | {"format": 2, "pieces": "something else"}
    with pytest.raises(ArchiveTooNew):
        parse_manifest(json.dumps(newer).encode(), "x.json")


def test_a_folder_without_manifests_is_no_archive(tmp_path) -> None:
    with pytest.raises(ArchiveNotFound):
        Archive.open(tmp_path)


def test_only_one_writes_at_a_time(archive: Archive) -> None:
    with archive.lock(), pytest.raises(ArchiveInUse), Archive.open(archive.root).lock():
        pass


def test_orphans_are_swept_and_nothing_else(archive: Archive) -> None:
    orphan = written(archive.root, 100, 110)
    assert archive.orphans() == [archive.root / orphan.file]
    assert archive.sweep() == 1
    assert verify(archive) == verify(archive)._replace(rows=100, problems=[], orphans=0)


def test_a_whole_archive_is_found_whole(archive: Archive) -> None:
    found = verify(archive)
    assert found.is_whole
    assert (found.manifests, found.files, found.rows, found.orphans) == (2, 2, 100, 0)


def test_a_range_that_is_missing_is_found(archive: Archive) -> None:
    published(archive, 2, [written(archive.root, 110, 120)])
    assert verify(archive).problems == ["orders-0: the offsets from 100 to before 110 are missing"]


def test_a_range_that_is_there_twice_is_found(archive: Archive) -> None:
    published(archive, 0, [written(archive.root, 90, 110, attempt="b")], query="another")
    assert verify(archive).problems == ["orders-0: the offsets from 90 to before 100 are duplicated"]


def test_a_flipped_bit_is_found_and_its_file_named(archive: Archive) -> None:
    path = sorted(archive.root.rglob("*.parquet"))[0]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    [problem] = verify(archive).problems
    assert problem.startswith(f"{path} was modified")


def test_a_file_that_is_missing_is_found(archive: Archive) -> None:
    path = sorted(archive.root.rglob("*.parquet"))[0]
    path.unlink()
    [problem] = verify(archive).problems
    assert problem.startswith(f"{path} is missing")


def test_a_file_with_offsets_beyond_its_range_is_found(archive: Archive) -> None:
    piece = written(archive.root, 100, 120)
    published(archive, 2, [msgspec.structs.replace(piece, end_offset=110)])
    [problem] = verify(archive).problems
    assert "contains offset 119, beyond its range" in problem
