"""Small folders that are generated once for each user and shared by all processes of that user.

A folder is named after its content, so it never changes: whoever needs it first makes it aside and renames it, and
a second process that does the same at the same moment finds the name taken by the very same files.
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
    """Return where this user's caches of FlyMQ are, as the XDG rules say."""
    given = environ.get("XDG_CACHE_HOME", "")
    base = Path(given) if Path(given).is_absolute() else Path(environ.get("HOME") or Path.home()) / ".cache"
    return base / "flymq"


def keep_folder(name: str, files: Mapping[str, str], *, root: Path | None = None) -> Path:
    """Return the folder with these text files, by their paths within it; make it if need be. Those in bin/ can run."""
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
    """Give the folder its name; one that is there and whole was put there by somebody just now."""
    try:
        aside.rename(folder)
    except OSError:
        if _holds(folder, files):
            return
        for path in files:  # somebody removed or changed a file of it: mend it, one file in one step
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
