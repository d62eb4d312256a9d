"""`spark.read.format("flymq")`: the current records of topics, or those between two offsets or times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from flymq.model.errors import InvalidOption
from flymq.spark.broker_connection import connect
from flymq.spark.error_messages import hints_in_errors
from flymq.spark.options import ReadOptions
from flymq.spark.source.filters import Bounds
from flymq.spark.source.offsets import Offsets, Wanted
from flymq.spark.source.planning import cut, ranges_between
from flymq.spark.source.positions import Positions, wanted_end, wanted_start
from flymq.spark.source.reading import read_range
from flymq.wire.native.messages.records import AT_EARLIEST, AT_LATEST


class BatchReader(DataSourceReader):
    """Plans the ranges of a batch and reads them."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._bounds = Bounds()
        self._start = wanted_start(options, default="earliest")
        self._end = wanted_end(options)
        _refuse(self._start, AT_LATEST, "Start a batch at earliest or at an offset: from latest it would be empty.")
        _refuse(self._end, AT_EARLIEST, "End a batch at latest or at an offset: up to earliest it would be empty.")

    def partitions(self) -> list[InputPartition]:
        with hints_in_errors():
            ranges = ranges_between(*self._between())
        options = self._options
        pieces = cut(ranges, partitions_min=options.min_partitions, records_max=options.max_records_per_partition)
        return [InputPartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, self._schema, partition.value)

    def _between(self) -> tuple[Offsets, Offsets]:
        positions = Positions(connect(self._options.connection()), self._options)
        partitions = positions.partitions()
        start, end = positions.start(self._start, partitions), positions.end(self._end, partitions)
        return positions.narrowed(start, end, self._bounds)


class FilteringBatchReader(BatchReader):
    """Filter pushdown. Requires `spark.sql.python.filterPushdown.enabled`.

    Only with the option `filterPushdown`: Spark caches the plan with the DataFrame, and another query on the same
    DataFrame, without filters, would get only the rows of this one.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Narrow the offset ranges. Spark applies all filters again: the ranges may contain other records."""
        for filter_ in filters:
            self._bounds.narrow(filter_)
        return filters


def _refuse(wanted: Wanted, position: int, hint: str) -> None:
    if not wanted.is_time and position in (wanted.everywhere, *wanted.each.values()):
        raise InvalidOption(f"{wanted.option} has a value that is not valid for a batch", hint=hint)
