"""The Kafka protocol: CPU time per request beside the native protocol, and librdkafka clients."""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median

from benchmarks import kafka_requests
from benchmarks.processes import Measured, broker
from benchmarks.raw_client import RawClient, produce_request
from benchmarks.row import Row, row, show
from flymq.record.batch import encode_batch
from flymq.wire.native.messages.topics import CreateTopic

TOPIC = "bench"
_MB = 1 << 20
_VALUE = b"x" * 100


def run(quick: bool = False) -> list[Row]:
    scale = 0.2 if quick else 1.0
    return [*_produce(scale), *_fetch(int(60 * scale)), *_librdkafka(scale), *_many_producers(scale)]


# --- prepared requests on a plain socket ----------------------------------------------------------------------------


class RawKafkaClient(RawClient):
    """Receives Kafka responses without decoding them."""

    def receive_frames(self, count: int) -> None:
        rest = b""
        while count:
            rest += self.socket.recv(1 << 18)
            position = 0
            while count and len(rest) - position >= 4:
                end = position + 4 + kafka_requests.LENGTH.unpack_from(rest, position)[0]
                if end > len(rest):
                    break
                position = end
                count -= 1
            rest = rest[position:]
        assert not rest, "more came than was asked for"


def _kafka_produce(records: int) -> bytes:
    batch = bytes(encode_batch([(None, _VALUE)] * records, timestamp_ms=int(time.time() * 1000)))
    return kafka_requests.produce(TOPIC, 0, batch)


def _kafka_fetch(bytes_max: int) -> bytes:
    return kafka_requests.fetch(TOPIC, 0, 0, bytes_max)


def _open_topic(measured: Measured, partitions: int = 1) -> RawClient:
    client = RawClient(measured.port)
    client.ask(CreateTopic(topic=TOPIC, partitions=partitions, settings={"retention.bytes": 256 * _MB}))
    return client


def _cpu_per_request(measured: Measured, client: RawClient, request: bytes, count: int, inflight: int) -> float:
    before = measured.cpu_s
    client.flood(request, count, inflight=inflight)
    return (measured.cpu_s - before) / count * 1e6


def _produce(scale: float) -> list[Row]:
    rows = []
    with broker() as ours:
        native, kafka = _open_topic(ours), RawKafkaClient(ours.port)
        for records, count, inflight in ((1, 40_000, 64), (150, 16_000, 8), (9000, 400, 2)):
            ours_request = _kafka_produce(records)
            native_request = produce_request(TOPIC, [(None, _VALUE)] * records)
            count = int(count * scale)
            pairs = [
                (
                    _cpu_per_request(ours, kafka, ours_request, count, inflight),
                    _cpu_per_request(ours, native, native_request, count, inflight),
                )
                for _ in range(3)
            ]
            cost, beside = median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)
            size = f"{records} x 100 B"
            rows.append(row(f"Produce, {size}", cost, "CPU us", peer="native protocol", peer_value=beside))
            if records == 1:
                rows.append(row(f"Produce, {size}", 1e6 / cost, "requests/s a core", target=">= 30 k"))
            else:
                rows.append(row(f"Produce, {size}", records / cost * 1e6, "msgs/s a core"))
    return rows


def _fetch(count: int) -> list[Row]:
    with broker() as ours:
        _open_topic(ours).flood(produce_request(TOPIC, [(None, _VALUE)] * 9000), 64, inflight=2)
        client, request = RawKafkaClient(ours.port), _kafka_fetch(8 * _MB)
        before = ours.cpu_s
        received = 0
        for _ in range(count):
            client.socket.sendall(request)
            length = kafka_requests.LENGTH.unpack(client.receive_exactly(4))[0]
            client.receive_exactly(length)
            received += length
        used = ours.cpu_s - before
    return [row("Fetch of 8 MB, page cache", received / used / 1e9, "GB/s a core", target=">= 1.5")]


# --- librdkafka -----------------------------------------------------------------------------------------------------

