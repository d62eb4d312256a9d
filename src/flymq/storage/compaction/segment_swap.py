"""Replace adjacent segments by one, atomically even through a crash.

`<first base>-<last base>.swap` holds the batches of all segments from the first to the last one. Once a file of that
name is on the disk, the replacement is decided: it is completed, now or when the log is opened again.
"""

from __future__ import annotations

from pathlib import Path

from flymq.host.disk import Disk
from flymq.storage.segments.segment import DATA_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, parse_name, segment_name

SWAP_SUFFIX = ".swap"
SCRATCH_NAME = "compacting"
"""Folder in which the new segments are written before they are decided on."""


def decide_swap(disk: Disk, directory: Path, compacted: Path, base_offsets: list[int]) -> None:
    """Decide that the file `compacted`, which is on the disk, replaces these segments."""
    disk.rename(compacted, directory / f"{base_offsets[0]:020d}-{base_offsets[-1]:020d}{SWAP_SUFFIX}")
    disk.sync_directory(directory)


def finish_swaps(disk: Disk, directory: Path) -> None:
    """Complete every replacement that was decided."""
    names = disk.list(directory)
    bases = [base for name in names if (base := parse_name(name, DATA_SUFFIX)) is not None]
    for name in names:
        first_digits, _, last_digits = name.partition("-")
        first, last = parse_name(first_digits, ""), parse_name(last_digits, SWAP_SUFFIX)
        if first is None or last is None:
            continue
        replaced = [base for base in bases if first <= base <= last]
        # The indexes of the old data must be gone, on the disk too, before the new data takes its name; and so must
        # the other segments before the decision is.
        for base in replaced:
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                disk.remove(directory / segment_name(base, suffix))
            if base != first:
                disk.remove(directory / segment_name(base, DATA_SUFFIX))
        disk.sync_directory(directory)
        disk.rename(directory / name, directory / segment_name(first, DATA_SUFFIX))
        disk.sync_directory(directory)
