"""What this process takes of the machine it runs on: processor, memory, open files. For monitoring; nothing is
decided by it."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

_PAGE_BYTES = resource.getpagesize()


def cpu_s() -> float:
    """Processor time of all threads so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def thread_cpu_s() -> float:
    """Processor time of the calling thread so far."""
    return time.thread_time()


def resident_bytes() -> int:
    """Return the memory in use now; where the system does not tell, the most that ever was."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def open_files() -> int | None:
    """Count this process's descriptors, where the system tells."""
    try:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError:
        return None


def open_files_max() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_open_files_limit() -> None:
    """Every segment and connection is an open file: take as many as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
