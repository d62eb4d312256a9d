"""The machine and the versions of a run: figures mean nothing without them."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("confluent-kafka", "aiokafka", "nats-py", "pika", "redis")


def describe() -> dict[str, str]:
    """Return the properties of the machine, by name."""
    return {
        "processor": f"{_from_proc('cpuinfo', 'model name')}, {os.cpu_count()} CPUs",
        "memory": f"{int(_from_proc('meminfo', 'MemTotal').split()[0]) / (1 << 20):.0f} GB",
        "system": f"{platform.system()} {platform.release()}",
        "load": f"{os.getloadavg()[0]:.1f} at the start",
        "Python": platform.python_version(),
        **dict(_versions(_PACKAGES)),
    }


def in_a_line(machine: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in machine.items())


def _from_proc(file: str, field: str) -> str:
    for line in Path("/proc", file).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == field:
            return value.strip()
    return "unknown"


def _versions(packages: Iterable[str]) -> Iterable[tuple[str, str]]:
    for package in packages:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            continue
