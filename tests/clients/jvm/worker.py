"""A worker of Kafka Connect, distributed as in production, and its REST API."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.clients.jvm.java import Java
from tests.ports import free_port

_PROPERTIES = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "exactly.once.source.support": "enabled",
    # One replica for its own topics, since one broker runs.
    "config.storage.replication.factor": 1,
    "offset.storage.replication.factor": 1,
    "status.storage.replication.factor": 1,
    # The rest saves time.
    "offset.storage.partitions": 1,
    "status.storage.partitions": 1,
    "offset.flush.interval.ms": 500,
    "plugin.discovery": "service_load",
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 500,
    "scheduled.rebalance.max.delay.ms": 0,
}

_NOT_YET = (404, 409, 503)
"""It is not ready: it reads its topics, or a rebalance is under way."""


class Worker:
    def __init__(self, port: int, log: Path) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._log = log

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Call its REST API; wait while the worker starts, or rebalances."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        while True:
            request = urllib.request.Request(self._url + path, data, headers)
            try:
                with urllib.request.urlopen(request) as answer:
                    return json.loads(answer.read())
            except urllib.error.HTTPError as error:
                if error.code not in _NOT_YET:
                    raise AssertionError(f"{path}: {error.read().decode()}") from None
            except OSError:
                pass  # it does not listen yet
            time.sleep(0.1)

    def create(self, name: str, settings: Mapping[str, object]) -> None:
        config = {key: str(value) for key, value in settings.items()}
        self.ask("/connectors", {"name": name, "config": config})

    def state(self, name: str) -> list[str]:
        """The states of a connector and of its tasks."""
        told = self.ask(f"/connectors/{name}/status")
        return [told["connector"]["state"], *(task["state"] for task in told["tasks"])]


@contextmanager
def running_worker(java: Java, address: str, group: str, folder: Path) -> Iterator[Worker]:
    """Run a worker until the block ends, when it is killed."""
    port, log = free_port(), folder / f"{group}.log"
    own = {f"{kind}.storage.topic": f"{group}-{kind}" for kind in ("config", "offset", "status")}
    own |= {"bootstrap.servers": address, "group.id": group, "listeners": f"http://127.0.0.1:{port}"}
    properties = folder / f"{group}.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in {**_PROPERTIES, **own}.items()))
    with java.start("org.apache.kafka.connect.cli.ConnectDistributed", properties, log=log):
        yield Worker(port, log)
