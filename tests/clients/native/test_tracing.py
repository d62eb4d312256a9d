"""Traces: a record carries the context of its send to whoever works on it."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from flymq import AsyncFlyMQClient, FlyMQClient, generate_key
from flymq.errors import InvalidSetting, MessageTooLarge
from flymq.testing import TestBroker


class Traces:
    """A provider whose spans can be looked at."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("the program")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def traces() -> Traces:
    return Traces()


@pytest.fixture
def traced(broker: TestBroker, traces: Traces) -> Iterator[FlyMQClient]:
    with FlyMQClient(broker.address, client_id="shop", tracing=traces.provider) as client:
        yield client


def id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def test_a_send_is_a_span_that_ends_with_the_brokers_answer(traced, traces, topic):
    with traces.tracer.start_as_current_span("checkout") as checkout:
        place = traced.produce(topic, b"tea", key="user-7")
    (span,) = traces.named(f"send {topic}")
    assert span.kind is SpanKind.PRODUCER
    assert parent_of(span) == checkout.get_span_context().span_id
    assert dict(span.attributes) == {
        "messaging.system": "flymq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": str(place.partition),
        "messaging.flymq.offset": place.offset,
        "messaging.client.id": "shop",
    }


def test_a_record_carries_the_context_of_its_send(traced, traces, topic):
    traced.produce(topic, b"tea", headers=[("kind", b"order"), ("traceparent", b"an older one")], partition=0)
    (span,) = traces.named(f"send {topic}")
    context = span.get_span_context()
    record = traced.consume(topic, 0)
    assert dict(record.headers) == {
        "kind": b"order",
        "traceparent": f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}".encode(),
    }


def test_many_records_are_one_span_whose_context_all_of_them_carry(traced, traces, topic):
    traced.create_topic(topic, partitions=2)
    traced.produce_batch(topic, [(f"key-{n}", b"%d" % n) for n in range(50)])
    (span,) = traces.named(f"send {topic}")
    assert span.attributes["messaging.batch.message_count"] == 50
    records = traced.fetch(topic, 0) + traced.fetch(topic, 1)
    assert len(records) == 50
    assert all(f"{id_of(span):016x}".encode() in dict(record.headers)["traceparent"] for record in records)


def test_a_send_that_fails_says_why(traced, traces, topic):
    traced.create_topic(topic, partitions=1, settings={"max.message.bytes": 1000})
    with pytest.raises(MessageTooLarge):
        traced.produce(topic, b"x" * 2000)
    with pytest.raises(MessageTooLarge):
        traced.produce_batch(topic, [b"x" * 2000])
    for span in traces.named(f"send {topic}"):
        assert span.status.status_code is StatusCode.ERROR
        assert span.attributes["error.type"] == "MESSAGE_TOO_LARGE"
    assert len(traces.named(f"send {topic}")) == 2


def test_the_work_on_a_record_continues_the_trace_it_was_sent_in(traced, traces, topic):
    traced.produce(topic, b"tea", partition=0)
    (sent,) = traces.named(f"send {topic}")
    seen = []
    with traced.consumer(topic, group=f"{topic}-readers") as consumer:

        def handle(record) -> None:
            seen.append(trace.get_current_span().get_span_context().span_id)
            consumer.stop()

        consumer.process(handle)
    (work,) = traces.named(f"process {topic}")
    assert work.kind is SpanKind.CONSUMER
    assert (work.context.trace_id, parent_of(work)) == (sent.context.trace_id, id_of(sent))
    assert [link.context.span_id for link in work.links] == [id_of(sent)]
    assert seen == [id_of(work)], "the handler runs within it, though in a thread"
    assert work.attributes["messaging.consumer.group.name"] == f"{topic}-readers"
    assert work.attributes["messaging.flymq.offset"] == 0


