"""What groups and transactions cost: commits, transactions, and exactly-once beside at-least-once in the same run.

Everything here waits for the disk before it is acknowledged, so it is compared with sequential small appends with
fsync: what is faster than that shares fsyncs.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.processes import broker
from benchmarks.raw_client import RawClient, percentile
from benchmarks.row import Row, row, show
from flymq.model.delivery import Acks
from flymq.record.batch import encode_batch
from flymq.wire.native.codec import encode_request
from flymq.wire.native.messages.groups import Commit, OffsetToCommit
from flymq.wire.native.messages.records import PartitionBatches, ProduceBatch
from flymq.wire.native.messages.topics import CreateTopic
from flymq.wire.native.messages.transactions import BeginTxn, CommitTxn, InitProducer

TOPIC = "bench"
PARTITIONS = 4
VALUE = b"x" * 100
_ROUNDS = 3


def run(quick: bool = False) -> list[Row]:
    scale = 0.2 if quick else 1.0
    with broker() as measured, _connected(measured.port) as client:
        client.ask(CreateTopic(topic=TOPIC, partitions=PARTITIONS))
        return [
            *_commits(client, scale),
            *_transactions(client, scale),
        ]


@contextmanager
def _connected(port: int) -> Iterator[RawClient]:
    client = RawClient(port)
    try:
        yield client
    finally:
        client.close()


# --- commits --------------------------------------------------------------------------------------------------------


def _commits(client: RawClient, scale: float) -> list[Row]:
    disk_per_s = _appends_per_s(int(400 * scale))
    alone = client.round_trips(_commit_request("g"), int(400 * scale))
    count = int(8_000 * scale)
    together = median(count / client.flood(_commit_request("g"), count, inflight=64) for _ in range(_ROUNDS))
    spread = median(_commits_of_many_groups(client, 64, int(120 * scale)) for _ in range(_ROUNDS))
    beside: dict[str, Any] = {"peer": "append + fsync, alone", "peer_value": disk_per_s}
    return [
        row("offset commits, one at a time", len(alone) / sum(alone), "1/s", **beside),
        row("offset commit, one at a time, p50", percentile(alone, 0.5) * 1000, "ms"),
        row("offset commits of one group, 64 in flight", together, "1/s", **beside),
        row("offset commits of 64 groups, 64 in flight", spread, "1/s", **beside),
    ]


def _commits_of_many_groups(client: RawClient, groups: int, bursts: int) -> float:
    burst = b"".join(_commit_request(f"g{number}") for number in range(groups))
    started = time.perf_counter()
    for _ in range(bursts):
        client.socket.sendall(burst)
        client.receive_frames(groups)
    return bursts * groups / (time.perf_counter() - started)


def _commit_request(group: str) -> bytes:
    return bytes(encode_request(Commit(id=1, group=group, offsets=[OffsetToCommit(TOPIC, 0, 7)])))


def _appends_per_s(count: int) -> float:
    """Return the number of sequential small appends with fsync per second."""
    with tempfile.TemporaryDirectory(prefix="flymq-bench-") as scratch:
        file = os.open(Path(scratch) / "log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        started = time.perf_counter()
        for _ in range(count):
            os.write(file, bytes(200))
            os.fsync(file)
        elapsed = time.perf_counter() - started
        os.close(file)
    return count / elapsed


# --- transactions ---------------------------------------------------------------------------------------------------


class _Producer:
    """A transactional producer that knows its next epoch without reading the response."""

    def __init__(self, client: RawClient, number: int) -> None:
        self.name = f"bench-{number}-{time.monotonic_ns()}"
        answer: Any = client.ask(InitProducer(transactional_id=self.name))
        self.producer_id: int = answer.producer_id
        self.epoch: int = answer.producer_epoch
        self.partition = number % PARTITIONS

    def transaction(self, records: int) -> bytes:
        """Return the requests of one transaction; they may be sent without waiting in between."""
        identity: dict[str, Any] = {
            "id": 1,
            "transactional_id": self.name,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }
        batch = encode_batch(
            [(None, VALUE)] * records,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=0,
            transactional=True,
        )
        parts = [PartitionBatches(TOPIC, self.partition, batch)]
        produce = ProduceBatch(id=1, partitions=parts, acks=Acks.ALL, transactional_id=self.name)
        self.epoch += 1
        return b"".join(map(encode_request, (BeginTxn(**identity), produce, CommitTxn(**identity))))


def _transactions(client: RawClient, scale: float) -> list[Row]:
    rows = []
    for producers, records, count in ((1, 10, 200), (20, 10, 2000), (20, 1000, 400)):
        count = max(producers, int(count * scale))
        pairs = [
            (_exactly_once(client, producers, records, count), _at_least_once(client, producers, records, count))
            for _ in range(_ROUNDS)
        ]
        ours, peer = median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)
        who = "1 producer" if producers == 1 else f"{producers} producers"
        if records == 10:
            rows.append(row(f"transactions of {records} messages, {who}", ours / records, "1/s"))
        rows.append(
            row(
                f"exactly once, {records} messages a transaction, {who}",
                ours,
                "msgs/s",
                peer="at least once, acks=all",
                peer_value=peer,
            )
        )
    return rows


def _exactly_once(client: RawClient, producers: int, records: int, count: int) -> float:
    """Return messages a second in transactions, each producer with one after another."""
    writers = [_Producer(client, number) for number in range(producers)]
    started = time.perf_counter()
    for _ in range(count // producers):
        client.socket.sendall(b"".join(writer.transaction(records) for writer in writers))
        client.receive_frames(3 * producers)
    elapsed = time.perf_counter() - started
    for writer in writers:  # a rejected one would show in the epoch
        answer: Any = client.ask(InitProducer(transactional_id=writer.name))
        assert answer.producer_epoch == writer.epoch + 1
    return count // producers * producers * records / elapsed


def _at_least_once(client: RawClient, producers: int, records: int, count: int) -> float:
    """Return messages a second without transactions, just as many batches of the same size in flight."""
    started = time.perf_counter()
    for _ in range(count // producers):
        requests = []
        for number in range(producers):
            batch = encode_batch([(None, VALUE)] * records)
            parts = [PartitionBatches(TOPIC, number % PARTITIONS, batch)]
            requests.append(encode_request(ProduceBatch(id=1, partitions=parts, acks=Acks.ALL)))
        client.socket.sendall(b"".join(requests))
        client.receive_frames(producers)
    return count // producers * producers * records / (time.perf_counter() - started)


if __name__ == "__main__":
    print(show(run()))
