"""All kinds of jobs."""

from __future__ import annotations

from typing import TypeAlias

from flymq.spark.jobs.aggregate import AggregateJob
from flymq.spark.jobs.archive import ArchiveJob
from flymq.spark.jobs.compact import CompactJob
from flymq.spark.jobs.mirror import MirrorJob
from flymq.spark.jobs.replay import ReplayJob
from flymq.spark.jobs.restore import RestoreJob
from flymq.spark.jobs.transform import TransformJob

AnyJob: TypeAlias = ArchiveJob | RestoreJob | AggregateJob | TransformJob | CompactJob | ReplayJob | MirrorJob
