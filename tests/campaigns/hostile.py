"""Attack a broker with hostile clients, and see whether well-behaved ones beside them are served.

    python -m tests.campaigns.hostile --rounds 18 --seconds 30
    python -m tests.campaigns.hostile --attack logins --rounds 1

Seeds that follow each other go through all attacks (attacks.py). Beside each, clients of the native protocol, of
Kafka's and of HTTP write and read; every one of their requests must be answered, and within a bound. The broker's
memory stays under a bound, its log has no traceback, and it stops in good order.
"""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import trustme
from benchmarks.figures import percentile
from benchmarks.raw_client import RawClient
from kio.schema.metadata import v1 as metadata
from kio.schema.types import TopicName
from tests.broker_process import BrokerProcess
from tests.campaigns import rounds
from tests.campaigns.attacks import ATTACKS, TOPIC
from tests.campaigns.rounds import Report
from tests.clients.kafka.raw import RawKafka

from flymq.broker.access.passwords import hash_password
from flymq.model.delivery import Acks
from flymq.record.batch import encode_batch
from flymq.wire.native.messages.records import Fetch, FetchPartition, PartitionBatches, ProduceBatch
from flymq.wire.native.messages.session import ErrorAnswer
from flymq.wire.native.messages.topics import CreateTopic

MEMORY_BYTES_MAX = 768 << 20
"""limits.buffer_bytes_max is 256 MiB; the rest is the process itself, what waits in sockets, and air."""
ANSWER_S_MAX = 20.0
"""Far more than any request takes on a busy machine, far less than an outage."""
RECONNECT_EVERY = 10


class WellBehaved(threading.Thread):
    """A client that sends one small request after the other, on a new connection now and then."""

    def __init__(self, name: str, once: Callable[[Any], None], connect: Callable[[], Any]) -> None:
        super().__init__(name=name, daemon=True)
        self._once = once
        self._connect = connect
        self._stopping = threading.Event()
        self.seconds: list[float] = []
        self.failures: list[str] = []

    def run(self) -> None:
        connection: Any = None
        while not self._stopping.wait(0.02) and len(self.failures) < 5:
            started = time.monotonic()
            try:
                if connection is None or len(self.seconds) % RECONNECT_EVERY == 0:
                    if connection is not None:
                        connection.close()
                    connection = self._connect()
                self._once(connection)
            except (OSError, http.client.HTTPException, AssertionError) as error:
                self.failures.append(f"not served: {self.name} after {time.monotonic() - started:.1f} s: {error!r}")
                connection = None
            self.seconds.append(time.monotonic() - started)
        if connection is not None:
            connection.close()

    def stop(self) -> None:
        self._stopping.set()
        self.join(2 * ANSWER_S_MAX)
        if self.is_alive():
            self.failures.append(f"not served: {self.name} still waits for an answer")


def well_behaved(port: int) -> list[WellBehaved]:
    """Return a client of each protocol."""

    def native() -> RawClient:
        client = RawClient(port)
        client.socket.settimeout(ANSWER_S_MAX)
        return client

    def produce_and_fetch(client: RawClient) -> None:
        batch = bytes(encode_batch([(b"key", b"value" * 20)]))
        written = client.ask(ProduceBatch(partitions=[PartitionBatches(TOPIC, 0, batch)], acks=Acks.ALL))
        assert not isinstance(written, ErrorAnswer) and written.partitions[0].error is None, written
        fetched = client.ask(Fetch(partitions=[FetchPartition(TOPIC, 0, written.partitions[0].base_offset)]))
        assert not isinstance(fetched, ErrorAnswer) and fetched.partitions[0].error is None, fetched

    def kafka() -> Any:
        client = RawKafka(port)
        client.socket.settimeout(ANSWER_S_MAX)
        client.close = client.socket.close  # type: ignore[attr-defined]
        return client

    def ask_metadata(client: RawKafka) -> None:
        request = metadata.MetadataRequest(topics=(metadata.request.MetadataRequestTopic(name=TopicName(TOPIC)),))
        answer = client.ask(request, metadata.MetadataResponse)
        assert len(answer.topics[0].partitions) == 1, answer

    def post(client: http.client.HTTPConnection) -> None:
        body = json.dumps({"records": [{"value": "x"}]})
        client.request("POST", f"/api/v1/topics/{TOPIC}/records", body, {"Content-Type": "application/json"})
        answer = client.getresponse()
        text = answer.read()
        assert answer.status < 300, (answer.status, text)

    return [
        WellBehaved("native", produce_and_fetch, native),
        WellBehaved("kafka", ask_metadata, kafka),
        WellBehaved("http", post, lambda: http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S_MAX)),
    ]


