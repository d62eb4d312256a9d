"""`flymq doctor`: look for what keeps a broker or a client from working well, and say what to do about it."""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import click

from flymq import __version__
from flymq.cli.codec_warning import CODEC_ADVICE, CODEC_IS_SLOW
from flymq.cli.connection import connection_settings
from flymq.cli.diagnosis import ask_limits
from flymq.cli.exit_codes import ExitCode
from flymq.cli.formats.units import show_bytes
from flymq.cli.options import BrokerCommand, wants_json
from flymq.cli.output import aligned, show
from flymq.client.aio.connection import connect
from flymq.client.metrics import Counters
from flymq.client.settings import Address, ClientSettings, ConnectionConfig, parse_addresses, pick
from flymq.host.disk import SystemDisk
from flymq.model.errors import (
    BrokenFrame,
    BrokerUnavailable,
    ConnectionLost,
    FlyMQError,
    JavaMissing,
    RequestTimedOut,
    SparkMissing,
)
from flymq.record.codec import COMPILED
from flymq.spark.java import find_java
from flymq.spark.session import spark_version

_PYTHON_MIN = (3, 11)
_FREE_BYTES_MIN = 1 << 30
_FREE_BYTES_WANTED = 10 << 30
_FSYNC_MS_MAX = 20.0
_FSYNCS = 15
_OPEN_FILES_WANTED = 16_384
_OPEN_FILES_MIN = 4_096
_ANSWER_WITHIN_MS = 3_000
_RELEASED_S = 1_767_225_600  # 2026: a clock that is before it is wrong
_TIME_ERROR = 5  # what adjtimex answers while nothing keeps the clock right


class Status(Enum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(NamedTuple):
    """What one look has found; `advice` says what to do where something is wrong."""

    what: str
    status: Status
    text: str
    advice: str = ""

    @property
    def is_broker(self) -> bool:
        """Whether this is a broker that was greeted."""
        return self.what == "broker" and self.text.startswith("FlyMQ ")


@click.command(cls=BrokerCommand)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default=Path("flymq-data"),
    show_default=True,
    help="Directory of a broker's data.",
)
@click.pass_context
def doctor(context: click.Context, data_dir: Path) -> None:
    """Check this machine and the broker, and say what to do.

    Fails if something does not work; what could be better is a warning.
    """
    server, settings = connection_settings(context)
    findings = [
        check_python(),
        check_codec(),
        *check_disk(data_dir),
        check_open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
        check_clock(time.time()),
        *check_spark(),
    ]
    for address in parse_addresses(server):
        greeted = check_broker(address, settings, is_expected=server is not None)
        findings.append(greeted)
        if greeted.is_broker:
            findings += check_limits(address, settings)
    if wants_json():
        show([{**found._asdict(), "status": found.status.value} for found in findings], [])
    else:
        _print(findings)
    if any(found.status is Status.FAIL for found in findings):
        context.exit(ExitCode.FAILED)


def _print(findings: Sequence[Finding]) -> None:
    """One line each, and below it what to do."""
    _, *lines = aligned([("", "", ""), *((found.status.value, found.what, found.text) for found in findings)])
    for line, found in zip(lines, findings, strict=True):
        click.echo(line)
        if found.advice:
            click.echo(f"{' ' * line.index(found.text)}Try: {found.advice}")


def check_python() -> Finding:
    running = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < _PYTHON_MIN:
        return Finding("Python", Status.FAIL, running, "FlyMQ needs Python 3.11 or newer.")
    return Finding("Python", Status.OK, running)


def check_codec() -> Finding:
    if COMPILED:
        return Finding("record codec", Status.OK, "compiled")
    return Finding("record codec", Status.WARN, CODEC_IS_SLOW, CODEC_ADVICE)


def check_disk(data_dir: Path) -> list[Finding]:
    """Look at the directory, or at the one it would be made in."""
    place = data_dir.absolute()
    while not place.is_dir() and place != place.parent:
        place = place.parent
    free = shutil.disk_usage(place).free
    space = Finding("disk space", Status.OK, f"{show_bytes(free)} free in {place}")
    if free < _FREE_BYTES_WANTED:
        status = Status.FAIL if free < _FREE_BYTES_MIN else Status.WARN
        space = space._replace(status=status, advice="Make room, use another --data-dir, or lower retention.bytes.")
    try:
        fsync_ms = _fsync_ms(place)
    except (FlyMQError, OSError) as error:
        advice = f"Let this user write to {place}, or use another --data-dir."
        return [space, Finding("fsync", Status.FAIL, f"nothing can be written: {error}", advice)]
    fsync = Finding("fsync", Status.OK, f"{fsync_ms:.1f} ms")
    if fsync_ms > _FSYNC_MS_MAX:
        advice = "Topics with persistence=fsync wait so long for each write: use a faster disk for them."
        fsync = fsync._replace(status=Status.WARN, advice=advice)
    return [space, fsync]


