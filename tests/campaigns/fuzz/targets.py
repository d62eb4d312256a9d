"""Every parser of the project as a function of bytes. Whatever they are, nothing but its declared errors comes out.

A parser behind a checksum is given the bytes as they are, and once more with a right checksum around them: a fuzzer
does not guess checksums.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec

from flymq.coordination.entries import ALL_KINDS, read_entries
from flymq.coordination.subscriptions import parse_assignment, parse_subscription, understand, understand_assignment
from flymq.gateways.native.connection import speaks_native
from flymq.gateways.rest.handlers.record_values import show, to_bytes
from flymq.gateways.rest.http.connection import speaks_http
from flymq.gateways.rest.schema.shapes import Encoding
from flymq.host.simulated_disk import SimulatedDisk
from flymq.metadata.etcd.messages import (
    event_batches,
    parse_failure,
    parse_keepalive,
    parse_range,
    parse_txn,
    parse_watch,
)
from flymq.metadata.served.messages import Frames, MalformedMessage, TxnRequest, from_wire
from flymq.model.errors import FlyMQError, InvalidBatch
from flymq.record import _plain, codec
from flymq.record.batch import encode_batch, parse_batch
from flymq.record.checksum import crc32c
from flymq.record.compression import Compression, decompress
from flymq.record.control import parse_marker
from flymq.record.header import HEADER_SIZE, MAGIC, MAGIC_AT, check_batch, parse_header, renew_checksum, split_batches
from flymq.record.reading import end_offset, first_record_at, parse_pairs, parse_records, parse_rows
from flymq.record.shapes import Section
from flymq.spark.archive.manifest import Manifest, encode_manifest, parse_manifest
from flymq.spark.backup.contents import FILE as BACKUP_FILE
from flymq.spark.backup.contents import Backup, read_backup, write_backup
from flymq.storage.leader_epochs import LeaderEpochs, read_epochs
from flymq.storage.producers.aborted_transactions import parse_entries
from flymq.storage.producers.producer_state import Producers
from flymq.storage.producers.snapshot import parse_snapshot
from flymq.storage.recovery.checkpoint import Checkpoint, CleanMarker, Compacted
from flymq.storage.recovery.checksummed_note import parse_note
from flymq.storage.recovery.durable_end import parse_durable_end
from flymq.storage.segments.index import OffsetIndex, TimeIndex
from flymq.wire.first_bytes import Speaks
from flymq.wire.http.exchanges import ResponseReader
from flymq.wire.http.requests import RequestReader
from flymq.wire.kafka.apis import CODECS, Api
from flymq.wire.kafka.codec import parse_request
from flymq.wire.kafka.framing import RequestCutter, parse_client_id, parse_head, speaks_kafka
from flymq.wire.kafka.old_produce import OLD_PRODUCE, refuse_old_produce
from flymq.wire.native.codec import decode_answer, decode_request, peek_id
from flymq.wire.native.framing import FrameCutter
from flymq.wire.native.opcodes import ANSWER_BIT
from flymq.wire.otlp import parse_metrics

Target = Callable[[bytes], None]

DECOMPRESSED_BYTES_MAX = 1 << 20


def _accepts(parse: Callable[..., Any], *arguments: Any) -> Any:
    """Call a parser; its own errors are fine. Return what it gave, or None."""
    try:
        return parse(*arguments)
    except FlyMQError:
        return None


# --- what clients send -----------------------------------------------------------------------------------------------


def native(data: bytes) -> None:
    """The first byte is the opcode, the rest the payload."""
    if data:
        _accepts(decode_request, data[0], data[1:])
        _accepts(decode_answer, data[0] | ANSWER_BIT, data[1:])
        peek_id(data[1:])


def otlp(data: bytes) -> None:
    """Metrics that a client pushes."""
    _accepts(lambda: parse_metrics(data, points_max=100))


def native_stream(data: bytes) -> None:
    _accepts(lambda: [bytes(frame.payload) for frame in FrameCutter(body_bytes_max=1 << 20).feed(data)])


def kafka(data: bytes) -> None:
    """The first two bytes choose API and version, the rest is the body."""
    if len(data) > 1:
        api = Api(data[0]) if data[0] in CODECS else list(CODECS)[data[0] % len(CODECS)]
        first, last = CODECS[api]
        version = data[1] if data[1] in CODECS[api] else first + data[1] % (last - first + 1)
        _accepts(parse_request, api, version, memoryview(data), 2)


def kafka_stream(data: bytes) -> None:
    """Whole requests with their headers, as the connection takes them."""
    for request in _accepts(lambda: [bytes(each) for each in RequestCutter().feed(data)]) or ():
        head = _accepts(parse_head, memoryview(request))
        if head is None:
            continue
        parse_client_id(memoryview(request), head)
        if head.api in CODECS and head.version in CODECS[Api(head.api)]:
            _accepts(parse_request, head.api, head.version, memoryview(request), head.size)
        elif head.api == 0 and head.version in OLD_PRODUCE:
            _accepts(refuse_old_produce, memoryview(request), head, 1)


def subscription(data: bytes) -> None:
    """What members of a group tell each other."""
    for parse in (parse_subscription, parse_assignment, understand, understand_assignment):
        _accepts(parse, data)


def http(data: bytes) -> None:
    """The first byte says where the stream is cut in two."""
    if not data:
        return
    reader, stream = RequestReader(), data[1:]
    for piece in (stream[: data[0]], stream[data[0] :]):
        reader.receive(piece)
        while _accepts(reader.read):
            pass


def http_response(data: bytes) -> None:
    """The first byte says where the stream is cut in two."""
    if data:
        reader = ResponseReader()
        for piece in (data[1 : 1 + data[0]], data[1 + data[0] :]):
            _accepts(reader.receive, piece)


def metadata_message(data: bytes) -> None:
    """What processes of one machine, and etcd, tell each other about the metadata."""
    for read in (Frames.requests, Frames.responses):
        frames = Frames(1 << 20)
        frames.receive(data)
        with suppress(MalformedMessage):
            for message in read(frames):
                if isinstance(message, TxnRequest):
                    from_wire(message.success)
    for parse in (parse_range, parse_txn, parse_keepalive, parse_failure):
        with suppress(msgspec.MsgspecError):
            parse(data)
    with suppress(msgspec.MsgspecError):
        if (watched := parse_watch(data).result) is not None:
            list(event_batches("/flymq/", watched.events))


def rest_value(data: bytes) -> None:
    """A value in the body of a REST request, in each of the encodings; and stored bytes in a response."""
    for encoding in Encoding:
        if data:
            _accepts(to_bytes, msgspec.Raw(data), encoding, "value")
        show(data, encoding)


def first_bytes(data: bytes) -> None:
    """More bytes never change what a protocol has decided, and no two claim the same."""
    claimed = set()
    for name, speaks in (("native", speaks_native), ("http", speaks_http), ("kafka", speaks_kafka)):
        decided = Speaks.MORE
        for size in range(1, min(len(data), 32) + 1):
            answer = speaks(data[:size])
            assert decided in (Speaks.MORE, answer), f"{name} changes its mind"
            decided = answer
        if decided is Speaks.YES:
            claimed.add(name)
    assert len(claimed) <= 1, f"claimed by {claimed}"


# --- record batches --------------------------------------------------------------------------------------------------


def batch(data: bytes) -> None:
    """A run of batches, as it is and with what surrounds the records put right."""
    _read_run(data)
    if len(data) >= HEADER_SIZE:
        sealed = bytearray(data)
        sealed[8:12] = (len(sealed) - 12).to_bytes(4)
        sealed[MAGIC_AT] = MAGIC
        renew_checksum(sealed, 0, len(sealed))
        _read_run(bytes(sealed))
        _assign_alike(bytes(sealed))


def _read_run(run: bytes) -> None:
    for read in (check_batch, parse_batch, parse_marker, end_offset, lambda data: list(split_batches(data))):
        _accepts_batch(read, run)
    bound: dict[str, Any] = {"decompressed_bytes_max": DECOMPRESSED_BYTES_MAX}
    for parse in (parse_records, parse_pairs, parse_rows):
        _accepts_batch(partial(parse, start_offset=2, aborted=[(5, 0)], **bound), run)
    _accepts_batch(partial(first_record_at, timestamp_ms=1_000, **bound), run)


def _accepts_batch(read: Callable[..., Any], run: bytes) -> None:
    try:
        read(run)
    except InvalidBatch:
        return


def _assign_alike(run: bytes) -> None:
    """The compiled codec and its twin give a batch its place alike, or refuse it with the same words."""
    results: list[tuple[Any, Any]] = []
    for module in (codec, _plain):
        own = bytearray(run)
        try:
            results.append((module.assign_batch(own, 0, 7, 3), bytes(own)))
        except InvalidBatch as refusal:
            results.append((type(refusal), str(refusal)))
    assert results[0] == results[1], f"the codecs differ: {results}"


def records(data: bytes) -> None:
    """The records of a batch, uncompressed: the first two bytes are their count and the delta of the last offset."""
    if len(data) < 2:
        return
    section = Section(data[2:], data[0], 0, data[1], 5, None)
    for name in ("parse_records", "parse_pairs", "parse_rows"):
        results = []
        for module in (codec, _plain):
            try:
                results.append([tuple(each) for each in getattr(module, name)([section], 0)])
            except InvalidBatch as refusal:
                results.append([(type(refusal), str(refusal))])
        assert results[0] == results[1], f"the codecs differ in {name}: {results}"


def compression(data: bytes) -> None:
    """The first byte chooses the codec."""
    if data:
        unpacked = _accepts(decompress, data[1:], data[0] % len(Compression), DECOMPRESSED_BYTES_MAX)
        assert unpacked is None or data[0] % len(Compression) == 0 or len(unpacked) <= DECOMPRESSED_BYTES_MAX


# --- files -----------------------------------------------------------------------------------------------------------

DIRECTORY = Path("/data/0")


def _disk_with(name: str, content: bytes) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(DIRECTORY)
    disk.open(DIRECTORY / name).append([content])
    return disk


def note(data: bytes) -> None:
    line = data.replace(b"\n", b" ")
    sealed = b"%b %08x\n" % (line, crc32c(line))
    kinds: tuple[Any, ...] = (Checkpoint, CleanMarker, Compacted, list[tuple[int, int]])
    for raw in (data, sealed * 2, data + sealed):
        for kind in kinds:
            parse_note(raw, kind)
        starts = read_epochs(_disk_with("leader-epochs", raw), DIRECTORY)
        assert starts is None or LeaderEpochs(starts).starts == starts


def index(data: bytes) -> None:
    sealed = data + b"FMQI" + crc32c(data).to_bytes(4, "little")
    for raw in (data, sealed):
        offsets = OffsetIndex.map(_disk_with("file", raw), DIRECTORY / "file")
        if offsets is not None and len(offsets):
            offsets.floor_of_offset(7), offsets.floor_of_position(7), offsets.cut(7)
        times = TimeIndex.map(_disk_with("file", raw), DIRECTORY / "file")
        if times is not None and len(times):
            times.floor(7), times.first(1)


def snapshot(data: bytes) -> None:
    for raw in (data, b"FMQP" + crc32c(data).to_bytes(4, "little") + data):
        parsed = parse_snapshot(raw)
        assert parsed is None or Producers(parsed.producers).all() == parsed.producers


def durable_end(data: bytes) -> None:
    offset = data[:8].ljust(8, b"\0")
    for raw in (data, b"FMQD" + crc32c(offset).to_bytes(4, "little") + offset + data[8:]):
        assert 0 <= parse_durable_end(raw) < 1 << 63


def aborted_transactions(data: bytes) -> None:
    entries = [data[at : at + 32] for at in range(0, len(data) - 31, 32)]
    for raw in (data, b"".join(entry + crc32c(entry).to_bytes(4) for entry in entries)):
        parse_entries(raw)


def entries(data: bytes) -> None:
    """A record of an internal topic: the first byte says where the key ends."""
    if data:
        key, value = data[1 : 1 + data[0]], data[1 + data[0] :]
        list(read_entries(encode_batch([(key, value), (key, None)]), ALL_KINDS))
        _accepts_batch(lambda run: list(read_entries(run, ALL_KINDS)), data)


def manifest(data: bytes) -> None:
    """The manifest of an archive, and that of a backup."""
    _accepts(parse_manifest, data, "manifest")
    _accepts(_read_backup, data)
    _accepts(_with_right_checksum, data)


def _with_right_checksum(data: bytes) -> None:
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        parse_manifest(encode_manifest(msgspec.json.decode(data, type=Manifest)), "manifest")
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        _read_backup(_encode_backup(msgspec.json.decode(data, type=Backup)))


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="flymq-fuzz-")


def _read_backup(data: bytes) -> Backup:
    root = Path(_folder().name)
    (root / BACKUP_FILE).write_bytes(data)
    return read_backup(root)


def _encode_backup(backup: Backup) -> bytes:
    root = Path(_folder().name)
    write_backup(root, backup)
    return (root / BACKUP_FILE).read_bytes()


def header(data: bytes) -> None:
    for position in (0, 1, 61):
        _accepts_batch(partial(parse_header, position=position), data)


TARGETS: dict[str, Target] = {
    "native": native,
    "native-stream": native_stream,
    "kafka": kafka,
    "kafka-stream": kafka_stream,
    "otlp": otlp,
    "subscription": subscription,
    "http": http,
    "http-response": http_response,
    "metadata-message": metadata_message,
    "rest-value": rest_value,
    "first-bytes": first_bytes,
    "batch": batch,
    "header": header,
    "records": records,
    "compression": compression,
    "note": note,
    "index": index,
    "snapshot": snapshot,
    "durable-end": durable_end,
    "aborted-transactions": aborted_transactions,
    "entries": entries,
    "manifest": manifest,
}