def start_broker(folder: Path) -> BrokerProcess:
    """Start a broker with TLS and a user, and with something to read."""
    certificate = trustme.CA().issue_cert("localhost")
    certificate.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    hashed = hash_password("secret", salt=b"0123456789abcdef")
    (folder / "flymq.toml").write_text(f'[auth]\nplain_without_tls = true\n[auth.users]\nada = "{hashed}"\n')
    settings = {"tls.cert_file": folder / "cert.pem", "tls.key_file": folder / "key.pem"}
    log = folder / "broker.log"
    broker = BrokerProcess(folder / "data", settings, log=log, config_file=folder / "flymq.toml")
    client = RawClient(broker.port)
    client.socket.settimeout(ANSWER_S_MAX)
    client.ask(CreateTopic(topic=TOPIC, partitions=1))
    batch = bytes(encode_batch([(None, bytes(100_000))] * 8))
    for _ in range(10):
        answer = client.ask(ProduceBatch(partitions=[PartitionBatches(TOPIC, 0, batch)]))
        assert answer.partitions[0].error is None
    client.close()
    return broker


def attack(name: str, seed: int, folder: Path, seconds: float) -> Report:
    """Let one attack run, and judge."""
    broker = start_broker(folder)
    try:
        clients = well_behaved(broker.port)
        for client in clients:
            client.start()
        command = [sys.executable, "-m", "tests.campaigns.attacks", name, str(broker.port), str(seed), str(seconds)]
        peak = broker.resident_bytes
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as attacker:
            while attacker.poll() is None and broker.is_running:
                peak = max(peak, broker.resident_bytes)
                time.sleep(0.05)
            attacker.kill()
        for client in clients:
            client.stop()
        violations = [failure for client in clients for failure in client.failures]
        violations += [
            f"slow: a request of {client.name} took {max(client.seconds):.1f} s"
            for client in clients
            if client.seconds and max(client.seconds) > ANSWER_S_MAX
        ]
        if peak > MEMORY_BYTES_MAX:
            violations.append(f"memory: the broker took {peak >> 20} MiB")
        violations += _judge_end(broker)
    finally:
        if broker.is_running:
            broker.kill()
    times = sorted(second for client in clients for second in client.seconds) or [0.0]
    figures = {f"p{at}, ms": round(1000 * percentile(times, at / 100), 1) for at in (50, 99)}
    figures |= {"max, ms": round(1000 * times[-1], 1)}
    return Report(violations, {"attack": f"{name:27}", "requests": len(times), **figures, "memory, MiB": peak >> 20})


def _judge_end(broker: BrokerProcess) -> list[str]:
    violations = []
    if not broker.is_running:
        violations.append("the broker has ended")
    elif broker.stop() != 0:
        violations.append("the broker did not stop in good order")
    if "Traceback" in broker.log_text:
        violations.append("the broker's log has a traceback")
    return violations


def main(arguments: Sequence[str] | None = None) -> int:
    parser = rounds.options("hostile", __doc__ or "", rounds=len(ATTACKS))
    parser.set_defaults(seed=0)
    parser.add_argument("--attack", choices=list(ATTACKS), help="one attack; all in turn")
    parser.add_argument("--seconds", type=float, default=15, help="how long each attack lasts")

    def run_round(seed: int, folder: Path, given: argparse.Namespace) -> Report:
        name = given.attack or list(ATTACKS)[seed % len(ATTACKS)]
        return attack(name, seed, folder, given.seconds)

    return rounds.run(parser, run_round, arguments)


if __name__ == "__main__":
    sys.exit(main())
