"""Clients that mean harm, each in a process of its own, so that they take no time from those that are measured.

    python -m tests.campaigns.attacks NAME PORT SEED SECONDS

They come from an address of their own, 127.0.0.2: what a broker keeps for each address is kept apart from others'.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from random import Random

from tests.campaigns.fuzz import corpus
from tests.campaigns.fuzz.engine import mutations

from flymq.wire.kafka.apis import Api
from flymq.wire.native.codec import encode_request
from flymq.wire.native.framing import frame_header
from flymq.wire.native.messages.records import Fetch, FetchPartition
from flymq.wire.native.messages.session import Authenticate, Hello
from flymq.wire.native.messages.topics import Metadata
from flymq.wire.native.opcodes import Opcode

ADDRESS = "127.0.0.2"
TOPIC = "served"
MIB = 1 << 20
HTTP_HEAD = b"POST /api/v1/topics/served/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

Attack = Callable[[int, Random, float], None]


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=5, source_address=(ADDRESS, 0))


def kafka_request(api: int, version: int, body: bytes) -> bytes:
    request = api.to_bytes(2) + version.to_bytes(2) + (7).to_bytes(4) + b"\x00\x03bad" + body
    return len(request).to_bytes(4) + request


class Crowd:
    """Connections that are kept, and made again when the broker closes them. Each sends so many bytes at most."""

    def __init__(self, port: int, count: int, first: bytes = b"", bytes_max: int = 1 << 60) -> None:
        self._port = port
        self._first = first
        self._bytes_max = bytes_max
        self._sockets: list[socket.socket | None] = [None] * count
        self._sent = [0] * count

    def send(self, piece: bytes) -> None:
        """Send a piece on each, as much as is taken without waiting."""
        for at, connection in enumerate(self._sockets):
            try:
                if connection is None:
                    connection = connect(self._port)
                    connection.sendall(self._first)
                    connection.setblocking(False)
                    self._sockets[at] = connection
                    self._sent[at] = 0
                self._sent[at] += connection.send(piece[: self._bytes_max - self._sent[at]])
            except BlockingIOError:
                continue
            except OSError:
                if connection is not None:
                    connection.close()
                self._sockets[at] = None


def _until(deadline: float, pause_s: float) -> Iterator[None]:
    while time.monotonic() < deadline:
        yield
        time.sleep(pause_s)


# --- requests that never end -----------------------------------------------------------------------------------------


def _unfinished(first: bytes, count: int, piece: bytes = b"\0" * MIB, bytes_max: int = 1 << 60) -> Attack:
    """Begin a large request on each connection, send nearly all of it, and wait."""

    def attack(port: int, chance: Random, deadline: float) -> None:
        crowd = Crowd(port, count, first, bytes_max)
        for _ in _until(deadline, 0.02):
            crowd.send(piece[: chance.randint(1, len(piece))])

    return attack


def _slow(request: bytes, count: int = 200) -> Attack:
    """Send a good request, a byte at a time."""

    def attack(port: int, _chance: Random, deadline: float) -> None:
        crowd = Crowd(port, count)
        for at, _ in enumerate(_until(deadline, 0.05)):
            crowd.send(request[at % len(request) : at % len(request) + 1])

    return attack


# --- floods ----------------------------------------------------------------------------------------------------------


def garbage(port: int, chance: Random, deadline: float) -> None:
    """Noise on new connections, as long as they live."""
    for _ in _until(deadline, 0.001):
        with contextlib.suppress(OSError), connect(port) as connection:
            connection.sendall(chance.randbytes(chance.choice((1, 7, 100, 70_000))))


def mutated(port: int, chance: Random, deadline: float) -> None:
    """Requests of every protocol with a few bytes changed, one after the other."""
    streams = [mutations(corpus.read(name), chance) for name in ("native-stream", "kafka-stream")]
    bodies = mutations(corpus.read("kafka"), chance)
    https = mutations([data[1:] for data in corpus.read("http")], chance)
    for _ in _until(deadline, 0.001):
        with contextlib.suppress(OSError), connect(port) as connection:
            connection.settimeout(0.05)
            body = next(bodies)
            if len(body) > 2:
                connection.sendall(kafka_request(body[0], body[1], body[2:]))
            connection.sendall(next(chance.choice([*streams, https])))
            connection.recv(100)


def connects(port: int, _chance: Random, deadline: float) -> None:
    """Connect and leave, as fast as it goes."""
    for _ in _until(deadline, 0):
        with contextlib.suppress(OSError):
            connect(port).close()


def idle(port: int, _chance: Random, deadline: float) -> None:
    """Very many connections that say nothing."""
    crowd = Crowd(port, 3_000)
    for _ in _until(deadline, 0.5):
        crowd.send(b"")


def logins(port: int, _chance: Random, deadline: float) -> None:
    """Guess passwords, very many at once on each connection."""
    guess = bytes(encode_request(Authenticate(username="ada", password="guess")))
    for _ in _until(deadline, 0.01):
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for _ in range(10):
                connection = stack.enter_context(connect(port))
                connection.sendall(bytes(encode_request(Hello())) + guess * 500)
            time.sleep(min(1.0, max(0.0, deadline - time.monotonic())))


# --- large things ----------------------------------------------------------------------------------------------------


def _repeated(request: bytes, wait_s: float = 2.0) -> Attack:
    """Send one request again and again, and wait a while for the answer."""

    def attack(port: int, _chance: Random, deadline: float) -> None:
        for _ in _until(deadline, 0.01):
            with contextlib.suppress(OSError), connect(port) as connection:
                connection.settimeout(wait_s)
                connection.sendall(request)
                while connection.recv(1 << 20) and time.monotonic() < deadline:
                    pass

    return attack


def kafka_names(port: int, chance: Random, deadline: float) -> None:
    """Metadata of a million topics."""
    count = 1_000_000
    _repeated(kafka_request(Api.METADATA, 1, count.to_bytes(4) + b"\x00\x05topic" * count))(port, chance, deadline)


def native_names(port: int, chance: Random, deadline: float) -> None:
    """Metadata of a million topics, natively."""
    _repeated(bytes(encode_request(Metadata(topics=["topic"] * 1_000_000))))(port, chance, deadline)


def endless_arrays(port: int, chance: Random, deadline: float) -> None:
    """Arrays that claim to have two billion elements."""
    for api in Api:
        for version in (0, 1, 3, 9, 12):
            request = kafka_request(api, version, b"\x7f\xff\xff\xff" * 8)
            if time.monotonic() < deadline:
                _repeated(request, wait_s=0.05)(port, chance, min(deadline, time.monotonic() + 0.05))


def non_readers(port: int, _chance: Random, deadline: float) -> None:
    """Ask for much, and never read it."""
    native = bytes(encode_request(Fetch(partitions=[FetchPartition(TOPIC, 0, 0, max_bytes=MIB)], max_bytes=MIB)))
    partition = (0).to_bytes(4) + (0).to_bytes(8) + MIB.to_bytes(4)
    topic = b"\x00\x06" + TOPIC.encode() + (1).to_bytes(4) + partition
    body = b"\xff\xff\xff\xff" + (0).to_bytes(4) + (1).to_bytes(4) + MIB.to_bytes(4) + b"\0" + (1).to_bytes(4) + topic
    kafka = kafka_request(Api.FETCH, 4, body)
    http = b"GET /api/v1/topics/served/partitions/0/records?offset=0 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    crowds = [(Crowd(port, 30), request * 20) for request in (native, kafka, http)]
    for _ in _until(deadline, 0.02):
        for crowd, requests in crowds:
            crowd.send(requests)


ATTACKS: dict[str, Attack] = {
    "unfinished native requests": _unfinished(frame_header(Opcode.PRODUCE_BATCH, 63 * MIB), 8, bytes_max=62 * MIB),
    "unfinished kafka requests": _unfinished((63 * MIB).to_bytes(4) + b"\x00\x00\x00\x09", 8, bytes_max=62 * MIB),
    "unfinished http bodies": _unfinished(
        HTTP_HEAD + b"Content-Length: %d\r\n\r\n[" % (15 * MIB), 120, b" " * MIB, bytes_max=14 * MIB
    ),
    "endless http heads": _unfinished(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ", 100, b"x" * 4096),
    "endless chunks": _unfinished(HTTP_HEAD + b"Transfer-Encoding: chunked\r\n\r\n", 50, b"1\r\n \r\n" * 9_000),
    "half-open tls": _unfinished(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 200, b"\0"),
    "slow native": _slow(bytes(encode_request(Hello()))),
    "slow kafka": _slow(kafka_request(Api.METADATA, 1, b"\xff\xff\xff\xff")),
    "slow http": _slow(HTTP_HEAD + b"Content-Length: 2\r\n\r\n{}"),
    "garbage": garbage,
    "mutated requests": mutated,
    "connects": connects,
    "idle connections": idle,
    "logins": logins,
    "kafka names": kafka_names,
    "native names": native_names,
    "endless arrays": endless_arrays,
    "non-readers": non_readers,
}


def main(arguments: Sequence[str]) -> None:
    name, port, seed, seconds = arguments
    ATTACKS[name](int(port), Random(int(seed)), time.monotonic() + float(seconds))


if __name__ == "__main__":
    main(sys.argv[1:])
