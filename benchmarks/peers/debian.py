"""Debian's packages without installing them: fetched with what they need and unpacked into the cache directory.

Nothing is started, configured or left on the system, and no rights are needed.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.cache import cache, command


def unpacked() -> Path:
    """Return the folder that stands for `/` of the unpacked packages."""
    return cache() / "debian"


def unpack(*packages: str) -> None:
    """Fetch packages and all they depend on that this system lacks, and unpack them."""
    plan = command("apt-get", "--simulate", "--no-install-recommends", "install", *packages)
    names = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
    folder = cache() / "debs"
    folder.mkdir(exist_ok=True)
    if names:
        command("apt-get", "download", *names, folder=folder)
    for archive in folder.glob("*.deb"):
        command("dpkg", "--extract", archive, unpacked())


def environment() -> dict[str, str]:
    """Return what lets a program of these packages find its libraries."""
    return {"LD_LIBRARY_PATH": ":".join(map(str, sorted((unpacked() / "usr/lib").glob("*-linux-gnu"))))}


def package_address(package: str) -> str:
    """Return where this system's package archive keeps the package."""
    return command("apt-get", "download", "--print-uris", package).split("'")[1]
