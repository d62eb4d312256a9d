"""A file system in a file, whose power can be cut: what was not synced is gone, and the journal is as it was.

The cut is ext4's own: the ioctl that shuts a mounted file system down at once, without flushing data or journal, with
which the file system's authors test crashes. Mounting again replays the journal, as after a power failure. It needs
root and loop devices.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32): EXT4_IOC_SHUTDOWN
WITHOUT_FLUSHING_THE_JOURNAL = 2
SIZE_BYTES = 256 << 20
MOUNT_OPTIONS = ("data=ordered", "data=writeback", "nodelalloc")


class LoopDisk:
    """A mounted file system in `image`."""

    def __init__(self, folder: Path, options: str = MOUNT_OPTIONS[0]) -> None:
        self._image = folder / "disk.img"
        self._options = options
        self.path = folder / "disk"
        self.path.mkdir()
        with self._image.open("wb") as image:
            image.truncate(SIZE_BYTES)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self.mount()

    def mount(self) -> None:
        """Mount it; the journal is replayed after a cut."""
        _run("mount", "-t", "ext4", "-o", f"loop,{self._options}", str(self._image), str(self.path))

    def unmount(self) -> None:
        _run("umount", str(self.path))

    def cut_power(self) -> None:
        """Lose everything that is not on the disk. Whoever writes gets errors from now on."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", WITHOUT_FLUSHING_THE_JOURNAL))
        finally:
            os.close(descriptor)

    def restore_power(self) -> None:
        """Mount it again. Nobody may use it any more."""
        self.unmount()
        self.mount()


@contextmanager
def loop_disk(folder: Path, options: str = MOUNT_OPTIONS[0]) -> Iterator[LoopDisk]:
    """Make a disk, and take it away. Its image stays in the folder."""
    disk = LoopDisk(folder, options)
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk.path)], check=False, capture_output=True)


def why_not(folder: Path) -> str | None:
    """Return why this machine has no such disks, or None if it has."""
    if os.geteuid() != 0:
        return "mounting a file system needs root"
    for program in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    probe = folder / "probe"
    probe.mkdir(parents=True)
    try:
        with loop_disk(probe) as disk:
            disk.cut_power()
    except (OSError, DiskUnavailable) as error:
        return str(error)
    finally:
        shutil.rmtree(probe, ignore_errors=True)
    return None


class DiskUnavailable(Exception):
    """A command that makes or mounts the disk failed."""


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise DiskUnavailable(f"{command[0]}: {done.stderr.strip()}")
