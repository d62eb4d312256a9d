"""Jobs as programs: killed in the middle, stopped, run in the background."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.spark.jobs.conftest import RunJob
from tests.spark.jobs.records import fill, records_of, values_of

from flymq import FlyMQClient
from flymq.spark.archive.archive import Archive
from flymq.spark.archive.verify import verify
from flymq.spark.jobs.archive import ArchiveJob
from flymq.spark.jobs.execution.pipeline_state import Pipelines, State
from flymq.spark.jobs.restore import RestoreJob
from flymq.spark.jobs.transform import TransformJob
from flymq.testing import TestBroker

COMMAND = [sys.executable, "-m", "flymq", "pipeline"]
PATIENCE_S = 250

as_programs = pytest.mark.timeout(600)
"""Each of them starts a Java of its own."""

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(broker: TestBroker, pipelines: Pipelines, tmp_path: Path) -> Iterator[Start]:
    """Start a pipeline as a program; what still runs at the end of the test is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        command = [*COMMAND, *arguments, "--server", broker.address, "--state-dir", str(pipelines.path)]
        with (tmp_path / "output").open("ab") as output:
            started.append(subprocess.Popen(command, stdout=output, stderr=output))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def wait_until(is_true: Callable[[], object], process: subprocess.Popen[bytes] | None = None) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < end_s, "it takes too long"
        assert process is None or process.poll() is None, "the program has ended"
        time.sleep(0.02)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a driver and wait until its Java has noticed, as anybody who starts it again would."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))


@as_programs
def test_an_archive_that_is_killed_goes_on_with_nothing_lost_and_nothing_twice(
    client: FlyMQClient, topic: str, tmp_path: Path, start: Start, run_job: RunJob
) -> None:
    fill(client, topic, 4000)
    root = tmp_path / "archive"
    process = start("archive", topic, "--to", str(root), "--once", "--batch-records", "500", "--file-records", "100")
    wait_until(lambda: len(list(root.glob("manifests/*.json"))) >= 2, process)
    kill(process)
    assert len(list(root.glob("manifests/*.json"))) < 8

    run_job(ArchiveJob(topics=[topic], to=str(root), batch_records=500, file_records=100))
    found = verify(Archive.open(root))
    assert (found.rows, found.problems) == (4000, [])
    assert RestoreJob(archive=str(root)).plan().rows == 4000


@as_programs
def test_a_transform_that_is_killed_writes_every_record_exactly_once(
    client: FlyMQClient, topic: str, start: Start, run_job: RunJob
) -> None:
    client.produce_batch(topic, [(b"%d" % (n % 50), b"%d" % n) for n in range(4000)])
    target, sql = f"{topic}-to", f"SELECT key, value FROM `{topic}`"
    client.create_topic(target, 3)
    process = start("transform", topic, "--to", target, "--sql", sql, "--once", "--batch-records", "500")
    wait_until(lambda: sum(client.admin.latest_offsets(target).values()) > 1000, process)
    kill(process)
    assert sum(map(len, records_of(client, target))) < 4000

    run_job(TransformJob(topic=topic, to=target, sql=sql, batch_records=500))
    assert Counter(values_of(client, target)) == Counter(b"%d" % n for n in range(4000))
    for before, after in zip(records_of(client, topic), records_of(client, target), strict=True):
        assert [record.value for record in after] == [record.value for record in before]


@as_programs
def test_a_pipeline_in_the_background_is_seen_and_stopped(
    client: FlyMQClient, topic: str, tmp_path: Path, broker: TestBroker, pipelines: Pipelines
) -> None:
    def flymq(*arguments: str) -> str:
        command = [*COMMAND, *arguments, "--state-dir", str(pipelines.path)]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S).stdout

    fill(client, topic, 300)
    root, name = tmp_path / "archive", "kept"
    flymq(
        "archive", topic, "--to", str(root), "--every", "100ms", "--name", name, "--detach", "--server", broker.address
    )
    folder = pipelines.get(name)
    pid = folder.running_pid()
    try:
        wait_until(lambda: folder.progress().records == 300)
        assert flymq("list").splitlines()[1].split() == [name, "archive", "running", "300", "0"]
        fill(client, topic, 30)
        wait_until(lambda: folder.progress().records == 330)
    finally:
        flymq("stop", name)
    wait_until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text())
    assert folder.progress().state is State.STOPPED
    assert "records" in flymq("logs", name)
    assert verify(Archive.open(root)).rows == 330


@as_programs
def test_a_job_that_fails_says_why_in_two_lines(start: Start, tmp_path: Path, pipelines: Pipelines) -> None:
    process = start("archive", "nowhere", "--to", str(tmp_path / "archive"), "--once")
    assert process.wait(PATIENCE_S) == 1
    said = (tmp_path / "output").read_text().splitlines()
    assert said[-2:] == [
        "flymq: the topic 'nowhere' does not exist",
        "Try: Create it with `flymq topic create NAME`, or enable `topics.auto_create`.",
    ]
    progress = pipelines.get("archive-nowhere").progress()
    assert (progress.state, progress.error) == (State.FAILED, "the topic 'nowhere' does not exist")
