"""A disk that fails when it is told to: writes or syncs of files under one directory end with an I/O error.

A small library is loaded into the process before all others (LD_PRELOAD), and stands in for the calls of the C library.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static int fails(int fd, const char *switch_name) {
    const char *under = getenv("FAILING_DISK"), *when = getenv(switch_name);
    if (!under || !when || access(when, F_OK) != 0) return 0;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    if (strncmp(path, under, strlen(under)) != 0) return 0;
    errno = EIO;
    return 1;
}

#define STAND_IN(result, name, when, parameters, arguments)                    \
    result name parameters {                                                   \
        static result(*real) parameters;                                       \
        if (!real) real = (result(*) parameters)dlsym(RTLD_NEXT, #name);       \
        return fails(fd, when) ? -1 : real arguments;                          \
    }

STAND_IN(ssize_t, write, "FAILING_WRITES", (int fd, const void *data, size_t size), (fd, data, size))
STAND_IN(ssize_t, writev, "FAILING_WRITES", (int fd, const struct iovec *data, int count), (fd, data, count))
STAND_IN(ssize_t, pwrite, "FAILING_WRITES", (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
STAND_IN(ssize_t, pwrite64, "FAILING_WRITES", (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
STAND_IN(int, fsync, "FAILING_SYNCS", (int fd), (fd))
STAND_IN(int, fdatasync, "FAILING_SYNCS", (int fd), (fd))
"""


def why_not() -> str | None:
    """Return why no disk can be made to fail here; None if it can."""
    return None if shutil.which("gcc") else "there is no gcc to build the library that fails"


@dataclass
class FailingDisk:
    """The directory whose files fail, and the switches for it."""

    directory: Path
    folder: Path
    """Of the library and the switches."""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        source = self.folder / "failing_disk.c"
        source.write_text(_SOURCE)
        command = ["gcc", "-shared", "-fPIC", "-O2", "-o", str(self._library), str(source), "-ldl"]
        subprocess.run(command, check=True, capture_output=True)

    @property
    def _library(self) -> Path:
        return self.folder / "failing_disk.so"

    @property
    def environ(self) -> Mapping[str, str]:
        """For the process whose disk it is."""
        return {
            "LD_PRELOAD": str(self._library),
            "FAILING_DISK": str(self.directory.resolve()),
            "FAILING_WRITES": str(self.folder / "writes"),
            "FAILING_SYNCS": str(self.folder / "syncs"),
        }

    def fail(self, what: str) -> None:
        """Let `writes` or `syncs` fail from now on."""
        (self.folder / what).touch()

    def mend(self) -> None:
        for what in ("writes", "syncs"):
            (self.folder / what).unlink(missing_ok=True)