_PRODUCER = """
import sys, confluent_kafka
address, topic, count, acks = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
producer = confluent_kafka.Producer({"bootstrap.servers": address, "acks": acks})
value = b"x" * 100
for _ in range(count):
    while True:
        try:
            producer.produce(topic, value)
            break
        except BufferError:
            producer.poll(0.01)
assert producer.flush(120) == 0
"""

_ONE_OF_MANY = """
import sys, confluent_kafka
address, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
producer = confluent_kafka.Producer(
    {"bootstrap.servers": address, "acks": "1", "queue.buffering.max.messages": count + 1000}
)
producer.list_topics(topic, 30)
messages = [{"value": b"x" * 100} for _ in range(1000)]
print("ready", flush=True)
sys.stdin.readline()
for _ in range(count // 1000):
    assert producer.produce_batch(topic, messages) == 1000
assert producer.flush(120) == 0
"""

_CONSUMER = """
import sys, time, confluent_kafka
address, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
consumer = confluent_kafka.Consumer(
    {"bootstrap.servers": address, "group.id": "bench", "auto.offset.reset": "earliest", "enable.auto.commit": False}
)
consumer.subscribe([topic])
read, began = 0, None
while read < count:
    messages = consumer.consume(10_000, 5.0)
    began = began or time.perf_counter()
    read += len(messages)
print(time.perf_counter() - began)
consumer.close()
"""


def _program(source: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", source, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _finish(program: subprocess.Popen[str]) -> str:
    told, _ = program.communicate()
    assert program.returncode == 0, "the client failed"
    return told


def _librdkafka(scale: float) -> list[Row]:
    """Producers and a consumer as users run them, each in its own process."""
    count = int(1_000_000 * scale)
    rows = []
    with broker() as ours:
        _open_topic(ours, partitions=4)
        address = f"127.0.0.1:{ours.port}"
        for acks in ("1", "all"):
            before, started = ours.cpu_s, time.perf_counter()
            _finish(_program(_PRODUCER, address, TOPIC, count, acks))
            elapsed, used = time.perf_counter() - started, ours.cpu_s - before
            name = f"librdkafka producer, 100 B, acks={acks}"
            rows.append(row(name, used / count * 1e6, "CPU s a million"))
            rows.append(row(name, count / elapsed, "msgs/s"))
        before = ours.cpu_s
        took_s = float(_finish(_program(_CONSUMER, address, TOPIC, count)))
        rows.append(row("librdkafka consumer, 100 B", (ours.cpu_s - before) / count * 1e6, "CPU s a million"))
        rows.append(row("librdkafka consumer, 100 B", count / took_s, "msgs/s"))
    return rows


def _many_producers(scale: float, programs: int = 4) -> list[Row]:
    """Several producers at once, so that the broker is the bottleneck, as far as there are enough cores."""
    count = int(500 * scale) * 1000
    with broker() as ours:
        _open_topic(ours, partitions=8)
        producers = [_program(_ONE_OF_MANY, f"127.0.0.1:{ours.port}", TOPIC, count) for _ in range(programs)]
        for producer in producers:
            assert producer.stdout is not None
            assert producer.stdout.readline() == "ready\n", "the client did not start"
        before, started = ours.cpu_s, time.perf_counter()
        for producer in producers:
            assert producer.stdin is not None
            producer.stdin.write("\n")
            producer.stdin.flush()
        for producer in producers:
            _finish(producer)
        elapsed, used = time.perf_counter() - started, ours.cpu_s - before
    name, total = f"{programs} librdkafka producers, 100 B, acks=1", count * programs
    return [
        row(name, used / total * 1e6, "CPU s a million"),
        row(name, total / elapsed, "msgs/s, clients on the same cores", target=">= 1 M"),
        row(name, total / used, "msgs/s a core of the broker", target=">= 1 M"),
    ]


if __name__ == "__main__":
    print(show(run(quick="--quick" in sys.argv)))
