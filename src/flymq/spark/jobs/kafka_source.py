"""A topic of a Kafka-compatible cluster as a stream, for the mirror job.

Requires confluent-kafka, which is not installed with FlyMQ. Tasks read offset ranges with their own consumers; they
join no group and commit nothing. All other options are passed to that client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from flymq.model.errors import BrokerUnavailable, InvalidPipeline, TopicNotFound
from flymq.model.names import TopicPartition
from flymq.spark.error_messages import hints_in_errors
from flymq.spark.source.columns import full_schema
from flymq.spark.source.offsets import Offsets, from_spark, lost, to_spark
from flymq.spark.source.planning import OffsetRange, limited, ranges_between
from flymq.spark.source.stream_reader import SparkOffset

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

OWN_OPTIONS = ("topic", "start", "batch_records")
_ROWS_PER_BATCH = 10_000
_ANSWER_WITHIN_S = 30.0
_IDLE_WAIT_S = 0.5
_POLL_S = 0.2


class KafkaStream(DataSource):
    """The data source. `topic`, `start` (earliest or latest) and `batch_records` are its own options."""

    @classmethod
    def name(cls) -> str:
        return "flymq-kafka"

    def schema(self) -> StructType:
        return full_schema(include_headers=True)

    def streamReader(self, schema: StructType) -> KafkaStreamReader:  # noqa: N802
        return KafkaStreamReader(dict(self.options), schema)


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans offset ranges and reads them."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._target: Offsets | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        with hints_in_errors():
            bounds = _bounds(self._options)
        is_latest = self._options["start"] == "latest"
        return to_spark({name: high if is_latest else low for name, (low, high) in bounds.items()})

    def latestOffset(self, start: SparkOffset, limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begin = from_spark(start)
        with hints_in_errors():
            bounds = _bounds(self._options, idle_wait_s=0.0 if self._target else _IDLE_WAIT_S, start=begin)
        for name, (low, high) in bounds.items():
            if name in begin and not low <= begin[name] <= high:
                raise lost(f"{name} was read up to {begin[name]}, but now has {low} to {high}")
        latest = {name: high for name, (_, high) in bounds.items()}
        if self._target is not None:
            latest = {name: min(high, self._target[name]) for name, high in latest.items() if name in self._target}
        begin = {name: begin.get(name, bounds[name][0]) for name in latest}
        return to_spark(limited(begin, latest, limit.max_rows) if isinstance(limit, ReadMaxRows) else latest)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        batch_records = self._options.get("batch_records")
        return ReadMaxRows(int(batch_records)) if batch_records else ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        with hints_in_errors():
            return to_spark({name: high for name, (_, high) in _bounds(self._options).items()})

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with hints_in_errors():
            self._target = {name: high for name, (_, high) in _bounds(self._options).items()}

    def partitions(self, start: SparkOffset, end: SparkOffset) -> list[InputPartition]:
        finish = from_spark(end)
        begin = {**dict.fromkeys(finish, 0), **from_spark(start)}
        return [InputPartition(range_) for range_ in ranges_between(begin, finish)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return
        schema = to_arrow_schema(self._schema, timezone="UTC")
        with hints_in_errors():
            for messages in _messages(self._options, partition.value):
                yield _columns(messages, schema)


def partition_count(options: Mapping[str, str]) -> int:
    """Return the number of partitions of the topic."""
    return len(_bounds(options))


def _consumer(options: Mapping[str, str]) -> Consumer:
    try:
        from confluent_kafka import Consumer
    except ImportError:
        raise InvalidPipeline(
            "reading from a Kafka cluster requires confluent-kafka", hint="pip install confluent-kafka"
        ) from None
    own = {name: value for name, value in options.items() if name not in OWN_OPTIONS}
    fixed = {
        "group.id": "flymq-mirror",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
    }
    return Consumer({**own, **fixed})


def _bounds(
    options: Mapping[str, str], *, idle_wait_s: float = 0.0, start: Mapping[TopicPartition, int] | None = None
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the start and end offset of each partition.

    If everything has been read, wait a short time for more: Spark would otherwise poll 70 times a second.
    """
    import confluent_kafka as kafka

    consumer = _consumer(options)
    topic = options["topic"]
    try:
        found = consumer.list_topics(topic, _ANSWER_WITHIN_S).topics[topic]
        if found.error is not None:
            raise TopicNotFound(
                f"the source cluster has no topic {topic!r}", hint="Check the name and the permissions."
            )
        places = [kafka.TopicPartition(topic, number) for number in sorted(found.partitions)]
        ends = [consumer.get_watermark_offsets(place, _ANSWER_WITHIN_S) for place in places]
        bounds = {TopicPartition(topic, place.partition): end for place, end in zip(places, ends, strict=True)}
        if start is not None and idle_wait_s and all(start.get(name) == high for name, (_, high) in bounds.items()):
            consumer.assign([kafka.TopicPartition(*name, start[name]) for name in bounds])
            consumer.poll(idle_wait_s)
        return bounds
    except kafka.KafkaException as error:
        raise BrokerUnavailable(f"{options['bootstrap.servers']}: {error.args[0].str()}") from error
    finally:
        consumer.close()


def _messages(options: Mapping[str, str], range_: OffsetRange) -> Iterator[list[Message]]:
    """Yield the messages of a range. The last offsets may have no message: markers, or compacted records."""
    import confluent_kafka as kafka

    consumer = _consumer(options)
    consumer.assign([kafka.TopicPartition(range_.topic, range_.partition, range_.start)])
    next_offset, idle_s = range_.start, 0.0
    try:
        while next_offset < range_.end:
            before = next_offset
            taken: list[Message] = []
            for message in consumer.consume(min(_ROWS_PER_BATCH, range_.end - next_offset), _POLL_S):
                error, offset = message.error(), message.offset()
                assert offset is not None
                if error is None:
                    next_offset = offset + 1
                    if offset < range_.end:
                        taken.append(message)
                elif error.code() == kafka.KafkaError._PARTITION_EOF:
                    next_offset = max(next_offset, offset)
                else:
                    raise BrokerUnavailable(f"{range_.name} of the source cluster cannot be read: {error.str()}")
            if taken:
                yield taken
            idle_s = 0.0 if next_offset > before else idle_s + _POLL_S
            if idle_s > _ANSWER_WITHIN_S:
                raise BrokerUnavailable(f"{range_.name} of the source cluster ends at {next_offset}, not {range_.end}")
    finally:
        consumer.close()


_MAKERS: dict[str, Callable[[Any], Any]] = {
    "key": lambda message: message.key(),
    "value": lambda message: message.value(),
    "topic": lambda message: message.topic(),
    "partition": lambda message: message.partition(),
    "offset": lambda message: message.offset(),
    "timestamp": lambda message: message.timestamp()[1] * 1000,
    "timestampType": lambda message: message.timestamp()[0] - 1,  # the client returns 0 for "none"
    "headers": lambda message: [{"key": key, "value": value} for key, value in message.headers() or ()],
}


def _columns(messages: list[Message], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array(map(_MAKERS[field.name], messages), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
