"""RabbitMQ: classic queues, quorum queues and streams of one server, over AMQP 0-9-1 with publisher confirms.

Debian's packages are unpacked, not installed; the server runs as a plain process in a folder of its own. Its streams
are used over AMQP like the queues: RabbitMQ has a protocol of its own for them, which is faster and not measured here.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.deliveries import Courier, Pair
from benchmarks.load import Stream
from benchmarks.peers import debian
from benchmarks.peers.amqp import AmqpConnection, Deliveries
from benchmarks.peers.contender import Contender, Promise, free_port, process
from benchmarks.peers.pipelining import Counted, Pipelined

_KINDS = {
    Promise.PROCESS: {"stream": "the page cache (defaults)"},
    Promise.MACHINE: {
        "classic": "durable, persistent messages: confirmed after an fsync, delivered before it",
        "quorum": "one member: confirmed and delivered after an fsync",
    },
}
_numbers = itertools.count()


class RabbitMQ:
    name = "RabbitMQ"

    def _home(self) -> Path | None:
        return next(iter((debian.unpacked() / "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*")), None)

    def missing(self) -> str | None:
        if self._home():
            return None
        return "Debian's rabbitmq-server is not in the cache directory: `python -m benchmarks.peers install`"

    def install(self) -> None:
        debian.unpack("rabbitmq-server")

    def version(self) -> str:
        home = self._home()
        assert home
        return home.name.partition("-")[2]

    @contextlib.contextmanager
    def running(self, promise: Promise, folder: Path) -> Iterator[list[Contender]]:
        home, port, names = self._home(), free_port(), free_port()
        assert home
        environment = _environment(folder, port, names)
        epmd = subprocess.Popen([_erlang() / "bin" / "epmd", "-port", str(names), "-address", "127.0.0.1"])
        try:
            with process([home / "sbin" / "rabbitmq-server", "-noinput"], port, folder, environment) as measured:
                yield [
                    Contender(f"{self.name} {kind}", settings, measured, partial(Queue, port, kind))
                    for kind, settings in _KINDS[promise].items()
                ]
        finally:
            epmd.terminate()
            epmd.wait()


def _erlang() -> Path:
    return next((debian.unpacked() / "usr/lib/erlang").glob("erts-*"))


def _environment(folder: Path, port: int, names: int) -> dict[str, str]:
    """Return settings that keep everything in `folder`, and an `erl` that starts from where Erlang was unpacked."""
    programs = folder / "bin"
    programs.mkdir()
    (folder / "plugins").write_text("[].")
    (folder / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\nlog.console = false\n")
    erl = programs / "erl"
    erl.write_text(
        f"#!/bin/sh\nexport ROOTDIR={_erlang().parent} BINDIR={_erlang()}/bin EMU=beam PROGNAME=erl\n"
        'exec "$BINDIR/erlexec" "$@"\n'
    )
    erl.chmod(0o755)
    return {
        **os.environ,
        **debian.environment(),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(names),
        "RABBITMQ_ALLOW_INPUT": "1",  # the server then replaces its shell, whose id we know
        "RABBITMQ_CONF_ENV_FILE": os.devnull,
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
    }


class Queue:
    """A queue or a stream with a name of its own."""

    def __init__(self, port: int, kind: str) -> None:
        self._port = port
        self._kind = kind
        self._name = f"bench-{next(_numbers)}"
        self._control = AmqpConnection(port)
        self._control.declare(self._name, kind)

    def producers(self, messages: int) -> Sequence[Stream]:
        channel = AmqpConnection(self._port)
        confirms = channel.confirmations()
        return [Pipelined(channel.connection, channel.publication(self._name), messages, confirms.feed)]

    def consumers(self, messages: int) -> Sequence[Stream]:
        channel = AmqpConnection(self._port)
        return [Counted(channel.connection, messages, b"", self._subscribe(channel).feed)]

    def courier(self) -> Courier:
        producer, consumer = AmqpConnection(self._port), AmqpConnection(self._port)
        producer.confirmations()
        arrived = self._subscribe(consumer)
        return Pair(producer.connection, consumer.connection, producer.publication(self._name), arrived.feed)

    def _subscribe(self, channel: AmqpConnection) -> Deliveries:
        """Take messages without acknowledging them; a stream insists on it, so it gets one for every few hundred."""
        return channel.consume(self._name, from_start=self._kind == "stream")

    def close(self) -> None:
        self._control.delete(self._name)
        self._control.connection.close()
