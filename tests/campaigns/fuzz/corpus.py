"""The corpus: real encodings of everything, from which fuzzing begins, and inputs that once broke a parser.

    python -m tests.campaigns.fuzz.corpus       write tests/campaigns/corpus again; found-* files stay

A corpus is a folder for each target, with one input in each file. What fuzzing finds is added as `found-<name>`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random

import msgspec
from tests.campaigns.fuzz.targets import TARGETS
from tests.property.wire.kio_messages import kio_bytes, kio_class, random_message

from flymq.coordination import entries as e
from flymq.coordination.subscriptions import Subscription, encode_assignment, encode_subscription
from flymq.metadata.served.messages import (
    Changes,
    Failed,
    Page,
    RenewSession,
    TxnRequest,
    WatchRequest,
    encode,
    to_wire,
)
from flymq.metadata.store import Event, EventBatch, Get, KeyValue, Put, modified_at
from flymq.model.coordinators import CoordinatorKind, Joining
from flymq.model.names import TopicPartition
from flymq.record import _plain
from flymq.record.batch import encode_batch
from flymq.record.codec import RecordLike
from flymq.record.compression import Compression, compress
from flymq.record.control import Marker, MarkerType, encode_marker
from flymq.spark.archive.manifest import Manifest, Piece, TopicState, encode_manifest
from flymq.spark.backup.contents import Backup, Extent
from flymq.storage.producers.aborted_transactions import AbortedMark
from flymq.storage.producers.producer_state import AppendedBatch, Producer, Producers
from flymq.storage.producers.snapshot import encode_snapshot
from flymq.storage.recovery.checkpoint import Checkpoint, CleanMarker, Compacted
from flymq.storage.recovery.checksummed_note import encode_note
from flymq.storage.segments.index import OffsetIndex, TimeIndex
from flymq.wire.kafka.apis import CODECS
from flymq.wire.kafka.codec import messages_of
from flymq.wire.native.codec import encode_request
from flymq.wire.native.framing import HEADER_SIZE
from flymq.wire.native.messages import groups, peer_transactions, push, records, session, topics, transactions
from flymq.wire.native.messages.fields import PartitionRef

FOLDER = Path(__file__).parent.parent / "corpus"
FOUND = "found-"

ROWS: list[RecordLike] = [
    (None, b"value"),
    (b"key", b"a" * 50),
    (b"key", None),
    (b"", b"", [("name", b"header"), ("empty", None)]),
]
REF = TopicPartition("topic", 3)
NATIVE = [
    session.Hello(),
    session.Authenticate(username="ada", password="secret"),
    records.Produce(topic="t", value=b"value", key=b"key", headers=[("a", b"b")]),
    records.ProduceBatch(partitions=[records.PartitionBatches("t", 0, bytes(encode_batch(ROWS)))]),
    records.Fetch(partitions=[records.FetchPartition("t", 0, 5)], max_wait_ms=10),
    records.ListOffsets(partitions=[records.OffsetQuery("t", 1, -2)]),
    records.DeleteRecords(partitions=[records.DeleteRecordsPartition("t", 0, 7)]),
    topics.CreateTopic(topic="t", partitions=2, settings={"retention.ms": 5}),
    topics.Metadata(),
    groups.Commit(group="g", offsets=[groups.OffsetToCommit("t", 0, 9)]),
    groups.FetchOffsets(group="g"),
    groups.FindCoordinator(kind=CoordinatorKind.TRANSACTION, key="t"),
    peer_transactions.JoinTransaction(
        transactional_id="t", producer_id=1, producer_epoch=0, joining=Joining.WRITTEN, groups=["g"]
    ),
    peer_transactions.WriteMarkers(
        producer_id=1,
        producer_epoch=0,
        marker_epoch=1,
        coordinator_epoch=3,
        committed=True,
        partitions=[PartitionRef("t", 0)],
    ),
    transactions.InitProducer(transactional_id="x"),
    transactions.CommitTxn(transactional_id="x", producer_id=1, producer_epoch=2),
    push.StopPush(subscription=1),
]
HTTP = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /topics/t/records HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nA: b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n" * 2,
    b"OPTIONS * HTTP/1.0\r\nExpect: 100-continue\r\n\r\n",
]


OTLP = bytes.fromhex(
    "0ab9010a170a150a0867726f75705f696412090a0762696c6c696e67129d010a090a07612073636f706512550a036c616712"
    "10776861742069742069732061626f75741a026d732a380a3619000000000000000021000000000000f83f3a110a05746f70"
    "696312080a066f72646572733a0f0a09706172746974696f6e1202180412390a077265636f72647312107768617420697420"
    "69732061626f75741a026d733a180a1219000000000000000031070000000000000010021801"
)
"""Metrics of a client: a gauge and a counter, with attributes."""


def inputs() -> dict[str, list[bytes]]:
    """Return the inputs of each target."""
    requests = [bytes(encode_request(request)) for request in NATIVE]
    batches = [
        bytes(encode_batch(ROWS * 3, compression=each, producer_id=5, transactional=True)) for each in Compression
    ]
    batches += [bytes(encode_marker(Marker(kind, 5, 0, 0, 0))) for kind in MarkerType]
    payload = bytes(_plain.encode_records(ROWS, 0, 5)[0])
    offsets, times = OffsetIndex(), TimeIndex()
    for number in range(3):
        offsets.add(number * 10, number * 4096)
        times.add(1_700_000_000_000 + number, number * 4096)
    subscriptions = [
        encode_subscription(Subscription(["a", "b"], [REF], b"user data")),
        encode_assignment([REF, TopicPartition("topic", 4)]),
    ]
    return {
        "native": [request[2:3] + request[HEADER_SIZE:] for request in requests],
        "native-stream": [*requests, b"".join(requests)],
        "kafka": list(_kafka()),
        "kafka-stream": list(_kafka_streams()),
        "otlp": [OTLP],
        "subscription": subscriptions,
        "http": [bytes([len(stream) // 2]) + stream for stream in HTTP],
        "http-response": [bytes([len(stream) // 2]) + stream for stream in HTTP_RESPONSES],
        "metadata-message": METADATA,
        "rest-value": [b'"text"', b'"dGV4dA=="', b'{"a": [1, null]}', b'"\\u00e4\\n"', b"null"],
        "first-bytes": [requests[0], HTTP[0], *list(_kafka_streams())[:3], b"\x16\x03\x01"],
        "batch": [*batches, batches[0] + batches[-1]],
        "header": batches[:1],
        "records": [bytes([len(ROWS), len(ROWS) - 1]) + payload, b"\x01\x00" + payload],
        "compression": [bytes([each]) + bytes(compress(payload * 20, each)) for each in Compression],
        "note": [encode_note(fact) for fact in (Checkpoint(1, 2, 3), CleanMarker(1, 2, 3), Compacted(4, 5), [(0, 0)])]
        + [msgspec.json.encode(Checkpoint(1, 2, 3)), b"[[0,0],[3,7]]"],
        "index": [offsets.to_bytes(), offsets.to_bytes()[:-8], times.to_bytes(5, 9), times.to_bytes(5, 9)[:-8]],
        "snapshot": [
            encode_snapshot(Producers([PRODUCER]), AbortedMark(3, 4)),
            encode_snapshot(Producers([PRODUCER]), AbortedMark(3, 4))[8:],
        ],
        "durable-end": [(7).to_bytes(8, "little")],
        "aborted-transactions": [b"".join(number.to_bytes(8) for number in (5, 0, 9, 10)) * 2],
        "entries": list(_entries()),
        "manifest": [encode_manifest(MANIFEST), b'{"format": 1}', msgspec.json.encode(BACKUP)],
    }


HTTP_RESPONSES = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\r\n",
]
_KEY_VALUE = KeyValue("t/topic", b"value", 3, 7)
METADATA = [
    encode(
        TxnRequest(1, [modified_at("t/topic", 7)], to_wire([Put("t/topic", b"value", 9)]), to_wire([Get("t/topic")]))
    ),
    encode(WatchRequest(2, "t/", 7)) + encode(RenewSession(3, 9)),
    encode(Changes(2, EventBatch(7, (Event("t/topic", _KEY_VALUE), Event("t/other", None))))),
    encode(Page(4, 7, [_KEY_VALUE], is_last=True)) + encode(Failed(5, "SESSION_ENDED", "the session has expired")),
    b'{"header":{"revision":"7"},"succeeded":true,"responses":[{"response_range":{"header":{"revision":"7"},"kvs":'
    b'[{"key":"L2ZseW1xL2E=","create_revision":"3","mod_revision":"7","value":"dg=="}],"count":"1"}}]}',
    b'{"result":{"header":{"revision":"7"},"events":[{"kv":{"key":"L2ZseW1xL2E=","mod_revision":"7"},"type":"DELETE"}]}}',
    b'{"error":{"grpc_code":14,"message":"etcdserver: no leader"}}',
]

MANIFEST = Manifest(
    query="q",
    batch=0,
    created_ms=5,
    pieces=[Piece("topic", 3, 0, 10, 10, "file.parquet", 100, 7)],
    topics={"topic": TopicState("id", 4)},
    groups={"g": {"topic": {3: 9}}},
)
BACKUP = Backup(
    created_ms=5,
    flymq_version="1",
    topics=MANIFEST.topics,
    groups=MANIFEST.groups,
    partitions={"topic": {3: Extent(0, 10, 10)}},
    size_bytes=7,
)
PRODUCER = Producer(5, 1, [AppendedBatch(0, 4, 10, 14, 99)], open_since=10)
ENTRIES: list[e.Entry] = [
    (e.GroupKey("g"), e.GroupValue(1, members=(e.MemberValue("m", (("range", b"x"),)),))),
    (e.ConsumerGroupKey("g"), e.ConsumerGroupValue(3, "uniform")),
    (e.ConsumerMemberKey("g", "m"), e.ConsumerMemberValue(("t",), assigned=(REF,))),
    (e.OffsetKey("g", "t", 1), e.OffsetValue(7, metadata="x")),
    (e.PendingKey("g", 5, "t", 1), e.PendingValue(1, e.OffsetValue(7))),
    (
        e.TransactionKey("x"),
        e.TransactionValue(
            e.ProducerIdentity(5, 1),
            60_000,
            e.TransactionState.COMMITTING,
            (REF,),
            ("g",),
            successor=e.ProducerIdentity(5, 2),
        ),
    ),
    (e.QueryKey("q"), e.QueryValue(4)),
]


def _kafka() -> Iterable[bytes]:
    """The newest version of each API."""
    chance = Random(1)
    for api, (_, version) in CODECS.items():
        tags = b"\x00" if version >= messages_of(api).COMPACT_FROM else b""
        yield bytes([api, version]) + tags + kio_bytes(random_message(kio_class(api, version, "request"), chance))


def _kafka_streams() -> Iterable[bytes]:
    for body in list(_kafka())[::8]:
        request = body[0].to_bytes(2) + body[1].to_bytes(2) + (7).to_bytes(4) + b"\x00\x03abc" + body[2:]
        yield len(request).to_bytes(4) + request


def _entries() -> Iterable[bytes]:
    for key, value in ENTRIES:
        raw = msgspec.msgpack.encode(key)
        yield bytes([len(raw)]) + raw + msgspec.msgpack.encode(value)


def write(folder: Path) -> int:
    """Write the corpus of every target; return its size. What was found by fuzzing stays."""
    total = 0
    for target, found in inputs().items():
        (folder / target).mkdir(parents=True, exist_ok=True)
        for path in (folder / target).iterdir():
            if not path.name.startswith(FOUND):
                path.unlink()
        for number, data in enumerate(found):
            (folder / target / f"{number:03}").write_bytes(data)
            total += len(data)
    return total


def read(target: str) -> list[bytes]:
    """Return the corpus of one target."""
    return [path.read_bytes() for path in sorted((FOLDER / target).iterdir())]


if __name__ == "__main__":
    assert inputs().keys() == TARGETS.keys()
    print(f"{write(FOLDER)} bytes in {FOLDER}")
