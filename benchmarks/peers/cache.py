"""Where fetched systems live: one folder outside the repository, which may be deleted at any time."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

VARIABLE = "FLYMQ_BENCH_CACHE"


def cache() -> Path:
    given = os.environ.get(VARIABLE)
    base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = Path(given) if given else base / "flymq-bench"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def command(*words: str | Path, folder: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Run a command to its end and return what it said; its own words tell why it failed."""
    done = subprocess.run(
        words, cwd=folder, env={**os.environ, **(environment or {})}, text=True, capture_output=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"`{' '.join(map(str, words))}` failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def first_existing(paths: Sequence[Path]) -> Path | None:
    return next((path for path in paths if path.exists()), None)
