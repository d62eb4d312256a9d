"""All jobs there are."""

from __future__ import annotations

from typing import TypeAlias

from flymq.spark.jobs.archive import ArchiveJob
from flymq.spark.jobs.restore import RestoreJob

AnyJob: TypeAlias = ArchiveJob | RestoreJob
