"""A machine without Java, as far as a program can tell."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def java_free_environment(tmp_path):
    """The environment of a user who has everything on the PATH but Java, and an empty home."""
    folders = [Path(folder) for folder in os.environ["PATH"].split(os.pathsep)]
    found = {program.name: program for folder in reversed(folders) for program in folder.glob("*") if program.is_file()}
    for folder in ("bin", "home"):
        (tmp_path / folder).mkdir()
    for name, program in found.items():
        if not name.startswith("java"):
            (tmp_path / "bin" / name).symlink_to(program)
    kept = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "XDG_CACHE_HOME")}
    return {**kept, "PATH": str(tmp_path / "bin"), "HOME": str(tmp_path / "home")}
