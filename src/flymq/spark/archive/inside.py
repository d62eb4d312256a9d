"""Files of an archive lie inside its directory, whatever a manifest or a symbolic link says."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from flymq.model.errors import ArchivePathOutside


def path_inside(root: Path, relative: str) -> Path:
    """Return the path of a file of the archive, or raise `ArchivePathOutside`. Nothing is opened."""
    named = PurePosixPath(relative)
    if named.is_absolute() or ".." in named.parts or "\\" in relative or "\0" in relative:
        raise ArchivePathOutside(f"{root} names the file {relative!r}")
    path = root / named
    if not (real := path.resolve()).is_relative_to(root.resolve()):
        raise ArchivePathOutside(f"{path} leads out of the archive, to {real}")
    return path
