"""An archive of 100 records of one partition in two batches."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.spark.archive.archives import published, written

from flymq.spark.archive.archive import Archive


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive.create(tmp_path / "archive")
    published(made, 0, [written(made.root, 0, 60)])
    published(made, 1, [written(made.root, 60, 100)])
    return made
