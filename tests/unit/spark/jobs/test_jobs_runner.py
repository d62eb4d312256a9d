"""How a job is run: started again after a failure that passes, and not after one that does not."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from flymq.model.errors import BrokerUnavailable, FlyMQError, TopicNotFound
from flymq.spark.jobs.execution.pipeline_state import PipelineFolder, Progress, State
from flymq.spark.jobs.execution.runner import Run, keep_running
from flymq.spark.jobs.job import Job


class Scripted(Job, frozen=True, kw_only=True):
    """Fails as it is told, then does its work."""

    failures: list[FlyMQError]
    runs: list[str]

    def run(self, run: Run) -> None:
        self.runs.append(run.folder.name)
        if self.failures:
            raise self.failures.pop(0)


@pytest.fixture
def folder(tmp_path: Path) -> PipelineFolder:
    """A pipeline that has begun."""
    (tmp_path / "it" / "checkpoint" / "offsets").mkdir(parents=True)
    (tmp_path / "it" / "checkpoint" / "offsets" / "0").touch()
    return PipelineFolder(tmp_path / "it")


def ran(folder: PipelineFolder, job: Scripted, stopping: threading.Event | None = None) -> list[Progress]:
    spark: Any = None  # these jobs need none
    seen: list[Progress] = []
    with folder.running():
        keep_running(spark, folder, job, stopping or threading.Event(), seen.append, retry_s=0)
    return seen


def test_a_job_waits_for_a_broker_that_is_gone_and_goes_on(folder: PipelineFolder) -> None:
    job = Scripted(failures=[BrokerUnavailable("gone"), BrokerUnavailable("still gone")], runs=[])
    states = [(progress.state, progress.error) for progress in ran(folder, job)]
    again = (State.RUNNING, "")
    assert states == [again, (State.WAITING, "gone"), again, (State.WAITING, "still gone"), again, (State.DONE, "")]
    assert job.runs == ["it"] * 3


@pytest.mark.parametrize("is_once", [True, False])
def test_a_failure_that_does_not_pass_or_a_job_for_once_ends_at_once(folder: PipelineFolder, is_once: bool) -> None:
    failure = BrokerUnavailable("gone") if is_once else TopicNotFound("no such topic")
    job = Scripted(failures=[failure], runs=[], once=is_once)
    with pytest.raises(type(failure)):
        ran(folder, job)
    assert job.runs == ["it"]


def test_a_broker_that_was_never_there_is_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    job = Scripted(failures=[BrokerUnavailable("nobody there")], runs=[])
    with pytest.raises(BrokerUnavailable):
        ran(PipelineFolder(tmp_path / "new"), job)


def test_a_job_that_is_told_to_stop_says_that_it_has_stopped(folder: PipelineFolder) -> None:
    stopping = threading.Event()
    stopping.set()
    assert ran(folder, Scripted(failures=[], runs=[]), stopping)[-1].state is State.STOPPED


def test_a_job_that_waits_can_be_stopped(folder: PipelineFolder) -> None:
    stopping = threading.Event()
    stopping.set()
    job = Scripted(failures=[BrokerUnavailable("gone")], runs=[])
    ran(folder, job, stopping)
    assert (folder.progress().state, job.runs) == (State.STOPPED, ["it"])
