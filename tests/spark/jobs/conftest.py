"""Jobs in the session that all tests share, as `flymq pipeline … --once` would run them in one of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from flymq import FlyMQClient
from flymq.spark.jobs.connection import Connection
from flymq.spark.jobs.execution.pipeline_state import Pipelines, Progress
from flymq.spark.jobs.execution.runner import run_in_session
from flymq.spark.jobs.job import Job
from flymq.testing import TestBroker

RunJob = Callable[[Job], Progress]


@pytest.fixture
def pipelines(tmp_path: Path) -> Pipelines:
    return Pipelines(tmp_path / "pipelines")


@pytest.fixture
def run_job(spark: SparkSession, broker: TestBroker, client: FlyMQClient, pipelines: Pipelines) -> RunJob:
    """Run a job to the end of what is there; run again, it goes on where it was."""

    def run(job: Job) -> Progress:
        job = msgspec.structs.replace(job, once=True, broker=Connection(server=broker.address))
        folder = pipelines.keep(job.default_name, job)
        with folder.running():
            run_in_session(spark, folder, folder.job(), threading.Event())
            return folder.progress()

    return run
