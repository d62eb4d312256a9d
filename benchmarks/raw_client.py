"""A load generator that is not the bottleneck: prepared requests on a plain socket."""

from __future__ import annotations

import ssl
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.figures import percentile as percentile
from benchmarks.load import connect
from flymq.record.batch import encode_batch
from flymq.wire.native.codec import decode_answer, encode_request
from flymq.wire.native.framing import HEADER, HEADER_SIZE
from flymq.wire.native.messages.fields import Message
from flymq.wire.native.messages.records import PartitionBatches, ProduceBatch


class RawClient:
    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.socket = connect(port, tls)

    def ask(self, request: Message) -> Any:
        """Return the answer, of the type that fits the request, or an `ErrorAnswer`."""
        self.socket.sendall(encode_request(request))
        return self.receive()

    def receive(self) -> Any:
        opcode, length = HEADER.unpack(self.receive_exactly(HEADER_SIZE))[2:]
        return decode_answer(opcode, self.receive_exactly(length))

    def receive_exactly(self, count: int) -> bytearray:
        data = bytearray(count)
        view = memoryview(data)
        while view:
            received = self.socket.recv_into(view)
            if not received:
                raise ConnectionError("the server closed the connection")
            view = view[received:]
        return data

    def receive_frames(self, count: int) -> None:
        """Receive `count` responses without decoding them."""
        rest = b""
        while count:
            rest += self.socket.recv(1 << 18)
            position = 0
            while count and len(rest) - position >= HEADER_SIZE:
                end = position + HEADER_SIZE + HEADER.unpack_from(rest, position)[3]
                if end > len(rest):
                    break
                position = end
                count -= 1
            rest = rest[position:]
        assert not rest, "more came than was asked for"

    def flood(self, request: bytes, count: int, *, inflight: int) -> float:
        """Send `request` repeatedly, with a fixed number in flight; return the elapsed seconds."""
        burst = request * inflight
        started = time.perf_counter()
        for done in range(0, count, inflight):
            now = min(inflight, count - done)
            self.socket.sendall(burst[: now * len(request)])
            self.receive_frames(now)
        return time.perf_counter() - started

    def round_trips(self, request: bytes, count: int) -> list[float]:
        """Return the sorted latencies of single requests, in seconds."""
        times = []
        for _ in range(count):
            started = time.perf_counter()
            self.socket.sendall(request)
            self.receive_frames(1)
            times.append(time.perf_counter() - started)
        return sorted(times)

    def close(self) -> None:
        self.socket.close()


def produce_request(topic: str, records: Sequence[tuple[bytes | None, bytes]], partition: int = 0) -> bytes:
    """Return the bytes of a request with one batch."""
    batch = bytes(encode_batch(records, timestamp_ms=int(time.time() * 1000)))
    return bytes(encode_request(ProduceBatch(id=1, partitions=[PartitionBatches(topic, partition, batch)])))
