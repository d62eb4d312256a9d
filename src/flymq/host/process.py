"""Resource usage of this process: CPU, memory, open files. For monitoring only."""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

_PAGE_BYTES = resource.getpagesize()


def cpu_s() -> float:
    """CPU time of all threads so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def thread_cpu_s() -> float:
    """CPU time of the calling thread so far."""
    return time.thread_time()


def resident_bytes() -> int:
    """Return the resident memory; its peak if the system does not provide the current value."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def open_files() -> int | None:
    """Count the open descriptors of this process, if the system provides them."""
    try:
        # A third of the cost of `iterdir`, and there may be thousands.
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    except OSError:
        return None


def open_files_max() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_open_files_limit() -> None:
    """Raise the limit of open files to the hard limit: every segment and connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
