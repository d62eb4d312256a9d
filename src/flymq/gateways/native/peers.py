"""Other brokers of the cluster: they prove who they are, and copy partitions."""

from __future__ import annotations

from flymq.broker.service.brokers import Position, ReplicaRead
from flymq.gateways.connection import AnswerLater
from flymq.gateways.native.connection import NativeConnection, Pieces
from flymq.wire.native.fetch_frames import encode_around
from flymq.wire.native.messages import peers as wire
from flymq.wire.native.messages.fields import Failure
from flymq.wire.native.messages.session import Done


def join_peer(connection: NativeConnection, request: wire.JoinPeer) -> Done:
    brokers = connection.service.brokers
    session = brokers.join(connection.caller, request.broker, request.epoch, request.secret)
    connection.joined(session, f"broker:{request.broker}")
    return Done()


def replica_fetch(connection: NativeConnection, request: wire.ReplicaFetch) -> Pieces | AnswerLater:
    """Answer with what is new, now or when there are records."""
    session = connection.peer
    assert session is not None, "checked for all operations between brokers"
    session.change(
        [((bytes(each.topic_id), each.partition), _position(each)) for each in request.positions],
        [(bytes(each.topic_id), each.partition) for each in request.forgotten],
    )
    reads = session.fetch(bytes_max=request.max_bytes, wait_s=request.max_wait_ms / 1000)
    if isinstance(reads, list):
        return _frame(connection, request.id, reads)
    return AnswerLater(reads, lambda reads: _frame(connection, request.id, reads))


def describe_led(connection: NativeConnection, request: wire.DescribeLed) -> wire.DescribeLedAnswer:
    wanted = [(bytes(each.topic_id), each.partition) for each in request.partitions]
    return wire.DescribeLedAnswer(partitions=connection.service.topics.leaders.describe_here(wanted))


def _position(each: wire.ReplicaPosition) -> Position:
    return Position(each.leader_epoch, each.offset, each.last_epoch, each.durable_offset)


def _frame(connection: NativeConnection, request_id: int, reads: list[ReplicaRead]) -> Pieces:
    answer = wire.ReplicaFetchAnswer(id=request_id, partitions=[_news(read) for read in reads])
    lengths = [0 if read.slice is None else read.slice.length for read in reads]
    connection.service.brokers.bytes_copied += sum(lengths)
    pieces: Pieces = []
    for at, head in enumerate(encode_around(answer, lengths)):
        pieces.append(head)
        if at < len(reads) and (body := reads[at].slice) is not None:
            pieces.append(body)
    return pieces


def _news(read: ReplicaRead) -> wire.ReplicaNews:
    topic_id, partition = read.replica
    epoch, end = read.diverging or (-1, -1)
    error = None if read.error is None else Failure.of(read.error)
    return wire.ReplicaNews(topic_id, partition, error, read.high_watermark, read.start_offset, epoch, end)
