"""Start a pipeline: in the foreground with its progress, or in the background."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import click
from msgspec import structs

from flymq.cli.connection import connect, encryption_settings
from flymq.cli.formats.units import parse_duration_ms
from flymq.cli.options import wants_json
from flymq.cli.output import note, show
from flymq.model.errors import PipelineFailed

if TYPE_CHECKING:
    from flymq.spark.jobs.execution.pipeline_state import PipelineFolder, Pipelines, Progress
    from flymq.spark.jobs.job import Job

_POLL_INTERVAL_S = 0.1
_LINE_INTERVAL_S = 10.0

state_dir_option = click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("flymq-pipelines"),
    show_default=True,
    envvar="FLYMQ_PIPELINES",
    help="Folder with the state of pipelines.  [FLYMQ_PIPELINES]",
)


class RunningOptions(TypedDict):
    """Options of the run, not of the job."""

    name: str | None
    state_dir: Path
    detach: bool
    master: str | None


def duration_option(*names: str, **attributes: Any) -> Callable[[Any], Any]:
    """Return an option that takes a duration such as 10s and passes milliseconds."""
    return click.option(*names, metavar="DURATION", callback=_milliseconds, **attributes)


def _milliseconds(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    try:
        return None if text is None else parse_duration_ms(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None


def running_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the run options to the command of a job."""
    for option in (  # the last one added is the first one listed
        click.option("--master", metavar="URL", help="Spark master.  [default: local]"),
        state_dir_option,
        click.option("--name", metavar="NAME", help="Name of the pipeline.  [default: from the job and the topic]"),
        click.option("--detach", is_flag=True, help="Run in the background."),
    ):
        command = option(command)
    return command


def endless_options(every: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options of a continuous job."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        text = "Trigger interval: minimum time between two batches."
        command = duration_option("--every", "every_ms", default=every, show_default=True, help=text)(command)
        return click.option("--once", is_flag=True, help="Process what is available now, then exit.")(command)

    return add


def start(job: Job, running: RunningOptions) -> None:
    """Save the job under its name and run it."""
    from flymq.spark.jobs.execution.pipeline_state import Pipelines
    from flymq.spark.session import spark_version

    spark_version()
    pipelines, name = Pipelines(running["state_dir"]), running["name"] or job.default_name
    folder = pipelines.keep(name, _with_schema(job, pipelines, name))
    if running["detach"]:
        _run_in_background(folder)
    else:
        run_here(folder)


def _with_schema(job: Job, pipelines: Pipelines, name: str) -> Job:
    """Fix the schema of a job that reads JSON: the one it started with, or inferred from recent messages."""
    from flymq.spark.jobs.job import SqlJob
    from flymq.spark.sampling import infer_schema

    if not isinstance(job, SqlJob) or job.schema is not None:
        return job
    begun = [folder.job() for folder in pipelines.all() if folder.name == name and folder.has_begun]
    if begun and isinstance(begun[0], SqlJob):
        return structs.replace(job, schema=begun[0].schema)
    key_file = None if job.encryption_key_file is None else Path(job.encryption_key_file)
    with connect(**encryption_settings(key_file)) as client:
        return structs.replace(job, schema=infer_schema(client, job.topic))


def run_here(folder: PipelineFolder) -> None:
    """Run a pipeline in this process, and show its progress."""
    from flymq.spark.jobs.execution.runner import run_pipeline

    note(f"Pipeline {folder.name}: starting Spark. Ctrl-C stops it after the current batch.")
    display = _Display(folder.name)
    progress = run_pipeline(folder, display.show)
    display.close()
    figures = {"pipeline": folder.name, "state": progress.state.value, "records": progress.records}
    show(figures, [[name.upper() for name in figures], list(figures.values())])
    if progress.note and not wants_json():
        note(progress.note)


def _run_in_background(folder: PipelineFolder) -> None:
    """Start a process for the pipeline, and return when it runs or has failed to start."""
    from flymq.spark.jobs.execution.pipeline_state import State

    command = [sys.executable, "-m", "flymq", "pipeline", "resume", folder.name, "--state-dir", str(folder.path.parent)]
    before = folder.progress()
    with folder.running():
        pass  # raises if it is already running
    with folder.log.open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, close_fds=True
        )
    while process.poll() is None:
        if folder.pid() == process.pid and folder.progress().state is State.RUNNING:
            note(
                f"Pipeline {folder.name} is running as process {process.pid}. Try: flymq pipeline status {folder.name}"
            )
            return
        time.sleep(_POLL_INTERVAL_S)
    after = folder.progress()
    if process.returncode:
        if after == before:
            raise PipelineFailed(f"the pipeline {folder.name} did not start", hint=f"flymq pipeline logs {folder.name}")
        raise PipelineFailed(after.error, hint=after.hint)
    note(f"Pipeline {folder.name} is {after.state.value}.")


class _Display:
    """A line that is updated in place on a terminal; otherwise a line every few seconds."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._is_terminal = sys.stderr.isatty()
        self._width = 0
        self._last_s = 0.0

    def show(self, progress: Progress) -> None:
        behind = "" if progress.behind is None else f"   lag {progress.behind:,}"
        rate = f"   {progress.records_per_s:,.0f}/s" if progress.records_per_s else ""
        line = f"{self._name}   {progress.state.value}   {progress.records:,} records{rate}{behind}   {progress.error}"
        if self._is_terminal:
            click.echo(f"\r{line.ljust(self._width)}", nl=False, err=True)
            self._width = len(line)
        elif time.monotonic() - self._last_s >= _LINE_INTERVAL_S:
            self._last_s = time.monotonic()
            note(line)

    def close(self) -> None:
        if self._is_terminal:
            click.echo(err=True)
