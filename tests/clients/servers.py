"""Where a test of Kafka's ecosystem runs: on FlyMQ, and with FLYMQ_TEST_KAFKA=1 on Apache Kafka too, for comparison."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from benchmarks.peers.contender import Promise
from benchmarks.peers.kafka import Kafka

from flymq.testing import running_broker

FLYMQ, KAFKA = "flymq", "kafka"
SERVERS = [FLYMQ, KAFKA] if os.environ.get("FLYMQ_TEST_KAFKA") else [FLYMQ]


@dataclass(frozen=True, slots=True)
class Server:
    name: str
    address: str
    data_dir: Path
    broker_id: int


@contextmanager
def running_server(name: str, folder: Path) -> Iterator[Server]:
    if name == FLYMQ:
        with running_broker(folder) as broker:
            yield Server(name, broker.address, folder, 0)
        return
    kafka = Kafka()
    if missing := kafka.missing():
        pytest.skip(f"Apache Kafka: {missing}")
    with kafka.running(Promise.PROCESS, folder) as (contender,):
        yield Server(name, f"127.0.0.1:{contender.measured.port}", folder / "data", 1)
