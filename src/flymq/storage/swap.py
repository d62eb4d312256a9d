"""Replace neighbouring segments by one, in a way that a crash cannot leave half done.

`<first base>-<last base>.swap` holds the batches of all segments from the first to the last one. Once a file of that
name exists, the replacement is decided: it is carried through, now or when the log is opened again.
"""

from __future__ import annotations

from pathlib import Path

from flymq.host.disk import Disk
from flymq.storage.segment import DATA_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_name

SWAP_SUFFIX = ".swap"
SCRATCH_NAME = "compacting"
"""Folder in which the new segments are written before they are decided on."""


def swap_name(base_offsets: list[int]) -> str:
    return f"{base_offsets[0]:020d}-{base_offsets[-1]:020d}{SWAP_SUFFIX}"


def finish_swap(disk: Disk, directory: Path, *, only_first_base: int | None = None) -> None:
    """Carry through every replacement that was decided, or only the one that begins at a segment."""
    names = disk.list(directory)
    bases = [int(name.removesuffix(DATA_SUFFIX)) for name in names if name.endswith(DATA_SUFFIX)]
    for name in names:
        if not name.endswith(SWAP_SUFFIX):
            continue
        first, last = map(int, name.removesuffix(SWAP_SUFFIX).split("-"))
        if only_first_base not in (None, first):
            continue
        replaced = [base for base in bases if first <= base <= last]
        # The indexes of the old data must be gone, on the disk too, before the new data takes its name.
        for base in replaced:
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                disk.remove(directory / segment_name(base, suffix))
        disk.sync_directory(directory)
        for base in replaced:
            if base != first:
                disk.remove(directory / segment_name(base, DATA_SUFFIX))
        disk.rename(directory / name, directory / segment_name(first, DATA_SUFFIX))
        disk.sync_directory(directory)