def _fsync_ms(place: Path) -> float:
    """Return how long the disk takes to make a small write durable: the median of several."""
    durations_s: list[float] = []
    with tempfile.TemporaryDirectory(prefix=".flymq-doctor-", dir=place) as scratch:
        file = SystemDisk().open(Path(scratch) / "fsync")
        for _ in range(_FSYNCS):
            file.append([bytes(4096)])
            begun_s = time.perf_counter()
            file.sync()
            durations_s.append(time.perf_counter() - begun_s)
    return statistics.median(durations_s) * 1000


def check_open_files(limit: int) -> Finding:
    """A broker raises its soft limit to the hard one; that one is what counts."""
    if limit == resource.RLIM_INFINITY or limit >= _OPEN_FILES_WANTED:
        return Finding("open files", Status.OK, "no limit" if limit == resource.RLIM_INFINITY else f"{limit} allowed")
    status = Status.WARN if limit >= _OPEN_FILES_MIN else Status.FAIL
    advice = f"Each connection and each segment is an open file: allow {_OPEN_FILES_WANTED} (ulimit -Hn, LimitNOFILE=)."
    return Finding("open files", status, f"{limit} allowed", advice)


def check_clock(now_s: float) -> Finding:
    """Timestamps, and so retention, are only as good as the clock."""
    shown = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now_s))
    if now_s < _RELEASED_S:
        return Finding("clock", Status.FAIL, f"{shown}, which is in the past", "Set the clock.")
    if not _is_clock_kept():
        return Finding("clock", Status.WARN, f"{shown}, not synchronized", "Run a time service, such as chrony.")
    return Finding("clock", Status.OK, shown)


def _is_clock_kept() -> bool:
    """Ask Linux whether a time service keeps the clock right; believe it where it cannot be asked."""
    adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
    return adjtimex is None or adjtimex(ctypes.create_string_buffer(512)) != _TIME_ERROR


def check_spark(environ: Mapping[str, str] = os.environ) -> list[Finding]:
    """Look whether Spark could start, without starting or importing it. A machine need not have it."""
    try:
        found = [Finding("PySpark", Status.OK, spark_version())]
    except SparkMissing as error:
        if find_spec("pyspark") is None:
            text = "not installed; pipelines, SQL and backups run on it"
            return [Finding("PySpark", Status.OK, text, error.hint)]
        found = [Finding("PySpark", Status.FAIL, error.message, error.hint)]
    try:
        java = find_java(environ)
        found.append(Finding("Java", Status.OK, f"{java.version} ({java.origin}: {java.home})"))
    except JavaMissing as error:
        found.append(Finding("Java", Status.FAIL, error.message, error.hint))
    if shutil.which("bash", path=environ.get("PATH", "")) is None:
        found.append(Finding("bash", Status.FAIL, "not on the PATH; Spark starts Java by it", "Install bash."))
    return found


def check_broker(address: Address, settings: ClientSettings, *, is_expected: bool) -> Finding:
    """Greet the broker. One that nobody asked for by name need not run."""
    shown = "{}:{}".format(*address)
    patient: ClientSettings = {"connect_timeout_ms": _ANSWER_WITHIN_MS, "request_timeout_ms": _ANSWER_WITHIN_MS}
    config = pick(ConnectionConfig, {**patient, **settings}, addresses=(address,))
    begun_s = time.perf_counter()
    try:
        version = asyncio.run(_version(address, config))
    except BrokerUnavailable as error:
        if is_expected:
            return Finding("broker", Status.FAIL, error.message, error.hint)
        return Finding("broker", Status.OK, f"none runs at {shown}; the port is free")
    except (BrokenFrame, ConnectionLost, RequestTimedOut):
        advice = "Stop that program, or let the broker use another port: --port N."
        return Finding("broker", Status.FAIL, f"what listens at {shown} is no FlyMQ broker", advice)
    except FlyMQError as error:
        return Finding("broker", Status.FAIL, error.message, error.hint)
    text = f"FlyMQ {version} at {shown}, greeted in {(time.perf_counter() - begun_s) * 1000:.0f} ms"
    if version != __version__:
        return Finding(
            "broker", Status.WARN, text, f"This client is {__version__}: use the same version on both sides."
        )
    return Finding("broker", Status.OK, text)


def check_limits(address: Address, settings: ClientSettings) -> list[Finding]:
    """Ask the broker what limits it; one that cannot say is left alone."""
    patient: ClientSettings = {"request_timeout_ms": _ANSWER_WITHIN_MS}
    limits = ask_limits(pick(ConnectionConfig, {**patient, **settings}, addresses=(address,)))
    if limits is None:
        return []
    if not limits:
        return [Finding("load", Status.OK, "nothing limits the broker now")]
    return [Finding(limit.what.replace("_", " "), Status.WARN, limit.text, limit.advice) for limit in limits]


async def _version(address: Address, config: ConnectionConfig) -> str:
    connection = await connect(address, config, Counters())
    connection.close()
    await asyncio.sleep(0)  # let the loop see that the connection has ended
    return connection.server_version
