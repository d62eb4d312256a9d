"""OpenTelemetry tracing: a span for every send, and one for processing each record.

    span `send` → record header `traceparent` → span `process`, in whichever program consumes the record

Spans follow OpenTelemetry's semantic conventions for messaging. This module needs the extra `flymq[tracing]` and is
imported only by clients with tracing on: the others pay nothing for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.propagate import get_global_textmap
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider

from flymq import __version__
from flymq.client.accumulator import Accumulator, BufferFull, TopicQueues
from flymq.client.appender import Headers, RecordAppender, SplitRecords
from flymq.client.deliveries import Batch, Delivery
from flymq.client.encryption import Cipher
from flymq.client.records import ConsumerRecord
from flymq.client.settings import ProducerConfig
from flymq.model.errors import FlyMQError
from flymq.record.record import Header

SYSTEM = "flymq"


class Tracing:
    """The spans of one client."""

    def __init__(self, client_id: str, provider: TracerProvider | None = None) -> None:
        """Without a provider, use the global one."""
        self._client_id = client_id
        self._tracer = trace.get_tracer(SYSTEM, __version__, provider)

    def appender(self, accumulator: Accumulator, config: ProducerConfig, cipher: Cipher | None) -> RecordAppender:
        return TracedAppender(self, accumulator, config, cipher)

    def start_send(self, topic: str) -> Span:
        """Start the span of a send; it ends when the batch is settled."""
        return self._tracer.start_span(
            f"send {topic}", kind=SpanKind.PRODUCER, attributes=self._attributes("send", topic)
        )

    @contextmanager
    def process(self, record: ConsumerRecord, group: str) -> Iterator[None]:
        """Trace the block as processing of `record`, a child of the span that sent it."""
        sent_in = _context_of(record.headers)
        sender = trace.get_current_span(sent_in).get_span_context()
        attributes = self._attributes("process", record.topic)
        attributes |= _place(record.partition, record.offset)
        if group:
            attributes["messaging.consumer.group.name"] = group
        span = self._tracer.start_span(
            f"process {record.topic}",
            sent_in,
            SpanKind.CONSUMER,
            attributes,
            links=[Link(sender)] if sender.is_valid else None,
        )
        token = attach(trace.set_span_in_context(span, sent_in))
        try:
            yield
        except Exception as error:
            _fail(span, error)
            raise
        finally:
            detach(token)
            span.end()

    def _attributes(self, operation: str, topic: str) -> dict[str, str | int]:
        return {
            "messaging.system": SYSTEM,
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
            "messaging.destination.name": topic,
            "messaging.client.id": self._client_id,
        }


class TracedAppender(RecordAppender):
    """Adds records to the accumulator, each with a span that lasts until the broker has acknowledged it."""

    def __init__(
        self, tracing: Tracing, accumulator: Accumulator, config: ProducerConfig, cipher: Cipher | None
    ) -> None:
        super().__init__(accumulator, config, cipher)
        self._tracing = tracing

    def append(
        self,
        topic: TopicQueues,
        value: Any,
        key: Any = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        span = self._tracing.start_send(topic.name)
        try:
            delivery = super().append(topic, value, key, partition, _with_context(headers, span), timestamp_ms)
        except BufferFull:
            raise  # the caller will retry; a span that is never ended is never exported
        except Exception as error:
            _fail(span, error)
            span.end()
            raise
        delivery.batch.when_settled(partial(_end_send, span, delivery))
        return delivery

    def split(self, topic: TopicQueues, messages: Iterable[Any], partition: int | None) -> SplitRecords:
        """As without tracing, with one span for all the records, each of which carries its context."""
        span = self._tracing.start_send(topic.name)
        context = _headers_of(span)
        try:
            given = self._records(messages)
            records = [(key, value, (*(more[0] if more else ()), *context)) for key, value, *more in given]
            span.set_attribute("messaging.batch.message_count", len(records))
            return self._split(topic, records, partition)._replace(settled=partial(_end_batch, span))
        except Exception as error:
            _fail(span, error)
            span.end()
            raise


# --- context in headers ---------------------------------------------------------------------------------------------


def _headers_of(span: Span) -> list[tuple[str, bytes]]:
    carrier: dict[str, str] = {}
    get_global_textmap().inject(carrier, trace.set_span_in_context(span))
    return [(name, value.encode()) for name, value in carrier.items()]


def _with_context(headers: Headers | None, span: Span) -> Headers:
    """Add the span's context, in place of the one that a forwarded record brings along."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
    fields = get_global_textmap().fields
    return [*(pair for pair in pairs if pair[0] not in fields), *_headers_of(span)]


def _context_of(headers: Sequence[Header]) -> Context:
    """Return the trace context in the headers of a record; an empty one if there is none."""
    propagator = get_global_textmap()
    carrier = {
        name: value.decode(errors="replace")
        for name, value in headers
        if name in propagator.fields and value is not None
    }
    return propagator.extract(carrier, Context())


# --- how spans end --------------------------------------------------------------------------------------------------


def _end_send(span: Span, delivery: Delivery) -> None:
    batch = delivery.batch
    if batch.error is not None:
        _fail(span, batch.error)
    else:
        offset = batch.base_offset + delivery.index if batch.base_offset >= 0 else None
        span.set_attributes(_place(batch.partition, offset))
    span.end()


def _end_batch(span: Span, batches: Sequence[Batch]) -> None:
    for error in [batch.error for batch in batches if batch.error is not None][:1]:
        _fail(span, error)
    span.end()


def _place(partition: int, offset: int | None) -> dict[str, str | int]:
    """Return partition and offset as attributes; the offset is unknown with acks=none."""
    place: dict[str, str | int] = {"messaging.destination.partition.id": str(partition)}
    if offset is not None:
        place["messaging.flymq.offset"] = offset
    return place


def _fail(span: Span, error: Exception) -> None:
    span.record_exception(error)
    span.set_attribute("error.type", error.code if isinstance(error, FlyMQError) else type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR, str(error)))
