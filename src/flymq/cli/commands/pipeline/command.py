"""`flymq pipeline`: list, monitor, stop and resume pipelines."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flymq.cli.commands.pipeline.jobs import JOB_COMMANDS
from flymq.cli.commands.pipeline.launch import run_here, state_dir_option
from flymq.cli.commands.pipeline.projects import dry_run, init, run
from flymq.cli.connection import confirm
from flymq.cli.exit_codes import ExitCode
from flymq.cli.formats.units import show_duration_ms
from flymq.cli.options import LocalCommand, Noun, wants_json
from flymq.cli.output import note, show
from flymq.host.clock import SystemClock
from flymq.model.errors import RequestTimedOut

if TYPE_CHECKING:
    from flymq.spark.jobs.execution.pipeline_state import PipelineFolder

_POLL_INTERVAL_S = 0.1
_UNKNOWN = "-"


@click.group(cls=Noun)
def pipeline() -> None:
    """Run Spark pipelines: your own, and built-in jobs that archive, transform and mirror topics."""


for command in (init, run, dry_run, *JOB_COMMANDS):
    pipeline.add_command(command)


@pipeline.command("list", cls=LocalCommand)
@state_dir_option
def list_(state_dir: Path) -> None:
    """List pipelines with their state and progress."""
    found = [_described(folder) for folder in _pipelines(state_dir).all()]
    rows = [(each["name"], each["job"], each["state"], each["records"], _known(each["behind"])) for each in found]
    show(found, [("PIPELINE", "JOB", "STATE", "RECORDS", "LAG"), *rows])
    if not found and not wants_json():
        note(f"There are no pipelines in {state_dir}. Try: flymq pipeline archive TOPIC --to FOLDER")


@pipeline.command(cls=LocalCommand)
@click.argument("name")
@state_dir_option
def status(name: str, state_dir: Path) -> None:
    """Show the configuration, state and progress of a pipeline."""
    found = _described(_pipelines(state_dir).get(name))
    shown = {field: value for field, value in found.items() if value not in ("", None)}
    show(found, [("", ""), *shown.items()])


@pipeline.command(cls=LocalCommand)
@click.argument("name")
@state_dir_option
def resume(name: str, state_dir: Path) -> None:
    """Resume a pipeline from its checkpoint, in the foreground."""
    run_here(_pipelines(state_dir).get(name))


@pipeline.command(cls=LocalCommand)
@click.argument("name")
@click.option("--now", is_flag=True, help="Do not wait for the current batch; it is repeated at the next start.")
@click.option(
    "--wait", "wait_s", type=float, default=120, show_default=True, metavar="SECONDS", help="Maximum time to wait."
)
@state_dir_option
def stop(name: str, now: bool, wait_s: float, state_dir: Path) -> None:
    """Stop a pipeline after its current batch."""
    folder = _pipelines(state_dir).get(name)
    pid = folder.running_pid()
    os.kill(pid, signal.SIGTERM)
    if now:
        os.kill(pid, signal.SIGTERM)
    end_s = time.monotonic() + wait_s
    while folder.pid() == pid:
        if time.monotonic() > end_s:
            raise RequestTimedOut(f"the pipeline {name} is still running", hint=f"flymq pipeline stop {name} --now")
        time.sleep(_POLL_INTERVAL_S)
    note(f"Stopped {name}.")


@pipeline.command(cls=LocalCommand)
@click.argument("name")
@click.option("-f", "--follow", is_flag=True, help="Keep printing until the pipeline ends.")
@state_dir_option
def logs(name: str, follow: bool, state_dir: Path) -> None:
    """Print the log of a pipeline."""
    folder = _pipelines(state_dir).get(name)
    for text in _log(folder, follow=follow):
        sys.stdout.write(text)
        sys.stdout.flush()


@pipeline.command(cls=LocalCommand)
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@state_dir_option
def remove(name: str, yes: bool, state_dir: Path) -> None:
    """Delete a stopped pipeline and its checkpoint. Its output is kept."""
    pipelines = _pipelines(state_dir)
    pipelines.get(name)
    confirm(f"Delete {name} and its checkpoint?", is_sure=yes)
    pipelines.remove(name)
    note(f"Removed {name}.")


@pipeline.command(cls=LocalCommand)
@click.argument("archive", type=click.Path(path_type=Path))
@click.pass_context
def verify(context: click.Context, archive: Path) -> None:
    """Verify an archive: no range missing, no record duplicated, every checksum correct."""
    from flymq.spark.archive.archive import Archive
    from flymq.spark.archive.verify import verify as verify_archive

    found = verify_archive(Archive.open(archive))
    heading = ("MANIFESTS", "FILES", "RECORDS", "BYTES", "PROBLEMS")
    row = (found.manifests, found.files, found.rows, found.size_bytes, len(found.problems))
    show({**found._asdict(), "problems": list(found.problems)}, [heading, row])
    for problem in found.problems if not wants_json() else ():
        note(problem)
    if not found.is_whole:
        context.exit(ExitCode.FAILED)


def _pipelines(state_dir: Path) -> Any:
    from flymq.spark.jobs.execution.pipeline_state import Pipelines
    from flymq.spark.session import spark_version

    spark_version()
    return Pipelines(state_dir)


def _described(folder: PipelineFolder) -> dict[str, Any]:
    import msgspec

    job, progress = msgspec.to_builtins(folder.job()), folder.progress()
    age_ms = SystemClock().now_ms() - progress.updated_ms
    return {
        "name": folder.name,
        "job": job.pop("job"),
        "state": progress.state.value,
        "records": progress.records,
        "records_per_s": round(progress.records_per_s),
        "behind": progress.behind,
        "batches": progress.batches,
        "updated": f"{show_duration_ms(age_ms)} ago" if progress.updated_ms else "",
        "pid": folder.pid(),
        "note": progress.note,
        "error": progress.error,
        "hint": progress.hint,
        "options": " ".join(f"{name}={value}" for name, value in job.items() if name != "broker"),
        "folder": str(folder.path),
    }


def _known(number: int | None) -> int | str:
    return _UNKNOWN if number is None else number


def _log(folder: PipelineFolder, *, follow: bool) -> Iterator[str]:
    """Yield the log, and with --follow what is added while the pipeline runs."""
    if not folder.log.exists():
        note("The log is empty.")
        return
    with folder.log.open(encoding="utf-8", errors="replace") as log:
        while True:
            is_running = folder.pid() is not None
            yield log.read()
            if not follow or not is_running:
                return
            time.sleep(_POLL_INTERVAL_S)
