"""Programs of ours for the JVM: a folder of sources is compiled once, each class with a `main` is a program."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m")  # short-lived programs on a small machine
_LOG_LEVEL = "-Dorg.slf4j.simpleLogger.defaultLogLevel={}"
_RUN_S_MAX = 280  # a machine may be busy; it is there to tell what a program said that hangs


@dataclass(frozen=True, slots=True)
class Java:
    """Compiled programs and what they are built on."""

    classpath: str

    @contextmanager
    def start(self, program: str, *arguments: object, log: Path | None = None) -> Iterator[subprocess.Popen[str]]:
        """Run a program in the background; it is killed at the end if it has not ended by itself.

        With a `log`, its warnings and errors are appended to that file.
        """
        command = self._command(program, arguments, "off" if log is None else "warn")
        with (log or Path(os.devnull)).open("ab") as errors:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, bufsize=1
            )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, program: str, *arguments: object) -> list[str]:
        """Run a program to its end; return the lines it printed."""
        command = self._command(program, arguments, "warn")
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_RUN_S_MAX, check=False)
        except subprocess.TimeoutExpired as error:
            told = [(part or b"").decode(errors="replace")[-3_000:] for part in (error.stdout, error.stderr)]
            raise AssertionError(f"{program} did not end; it said:\n{told[0]}\n{told[1]}") from None
        assert done.returncode == 0, f"{program} failed:\n{done.stdout[-3_000:]}\n{done.stderr[-3_000:]}"
        return done.stdout.splitlines()

    def _command(self, program: str, arguments: Sequence[object], log_level: str) -> list[str]:
        options = [*_OPTIONS, _LOG_LEVEL.format(log_level), "-cp", self.classpath]
        return ["java", *options, program, *map(str, arguments)]


def build(classpath: str, target: Path, *folders: str) -> Java:
    """Compile the sources of folders beside this file into `target`."""
    sources = [str(source) for folder in folders for source in sorted((FOLDER / folder).glob("*.java"))]
    command = ["javac", "-nowarn", "-proc:none", "-parameters", "-d", str(target), "-cp", classpath, *sources]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_RUN_S_MAX, check=False)
    assert done.returncode == 0, done.stderr
    return Java(f"{target}{os.pathsep}{classpath}")
