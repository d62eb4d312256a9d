"""Topics to an archive and back."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.jobs.conftest import RunJob
from tests.spark.jobs.records import fill, records_of

from flymq import FlyMQClient
from flymq.model.errors import ArchiveDamaged, FlyMQError, TargetNotEmpty, TopicNotFound
from flymq.spark.archive.archive import Archive
from flymq.spark.archive.selection import Selection
from flymq.spark.archive.verify import verify
from flymq.spark.error_messages import failure_of
from flymq.spark.jobs.archive import ArchiveJob
from flymq.spark.jobs.execution.pipeline_state import Pipelines
from flymq.spark.jobs.restore import RestoreJob


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "archive"


def archive_of(topic: str, root: Path, **fields: int) -> ArchiveJob:
    return ArchiveJob(topics=[topic], to=str(root), **fields)  # type: ignore[arg-type]


def test_a_topic_comes_back_from_its_archive_to_the_byte(
    client: FlyMQClient, topic: str, root: Path, run_job: RunJob, spark: SparkSession
) -> None:
    client.admin.alter_topic(topic, {"retention.ms": 86_400_000, "max.message.bytes": 2_000_000})
    fill(client, topic, 3000)
    with client.transaction() as aborted:
        aborted.send(topic, b"never seen")
        aborted.abort()
    with client.transaction() as committed:
        committed.send(topic, b"seen")
    consumer = client.consumer(topic, group=f"{topic}-readers")
    read = len(consumer.poll())
    consumer.commit()
    consumer.close()

    done = run_job(archive_of(topic, root, file_records=400, batch_records=1500))
    assert done.state == "done"
    found = verify(Archive.open(root))
    assert found.is_whole
    assert (found.rows, found.manifests >= 2) == (3001, True)
    rows = spark.read.parquet(str(root / "data"))
    assert rows.where(f"topic = '{topic}'").count() == 3001  # anything that reads Parquet can read it

    copy = f"{topic}-copy"
    restored = run_job(RestoreJob(archive=str(root), to=copy, groups=True))
    assert restored.records == 3001
    assert records_of(client, copy) == records_of(client, topic)
    assert set(client.admin.describe_topic(copy).overrides) == {"retention.ms", "max.message.bytes"}
    positions = client.admin.describe_group(f"{topic}-readers").positions
    assert sum(at.lag for at in positions if at.topic == copy) == 3001 - read


def test_an_archive_grows_by_what_is_new_whichever_job_goes_on(
    client: FlyMQClient, topic: str, root: Path, run_job: RunJob, pipelines: Pipelines
) -> None:
    fill(client, topic, 300)
    run_job(archive_of(topic, root))
    fill(client, topic, 90, first=300)
    job = archive_of(topic, root)
    assert run_job(job).records == 390
    pipelines.remove(job.default_name)  # its checkpoint is gone; the archive itself says how far it goes
    fill(client, topic, 30, first=390)
    assert run_job(job).records == 30
    assert verify(Archive.open(root))._replace(size_bytes=0) == verify(Archive.open(root))._replace(
        size_bytes=0, rows=420, problems=[], orphans=0
    )


def test_a_batch_that_is_repeated_after_a_crash_is_archived_once(
    client: FlyMQClient, topic: str, root: Path, run_job: RunJob, pipelines: Pipelines
) -> None:
    fill(client, topic, 300)
    job = archive_of(topic, root, batch_records=100)
    run_job(job)
    before = Archive.open(root).manifests()
    commits = pipelines.get(job.default_name).checkpoint / "commits"
    last = max(int(path.name) for path in commits.glob("[0-9]*"))
    for path in (commits / str(last), commits / f".{last}.crc"):
        path.unlink()
    run_job(job)
    assert Archive.open(root).manifests() == before
    assert verify(Archive.open(root)).is_whole


def test_a_restore_takes_a_time_or_offsets_and_shows_beforehand_what_it_takes(
    client: FlyMQClient, topic: str, root: Path, run_job: RunJob
) -> None:
    started_ms = fill(client, topic, 900)
    run_job(archive_of(topic, root, file_records=100))
    before = [[r for r in part if r.timestamp < started_ms + 450] for part in records_of(client, topic)]
    until = RestoreJob(archive=str(root), to=f"{topic}-until", selection=Selection(until_ms=started_ms + 450))
    assert until.plan().rows == 450
    run_job(until)
    assert records_of(client, f"{topic}-until") == before

    some = Selection(start_offsets={0: 10, 1: 50}, end_offsets={0: 20, 2: 0})
    offsets = RestoreJob(archive=str(root), to=f"{topic}-some", selection=some)
    assert [part.rows for part in offsets.plan().partitions] == [10, 250, 0]
    run_job(offsets)
    zero, one, _ = records_of(client, topic)
    assert records_of(client, f"{topic}-some") == [zero[10:20], one[50:], []]


def test_records_that_retention_would_remove_at_once_are_kept_and_the_person_is_told(
    client: FlyMQClient, topic: str, root: Path, run_job: RunJob
) -> None:
    client.admin.alter_topic(topic, {"retention.ms": -1})
    client.produce(topic, b"old", timestamp=1_600_000_000_000, partition=0)
    run_job(archive_of(topic, root))
    client.admin.alter_topic(topic, {"retention.ms": 86_400_000})
    client.produce(topic, b"new", partition=0)
    run_job(archive_of(topic, root))
    copy = f"{topic}-copy"
    done = run_job(RestoreJob(archive=str(root), to=copy))
    assert client.admin.describe_topic(copy).settings["retention.ms"] == -1
    assert f"flymq topic alter {copy} --set retention.ms=86400000" in done.note


def test_a_topic_with_records_is_not_restored_into_unless_asked(
    client: FlyMQClient, topic: str, root: Path, run_job: RunJob
) -> None:
    fill(client, topic, 30)
    run_job(archive_of(topic, root))
    with pytest.raises(TargetNotEmpty):
        run_job(RestoreJob(archive=str(root)))
    run_job(RestoreJob(archive=str(root), append=True))
    assert [len(part) for part in records_of(client, topic)] == [20, 20, 20]


def test_a_truncated_file_is_named_with_what_to_do_and_nothing_is_written(
    client: FlyMQClient, topic: str, root: Path, run_job: RunJob
) -> None:
    fill(client, topic, 300)
    run_job(archive_of(topic, root))
    path = sorted(root.rglob("*.parquet"))[0]
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ArchiveDamaged) as caught:
        run_job(RestoreJob(archive=str(root), to=f"{topic}-copy"))
    assert f"{path} was truncated" in caught.value.message
    assert "copy of the archive" in caught.value.hint
    assert f"{topic}-copy" not in client.list_topics()


def test_damage_that_only_a_task_can_see_is_named_too(
    client: FlyMQClient, topic: str, root: Path, run_job: RunJob
) -> None:
    fill(client, topic, 300)
    run_job(archive_of(topic, root))
    path = sorted(root.rglob("*.parquet"))[0]
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(Exception) as caught:
        run_job(RestoreJob(archive=str(root), to=f"{topic}-copy"))
    error = failure_of(caught.value)
    assert isinstance(error, ArchiveDamaged)
    assert f"{path} cannot be read" in error.message
    assert "copy of the archive" in error.hint


def test_a_topic_that_is_not_there_is_named(root: Path, run_job: RunJob) -> None:
    with pytest.raises(Exception) as caught:
        run_job(archive_of("nowhere", root))
    error = failure_of(caught.value)
    assert isinstance(error, TopicNotFound)
    assert error.message == "the topic 'nowhere' does not exist"
    assert "flymq topic create" in error.hint


def test_records_that_were_gone_before_they_were_archived_end_the_job_unless_allowed(
    client: FlyMQClient, topic: str, root: Path, run_job: RunJob, pipelines: Pipelines
) -> None:
    fill(client, topic, 30)
    job = archive_of(topic, root)
    run_job(job)
    fill(client, topic, 30)
    client.admin.delete_records(dict.fromkeys(client.admin.latest_offsets(topic), 15))
    with pytest.raises(Exception) as caught:
        run_job(job)
    assert failure_of(caught.value).code == "DATA_LOST"
    pipelines.remove(job.default_name)
    run_job(ArchiveJob(topics=[topic], to=str(root), allow_data_loss=True))
    assert verify(Archive.open(root)).problems == [
        f"{topic}-{n}: the offsets from 10 to before 15 are missing" for n in range(3)
    ]
    assert isinstance(failure_of(caught.value), FlyMQError)
