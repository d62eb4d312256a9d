"""The little of AMQP 0-9-1 that a load needs, on a plain socket. Pika's classes make the bytes of its methods."""

from __future__ import annotations

from collections.abc import Callable

from pika import BasicProperties, frame, spec

from benchmarks.load import Occurrences, connect
from benchmarks.peers.contender import MESSAGE_BYTES

_HEADER_BYTES = 7
_CHANNEL = 1
_UNACKNOWLEDGED_MAX = 2000
_PERSISTENT = 2


class AmqpConnection:
    """A connection with one open channel."""

    def __init__(self, port: int) -> None:
        self.connection = connect(port)
        self.connection.sendall(frame.ProtocolHeader().marshal())
        self._receive()
        plain = spec.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US")
        self._ask(plain, channel=0)
        self._tell(spec.Connection.TuneOk(channel_max=16, frame_max=131_072, heartbeat=0), channel=0)
        self._ask(spec.Connection.Open("/"), channel=0)
        self._ask(spec.Channel.Open())

    def declare(self, name: str, kind: str) -> None:
        self._ask(spec.Queue.Declare(queue=name, durable=True, arguments={"x-queue-type": kind}))

    def delete(self, name: str) -> None:
        self._ask(spec.Queue.Delete(queue=name))

    def confirmations(self) -> Confirmations:
        """Ask for publisher confirms, and return what counts them."""
        self._ask(spec.Confirm.Select())
        return Confirmations()

    def publication(self, queue: str) -> bytes:
        """Return the bytes that publish one message to a queue."""
        properties = BasicProperties(delivery_mode=_PERSISTENT)
        frames = (
            frame.Method(_CHANNEL, spec.Basic.Publish(exchange="", routing_key=queue)),
            frame.Header(_CHANNEL, MESSAGE_BYTES, properties),
            frame.Body(_CHANNEL, b"x" * MESSAGE_BYTES),
        )
        return b"".join(one.marshal() for one in frames)

    def consume(self, queue: str, *, from_start: bool) -> Deliveries:
        """Begin to receive a queue; a stream is read from its start, and has to be acknowledged."""
        if not from_start:
            self._ask(spec.Basic.Consume(queue=queue, no_ack=True))
            return Deliveries(None)
        self._ask(spec.Basic.Qos(prefetch_count=_UNACKNOWLEDGED_MAX))
        self._ask(spec.Basic.Consume(queue=queue, arguments={"x-stream-offset": "first"}))
        return Deliveries(lambda tag: self._tell(spec.Basic.Ack(delivery_tag=tag, multiple=True)))

    def _tell(self, method: object, channel: int = _CHANNEL) -> None:
        self.connection.sendall(frame.Method(channel, method).marshal())

    def _ask(self, method: object, channel: int = _CHANNEL) -> None:
        self._tell(method, channel)
        self._receive()

    def _receive(self) -> None:
        """Take one frame; a refusal closes the channel or the connection, and is told as it came."""
        header = self._exactly(_HEADER_BYTES)
        body = self._exactly(int.from_bytes(header[3:7], "big") + 1)
        kind = body[:4]
        if kind in (b"\x00\x0a\x00\x32", b"\x00\x14\x00\x28"):
            raise RuntimeError(f"RabbitMQ refused: {body[6:]!r}")

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            received = self.connection.recv(count - len(data))
            if not received:
                raise ConnectionError("RabbitMQ closed the connection")
            data += received
        return data


class Confirmations:
    """Counts confirmed messages: an ack names the last of them, one by one or for all before it."""

    _ACK_BYTES = 4 + 8 + 1
    _FRAME_BYTES = _HEADER_BYTES + _ACK_BYTES + 1

    def __init__(self) -> None:
        self._rest = b""
        self._confirmed = 0

    def feed(self, data: memoryview) -> int:
        """Return how many more are confirmed; nothing but acks comes to a publisher."""
        before, text = self._confirmed, self._rest + data
        whole = len(text) // self._FRAME_BYTES * self._FRAME_BYTES
        for position in range(0, whole, self._FRAME_BYTES):
            at = position + _HEADER_BYTES + 4
            self._confirmed = max(self._confirmed, int.from_bytes(text[at : at + 8], "big"))
        self._rest = text[whole:]
        return self._confirmed - before


class Deliveries:
    """Counts delivered messages, and acknowledges some of them where that is wanted."""

    def __init__(self, acknowledge: Callable[[int], None] | None) -> None:
        self._found = Occurrences(b"\x00\x3c\x00\x3c")  # the class and the number of basic.deliver
        self._acknowledge = acknowledge
        self._arrived = 0
        self._acknowledged = 0

    def feed(self, data: memoryview) -> int:
        count = self._found.feed(data)
        self._arrived += count
        if self._acknowledge and self._arrived - self._acknowledged > _UNACKNOWLEDGED_MAX // 4:
            self._acknowledge(self._arrived)
            self._acknowledged = self._arrived
        return count
