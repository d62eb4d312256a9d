"""Small generated directories, cached per user and shared by all processes of that user.

A directory is named after its content, so it never changes: the first process that needs it creates it under a
temporary name and renames it. A second process that does so at the same time finds a directory with the same files.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path


def cache_root(environ: Mapping[str, str] = os.environ) -> Path:
    """Return FlyMQ's cache directory of this user, as the XDG specification says."""
    given = environ.get("XDG_CACHE_HOME", "")
    base = Path(given) if Path(given).is_absolute() else Path(environ.get("HOME") or Path.home()) / ".cache"
    return base / "flymq"


def keep_folder(name: str, files: Mapping[str, str], *, root: Path | None = None) -> Path:
    """Return the directory with these text files, by relative path; create it if needed. bin/ is executable."""
    root = root or cache_root()
    digest = hashlib.sha256("\0".join(f"{path}\0{text}" for path, text in files.items()).encode()).hexdigest()
    folder = root / f"{name}-{digest[:16]}"
    if _holds(folder, files):
        return folder
    root.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=root))
    try:
        for path, text in files.items():
            (aside / path).parent.mkdir(parents=True, exist_ok=True)
            (aside / path).write_text(text, encoding="utf-8")
            (aside / path).chmod(_mode(path))
        aside.chmod(0o755)
        _put(aside, folder, files)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder


def _put(aside: Path, folder: Path, files: Mapping[str, str]) -> None:
    """Rename the directory to its final name; a complete one with that name was just created by another process."""
    try:
        aside.rename(folder)
    except OSError:
        if _holds(folder, files):
            return
        for path in files:  # a file was removed or modified: replace it atomically
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (aside / path).replace(folder / path)


def _holds(folder: Path, files: Mapping[str, str]) -> bool:
    try:
        return all(
            (folder / path).read_text(encoding="utf-8") == text
            and stat.S_IMODE((folder / path).stat().st_mode) == _mode(path)
            for path, text in files.items()
        )
    except OSError:
        return False


def _mode(path: str) -> int:
    return 0o755 if path.startswith("bin/") else 0o644
