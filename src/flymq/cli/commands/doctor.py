"""`flymq doctor`: check for problems of this machine and of a broker, and suggest fixes."""

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
from flymq.host.network import SystemNetwork
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
_TIMEOUT_MS = 3_000
_RELEASED_S = 1_767_225_600  # 2026: a clock before this date is wrong
_TIME_ERROR = 5  # returned by adjtimex while the clock is not synchronized


class Status(Enum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(NamedTuple):
    """The result of one check; `advice` says how to fix a problem."""

    what: str
    status: Status
    text: str
    advice: str = ""

    @property
    def is_broker(self) -> bool:
        """Whether this is a FlyMQ broker that answered."""
        return self.what == "broker" and self.text.startswith("FlyMQ ")


@click.command(cls=BrokerCommand)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default=Path("flymq-data"),
    show_default=True,
    help="Data directory of the broker.",
)
@click.pass_context
def doctor(context: click.Context, data_dir: Path) -> None:
    """Check this machine and the broker for problems.

    Suggests a fix for each problem. Exits with 1 if something does not work; a warning is not an error.
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
    """One line each, and below it the fix."""
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
    """Check the directory, or the existing parent it would be created in."""
    place = data_dir.absolute()
    while not place.is_dir() and place != place.parent:
        place = place.parent
    free = shutil.disk_usage(place).free
    space = Finding("disk space", Status.OK, f"{show_bytes(free)} free in {place}")
    if free < _FREE_BYTES_WANTED:
        status = Status.FAIL if free < _FREE_BYTES_MIN else Status.WARN
        space = space._replace(
            status=status, advice="Free some space, use another --data-dir, or lower retention.bytes."
        )
    try:
        fsync_ms = _fsync_ms(place)
    except (FlyMQError, OSError) as error:
        advice = f"Give this user write access to {place}, or use another --data-dir."
        return [space, Finding("fsync", Status.FAIL, f"cannot write: {error}", advice)]
    fsync = Finding("fsync", Status.OK, f"{fsync_ms:.1f} ms")
    if fsync_ms > _FSYNC_MS_MAX:
        advice = "Each write to a topic with persistence=fsync takes this long: use a faster disk for them."
        fsync = fsync._replace(status=Status.WARN, advice=advice)
    return [space, fsync]


def _fsync_ms(place: Path) -> float:
    """Return the median latency of an fsync after a small write."""
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
    """A broker raises its soft limit to the hard limit, so the hard limit counts."""
    if limit == resource.RLIM_INFINITY or limit >= _OPEN_FILES_WANTED:
        return Finding("open files", Status.OK, "no limit" if limit == resource.RLIM_INFINITY else f"{limit} allowed")
    status = Status.WARN if limit >= _OPEN_FILES_MIN else Status.FAIL
    advice = f"Each connection and each segment is an open file: allow {_OPEN_FILES_WANTED} (ulimit -Hn, LimitNOFILE=)."
    return Finding("open files", status, f"{limit} allowed", advice)


def check_clock(now_s: float) -> Finding:
    """Timestamps and retention depend on the clock."""
    shown = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now_s))
    if now_s < _RELEASED_S:
        return Finding("clock", Status.FAIL, f"{shown}, which is too early", "Set the clock.")
    if not _is_clock_synchronized():
        return Finding("clock", Status.WARN, f"{shown}, not synchronized", "Run an NTP service, such as chrony.")
    return Finding("clock", Status.OK, shown)


def _is_clock_synchronized() -> bool:
    """Ask Linux whether the clock is synchronized; assume so on other systems."""
    adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
    return adjtimex is None or adjtimex(ctypes.create_string_buffer(512)) != _TIME_ERROR


def check_spark(environ: Mapping[str, str] = os.environ) -> list[Finding]:
    """Check whether Spark could start, without importing or starting it. It is optional."""
    try:
        found = [Finding("PySpark", Status.OK, spark_version())]
    except SparkMissing as error:
        if find_spec("pyspark") is None:
            text = "not installed; needed for pipelines, SQL and backups"
            return [Finding("PySpark", Status.OK, text, error.hint)]
        found = [Finding("PySpark", Status.FAIL, error.message, error.hint)]
    try:
        java = find_java(environ)
        found.append(Finding("Java", Status.OK, f"{java.version} ({java.origin}: {java.home})"))
    except JavaMissing as error:
        found.append(Finding("Java", Status.FAIL, error.message, error.hint))
    if shutil.which("bash", path=environ.get("PATH", "")) is None:
        found.append(Finding("bash", Status.FAIL, "not on the PATH; Spark needs it to start Java", "Install bash."))
    return found


def check_broker(address: Address, settings: ClientSettings, *, is_expected: bool) -> Finding:
    """Connect to the broker. Without --server, it is fine if none is running."""
    shown = "{}:{}".format(*address)
    patient: ClientSettings = {"connect_timeout_ms": _TIMEOUT_MS, "request_timeout_ms": _TIMEOUT_MS}
    config = pick(ConnectionConfig, {**patient, **settings}, addresses=(address,))
    begun_s = time.perf_counter()
    try:
        version = asyncio.run(_version(address, config))
    except BrokerUnavailable as error:
        if is_expected:
            return Finding("broker", Status.FAIL, error.message, error.hint)
        return Finding("broker", Status.OK, f"not running at {shown}; the port is free")
    except (BrokenFrame, ConnectionLost, RequestTimedOut):
        advice = "Stop that program, or start the broker on another port: --port N."
        return Finding("broker", Status.FAIL, f"the program listening at {shown} is not a FlyMQ broker", advice)
    except FlyMQError as error:
        return Finding("broker", Status.FAIL, error.message, error.hint)
    text = f"FlyMQ {version} at {shown}, answered in {(time.perf_counter() - begun_s) * 1000:.0f} ms"
    if version != __version__:
        return Finding(
            "broker", Status.WARN, text, f"This client is {__version__}: use the same version as the broker."
        )
    return Finding("broker", Status.OK, text)


def check_limits(address: Address, settings: ClientSettings) -> list[Finding]:
    """Get the current bottlenecks of the broker, if it can tell."""
    patient: ClientSettings = {"request_timeout_ms": _TIMEOUT_MS}
    limits = ask_limits(pick(ConnectionConfig, {**patient, **settings}, addresses=(address,)))
    if limits is None:
        return []
    if not limits:
        return [Finding("load", Status.OK, "no bottleneck")]
    return [Finding(limit.what.replace("_", " "), Status.WARN, limit.text, limit.advice) for limit in limits]


async def _version(address: Address, config: ConnectionConfig) -> str:
    connection = await connect(address, config, Counters(), SystemNetwork())
    connection.close()
    await asyncio.sleep(0)  # let the loop call connection_lost
    return connection.server_version