def test_every_try_of_a_handler_is_a_span_and_failures_say_why(traced, traces, topic):
    traced.produce(topic, b"tea")
    tries = []
    with traced.consumer(topic) as consumer:

        def handle(record) -> None:
            tries.append(record)
            if len(tries) == 1:
                raise ConnectionError("the database is away")
            consumer.stop()

        consumer.process(handle, retry_backoff_ms=1)
    first, second = traces.named(f"process {topic}")
    assert (first.status.status_code, first.attributes["error.type"]) == (StatusCode.ERROR, "ConnectionError")
    assert second.status.status_code is StatusCode.UNSET


def test_a_loop_of_ones_own_traces_what_it_says(traced, traces, topic):
    traced.produce_batch(topic, [b"tea", b"milk"], partition=0)
    with traced.consumer(topic) as consumer:
        for record in consumer:
            with consumer.span(record):
                traced.produce(f"{topic}-done", record.value)
            if record.offset == 1:
                break
    (sent,) = traces.named(f"send {topic}")
    works = traces.named(f"process {topic}")
    assert [parent_of(work) for work in works] == [id_of(sent)] * 2
    assert [parent_of(span) for span in traces.named(f"send {topic}-done")] == [id_of(work) for work in works]


def test_a_record_of_a_program_without_traces_begins_one(traced, traces, client, topic):
    client.produce(topic, b"tea", headers=[("traceparent", b"nonsense")], partition=0)
    with traced.consumer(topic) as consumer, consumer.span(consumer.poll(10_000)[0]):
        pass
    (work,) = traces.named(f"process {topic}")
    assert (parent_of(work), list(work.links)) == (None, [])


def test_encrypted_records_carry_their_context_too(broker, traces, topic):
    with FlyMQClient(broker.address, tracing=traces.provider, encryption_key=generate_key()) as client:
        client.produce_batch(topic, [b"a secret"], partition=0)
        record = client.consume(topic, 0)
    (span,) = traces.named(f"send {topic}")
    assert record.value == b"a secret"
    parent = dict(record.headers)["traceparent"]
    assert parent is not None
    assert f"{id_of(span):016x}".encode() in parent


async def test_what_a_transformation_writes_is_part_of_the_trace_of_what_it_read(broker, traces, topic):
    async with AsyncFlyMQClient(broker.address, tracing=traces.provider) as client:
        await client.produce(topic, b"tea")
        async with client.consumer(topic, group=f"{topic}-t", auto_commit=False) as consumer:

            async def double(record):
                consumer.stop()
                return [(f"{topic}-out", record.value * 2)]

            await client.transform(consumer, double, transactional_id=f"{topic}-t")
    (sent,) = traces.named(f"send {topic}")
    (work,) = traces.named(f"process {topic}")
    (written,) = traces.named(f"send {topic}-out")
    assert (parent_of(work), parent_of(written)) == (id_of(sent), id_of(work))


def test_a_client_that_was_not_asked_for_traces_makes_none(client, topic):
    client.produce(topic, b"tea", partition=0)
    assert client.consume(topic, 0).headers == ()
    with client.consumer(topic) as consumer, consumer.span(consumer.poll(10_000)[0]):
        assert not trace.get_current_span().get_span_context().is_valid


def test_without_the_extra_nothing_is_imported_and_asking_for_it_says_what_to_install(broker):
    program = f"""
import sys
sys.modules["opentelemetry"] = None  # as if it were not installed
from flymq import FlyMQClient
from flymq.errors import InvalidSetting
with FlyMQClient({broker.address!r}) as client:
    client.produce("untraced", b"tea")
try:
    FlyMQClient(tracing=True)
except InvalidSetting as error:
    print(error.hint)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "Install it with: pip install 'flymq[tracing]'\n", done.stderr


def test_what_makes_no_spans_is_refused():
    with pytest.raises(InvalidSetting, match="tracer provider"):
        FlyMQClient(tracing="yes")  # type: ignore[arg-type]
