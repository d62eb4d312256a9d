"""What lies around the bytes: every compression, and TLS.

Batches are opaque to the broker, so a compression costs the clients and saves the broker; both are told. The text
compresses as log lines do. TLS is measured with one connection, whose other end is a Python program too.
"""

from __future__ import annotations

import ssl
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import trustme

from benchmarks.load import connect
from benchmarks.measurement import Effort, Load, effort, load_row, measure, timed
from benchmarks.native import Bench, Reader, produce_bytes, shape, writer
from benchmarks.processes import Measured, broker
from benchmarks.row import Row
from flymq import FlyMQClient
from flymq.record.compression import Compression

_SDK_BATCH = 5_000


def run(quick: bool = False) -> list[Row]:
    compressions = [Compression.NONE, Compression.ZSTD] if quick else list(Compression)
    return [*_compressions(compressions, effort(quick, 24 << 20)), *_tls(effort(quick))]


def _compressions(compressions: Sequence[Compression], planned: Effort) -> list[Row]:
    rows = []
    plain = shape(100, text=True)
    with broker() as ours, FlyMQClient(f"127.0.0.1:{ours.port}") as client:
        bench = Bench(ours.port)
        for compression in compressions:
            batches = shape(100, compression=compression, text=True)
            count = planned.batches(plain.payload_bytes)
            topic, messages = bench.topic(), count * batches.records
            request = produce_bytes(topic, 0, batches.batch)
            raw = [measure(ours, [writer(bench.connect(), request, count)], messages) for _ in range(planned.rounds)]
            bench.check_written(topic, messages * planned.rounds)
            share = batches.payload_bytes / plain.payload_bytes
            rows.append(load_row(f"broker, {compression.name.lower()} batches, {share:.0%} of the size", raw))
            sdk = [_sdk(client, ours, bench.topic(4), compression, messages) for _ in range(planned.rounds)]
            rows.append(load_row(f"SDK, {compression.name.lower()}", sdk))
        bench.close()
    return rows


def _sdk(client: FlyMQClient, ours: Measured, topic: str, compression: Compression, messages: int) -> Load:
    values = [
        b"%d page_view /p/%d user-agent and the like, as log lines have them, with some padding" % (n, n)
        for n in range(_SDK_BATCH)
    ]
    repeats = max(1, messages // _SDK_BATCH)
    with client.producer(compression=compression) as producer:

        def work() -> float:
            started = time.perf_counter()
            for _ in range(repeats):
                producer.produce_batch(topic, values)
            return time.perf_counter() - started

        return timed(ours, repeats * _SDK_BATCH, work)


def _tls(planned: Effort) -> list[Row]:
    """Rounds with and without TLS take turns, on two brokers."""
    with tempfile.TemporaryDirectory(prefix="flymq-bench-") as scratch:
        context, settings = _certificate(Path(scratch))
        with broker() as plain, broker(None, *settings) as encrypted:
            loads = [
                (_transfer(plain, planned, None), _transfer(encrypted, planned, context)) for _ in range(planned.rounds)
            ]
    rows = []
    for at, what in enumerate(("produce 100 B in 64 KB", "consume 100 B")):
        ours, beside = [tls[at] for _, tls in loads], [open_[at] for open_, _ in loads]
        rows.append(load_row(f"{what}, TLS", ours, peer="without TLS", beside=beside))
    return rows


def _transfer(server: Measured, planned: Effort, tls: ssl.SSLContext | None) -> tuple[Load, Load]:
    """Write and read back; TLS or not, the topic is made and checked over the same port."""
    batches = shape(100)
    count = planned.batches(batches.payload_bytes)
    bench = Bench(server.port, tls)
    topic, messages = bench.topic(), count * batches.records
    request = produce_bytes(topic, 0, batches.batch)
    produced = measure(server, [writer(connect(server.port, tls), request, count)], messages)
    bench.check_written(topic, messages)
    consumed = measure(server, [Reader(connect(server.port, tls), topic, 0, batches, messages)], messages)
    bench.drop(topic)
    bench.close()
    return produced, consumed


def _certificate(folder: Path) -> tuple[ssl.SSLContext, list[str]]:
    """Return what a client trusts, and the settings of a broker that shows it."""
    authority = trustme.CA()
    shown = authority.issue_cert("localhost", "127.0.0.1")
    shown.private_key_pem.write_to_path(folder / "key.pem")
    for number, piece in enumerate(shown.cert_chain_pems):
        piece.write_to_path(folder / "cert.pem", append=number > 0)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context, [f"tls.cert_file={folder / 'cert.pem'}", f"tls.key_file={folder / 'key.pem'}"]
