"""Batches that cannot be decoded: a query fails and names them, or continues without them (`failOnDataLoss=false`)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from flymq.model.errors import InvalidBatch, UnreadableBatch
from flymq.model.names import TopicPartition
from flymq.record.reading import cut_out, find_broken
from flymq.spark.source.fetching import Run

logger = logging.getLogger(__name__)

T = TypeVar("T")


def parse_run(run: Run, name: TopicPartition, parse: Callable[[Run], T], *, fail_on_data_loss: bool) -> T:
    """Return what `parse` makes of a run, or of what is left of it without the batches that it cannot decode."""
    while True:
        try:
            return parse(run)
        except InvalidBatch:
            broken = find_broken(run.batches, run.start_offset, run.aborted)
            if broken is None:
                raise
        message = f"{name} at offset {broken.offset}: the batch cannot be decoded: {broken.error.message}"
        if fail_on_data_loss:
            raise UnreadableBatch(message, hint="To go on without it, set failOnDataLoss to false.") from broken.error
        logger.warning("%s; continuing at offset %d", message, broken.next_offset)
        run = run._replace(batches=cut_out(run.batches, broken))
