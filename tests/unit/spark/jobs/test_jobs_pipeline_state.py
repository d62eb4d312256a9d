"""Pipelines are kept in folders that say what they do, who runs them and how far they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flymq.model.errors import (
    InvalidPipeline,
    PipelineDiffers,
    PipelineNotFound,
    PipelineNotRunning,
    PipelineRunning,
)
from flymq.spark.archive.selection import Selection
from flymq.spark.jobs.archive import ArchiveJob
from flymq.spark.jobs.connection import Connection
from flymq.spark.jobs.execution.pipeline_state import PipelineFolder, Pipelines, Progress, State
from flymq.spark.jobs.job import Job
from flymq.spark.jobs.mirror import MirrorJob
from flymq.spark.jobs.restore import RestoreJob
from flymq.spark.jobs.transform import TransformJob

JOB = ArchiveJob(topics=["orders"], to="/archive", broker=Connection(server="here:9092"))


@pytest.fixture
def pipelines(tmp_path: Path) -> Pipelines:
    return Pipelines(tmp_path / "state")


def begun(folder: PipelineFolder) -> PipelineFolder:
    (folder.checkpoint / "offsets").mkdir(parents=True)
    (folder.checkpoint / "offsets" / "0").touch()
    return folder


@pytest.mark.parametrize(
    "job",
    [
        JOB,
        RestoreJob(archive="/archive", selection=Selection(until_ms=5, end_offsets={0: 7}), groups=True),
        MirrorJob(topic="orders", source=Connection(server="there:9092", username="u", password_file="/p")),
        TransformJob(topic="a", to="b", sql="SELECT 1"),
    ],
    ids=lambda job: type(job).__name__,
)
def test_a_job_is_kept_as_it_is(pipelines: Pipelines, job: Job) -> None:
    pipelines.keep("it", job)
    assert Pipelines(pipelines.path).get("it").job() == job


def test_no_password_is_ever_written(pipelines: Pipelines, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("sesame\n")
    connection = Connection(username="alice", password_file=str(tmp_path / "password"))
    folder = pipelines.keep("it", ArchiveJob(topics=["orders"], to="/archive", broker=connection))
    assert folder.job().broker.options()["password"] == "sesame"
    assert "sesame" not in (folder.path / "job.json").read_text()


def test_a_user_without_a_password_file_is_told_what_to_add() -> None:
    with pytest.raises(InvalidPipeline) as caught:
        Connection(username="alice").options()
    assert "--password-file" in caught.value.hint


def test_pipelines_are_listed_by_name_and_forgotten_on_demand(pipelines: Pipelines) -> None:
    assert pipelines.all() == []
    pipelines.keep("b", JOB)
    pipelines.keep("a", JOB)
    assert [folder.name for folder in pipelines.all()] == ["a", "b"]
    pipelines.remove("a")
    assert [folder.name for folder in pipelines.all()] == ["b"]
    with pytest.raises(PipelineNotFound):
        pipelines.get("a")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "x" * 101])
def test_a_name_that_cannot_be_a_folder_is_refused(pipelines: Pipelines, name: str) -> None:
    with pytest.raises(InvalidPipeline):
        pipelines.keep(name, JOB)
    with pytest.raises(PipelineNotFound):
        pipelines.get(name)


def test_a_pipeline_that_has_begun_stays_what_it_is_but_may_run_otherwise(pipelines: Pipelines) -> None:
    begun(pipelines.keep("it", JOB))
    once = ArchiveJob(topics=["orders"], to="/archive", broker=JOB.broker, once=True, every_ms=5)
    assert pipelines.keep("it", once).job() == once
    with pytest.raises(PipelineDiffers):
        pipelines.keep("it", ArchiveJob(topics=["users"], to="/archive", broker=JOB.broker))
    assert pipelines.get("it").job() == once


def test_a_pipeline_that_never_began_can_be_corrected(pipelines: Pipelines) -> None:
    pipelines.keep("it", JOB)
    other = ArchiveJob(topics=["users"], to="/archive")
    assert pipelines.keep("it", other).job() == other


def test_one_process_runs_a_pipeline_at_a_time(pipelines: Pipelines) -> None:
    folder = pipelines.keep("it", JOB)
    assert folder.pid() is None
    with pytest.raises(PipelineNotRunning):
        folder.running_pid()
    with folder.running():
        assert folder.running_pid() == os.getpid()
        with pytest.raises(PipelineRunning), pipelines.get("it").running():
            pass
        with pytest.raises(PipelineRunning):
            pipelines.remove("it")
    assert folder.pid() is None


def test_a_pipeline_whose_process_is_gone_without_a_word_was_killed(pipelines: Pipelines) -> None:
    folder = pipelines.keep("it", JOB)
    assert folder.progress().state is State.NEW
    with folder.running():
        folder.report(Progress(state=State.RUNNING, records=7))
        assert folder.progress().state is State.RUNNING
    assert folder.progress() == Progress(state=State.KILLED, records=7)
    folder.report(Progress(state=State.DONE, records=9))
    assert folder.progress().state is State.DONE


def test_a_file_of_a_newer_version_is_named(pipelines: Pipelines) -> None:
    folder = pipelines.keep("it", JOB)
    (folder.path / "job.json").write_text('{"job": "levitate"}')
    with pytest.raises(InvalidPipeline, match=r"job\.json"):
        folder.job()
