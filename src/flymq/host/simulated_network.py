"""A network in memory: delays, cuts, slow links and lost connections, for simulation.

The address of a machine is its name. Between any two machines there is a link in each direction. The bytes of a
connection arrive in order, in random pieces, each after a delay. As with TCP, a cut link loses nothing that was sent:
it arrives when the link is restored, unless the connection was closed meanwhile. Randomness is passed in, so that a
seed can be replayed.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import random
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from flymq.host.network import Accepted, OpenPort
from flymq.model.errors import AddressInUse, ListenFailed

_WINDOW_BYTES = 256 << 10  # in flight and not yet read
_FIRST_FREE_PORT = 40_000
_SEND_AGAIN_S = 0.2

P = TypeVar("P", bound=asyncio.BaseProtocol)

Address = tuple[str, int | str]
"""A machine, and one of its ports or the path of a local socket."""


class _Signal(Enum):
    END = "end of the stream"
    RESET = "there is no such connection"


_Piece = bytes | _Signal


@dataclass(slots=True)
class Link:
    """One direction between two machines."""

    delay_s: float = 0.001
    """The mean delay; each piece has its own."""
    is_cut: bool = False


class SimulatedNetwork:
    """All links and connections. `machine(name)` is the `Network` of one machine."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.on_delivery: Callable[[str, str, bytes], None] = lambda source, target, data: None
        """Called with every piece that arrives, to record a history."""
        self.ports: dict[Address, SimulatedPort] = {}
        self.free_ports = count(_FIRST_FREE_PORT)
        self.stopped: set[str] = set()
        self._links: dict[tuple[str, str], Link] = {}
        self._ends: dict[SimulatedTransport, None] = {}

    def machine(self, name: str) -> SimulatedInterface:
        return SimulatedInterface(self, name)

    def link(self, source: str, target: str) -> Link:
        return self._links.setdefault((source, target), Link())

    # --- faults

    def cut(self, source: str, target: str) -> None:
        """Cut a link in one direction. For both directions, cut both."""
        self.link(source, target).is_cut = True

    def mend(self, source: str, target: str) -> None:
        """Restore a link; held pieces arrive."""
        self.link(source, target).is_cut = False
        for end in list(self._ends):
            if (end.peer_host, end.host) == (source, target):
                end.arrive_again()

    def slow(self, source: str, target: str, delay_s: float) -> None:
        self.link(source, target).delay_s = delay_s

    def connections(self, *machines: str) -> list[SimulatedTransport]:
        """Return the client ends of the open connections between these machines."""
        return [end for end in self._ends if end.is_client and {end.host, end.peer_host} & set(machines)]

    def reset(self, machine: str) -> None:
        """Close every connection of a machine: both ends are notified at once."""
        for end in self.connections(machine):
            end.reset()

    def stop(self, machine: str, *, is_heard: bool) -> None:
        """Take a machine off the network: its connections never do anything again.

        Peers are notified, as by the kernel of a killed process; or not, as after a power failure, until they send
        something to the restarted machine.
        """
        self.stopped.add(machine)
        for address in [address for address in self.ports if address[0] == machine]:
            self.ports.pop(address).is_open = False
        for end in [end for end in self._ends if end.host == machine]:
            end.vanish(is_heard=is_heard)

    def start(self, machine: str) -> None:
        """Connect a machine to the network again."""
        self.stopped.discard(machine)

    # --- for transports

    def attach(self, end: SimulatedTransport) -> None:
        self._ends[end] = None

    def detach(self, end: SimulatedTransport) -> None:
        self._ends.pop(end, None)

    def delay_s(self, source: str, target: str) -> float:
        return self.chance.expovariate(1 / self.link(source, target).delay_s)


class SimulatedPort:
    def __init__(self, network: SimulatedNetwork, address: Address, accept: Callable[[Accepted], None]) -> None:
        self._network = network
        self._address = address
        self._accept = accept
        self._context = contextvars.copy_context()
        self.port = address[1] if isinstance(address[1], int) else 0
        self.is_open = True
        self.is_refused = False

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            del self._network.ports[self._address]

    def accept(self, end: SimulatedTransport) -> None:
        """Accept a connection."""
        end.context = self._context
        asyncio.get_running_loop().call_soon(self._accept, SimulatedAccepted(end), context=self._context)


class SimulatedAccepted:
    def __init__(self, end: SimulatedTransport) -> None:
        self._end = end
        self.peer_host = end.peer_host

    async def begin(self, protocol: asyncio.BaseProtocol, *, tls: ssl.SSLContext | None, within_s: float) -> None:
        assert tls is None, "a simulated connection is not encrypted"
        if self._end.is_closing():
            raise ConnectionResetError(errno.ECONNRESET, "the connection is closed already")
        self._end.begin(protocol)

    def close(self) -> None:
        self._end.abort()


class SimulatedInterface:
    """The `Network` of one machine."""

    def __init__(self, network: SimulatedNetwork, name: str) -> None:
        self._network = network
        self._name = name

    async def listen(self, host: str, port: int, backlog: int, accept: Callable[[Accepted], None]) -> OpenPort:
        if host not in (self._name, "", "0.0.0.0", "::"):
            raise ListenFailed(f"cannot listen on {host!r}: this machine is {self._name!r}")
        return self._listen((self._name, port or next(self._network.free_ports)), accept)

    async def connect(self, new_protocol: Callable[[], P], host: str, port: int, tls: ssl.SSLContext | None) -> P:
        assert tls is None, "a simulated connection is not encrypted"
        return await self._connect(new_protocol, host, port)

    async def listen_local(self, path: Path, backlog: int, accept: Callable[[Accepted], None]) -> OpenPort:
        return self._listen((self._name, str(path)), accept)

    async def connect_local(self, new_protocol: Callable[[], P], path: Path) -> P:
        return await self._connect(new_protocol, self._name, str(path))

    def _listen(self, address: Address, accept: Callable[[Accepted], None]) -> OpenPort:
        if address in self._network.ports:
            raise AddressInUse(f"{address[1]} on {address[0]} is in use")
        opened = self._network.ports[address] = SimulatedPort(self._network, address, accept)
        return opened

    async def _connect(self, new_protocol: Callable[[], P], host: str, port: int | str) -> P:
        await self._travel(self._name, host)
        listening = self._network.ports.get((host, port))
        await self._travel(host, self._name)
        if listening is None or not listening.is_open:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"connection refused by {host}:{port}")
        protocol = new_protocol()
        ours = SimulatedTransport(self._network, (self._name, next(self._network.free_ports)), (host, port))
        theirs = SimulatedTransport(self._network, (host, port), ours.address)
        ours.peer, theirs.peer = theirs, ours
        ours.is_client = True
        listening.accept(theirs)
        ours.begin(protocol)
        return protocol

    async def _travel(self, source: str, target: str) -> None:
        """Wait for the delay of a packet; while the link is cut, it is retransmitted."""
        await asyncio.sleep(self._network.delay_s(source, target))
        while self._network.link(source, target).is_cut or target in self._network.stopped:  # noqa: ASYNC110
            await asyncio.sleep(_SEND_AGAIN_S)


class SimulatedTransport(asyncio.Transport):
    """One end of a connection.

    write → unsent → (window) → in flight, each piece with a time  → received → protocol
             |                                     |                    |
      pause_writing above a limit            held by a cut       held by pause_reading
    """

    def __init__(self, network: SimulatedNetwork, address: Address, peer_address: Address) -> None:
        super().__init__()
        self.address = address
        self.host = address[0]
        self.peer_host = peer_address[0]
        self.peer: SimulatedTransport
        self.is_client = False
        self.context = contextvars.copy_context()
        self._network = network
        self._loop = asyncio.get_running_loop()
        self._addresses = {"peername": peer_address, "sockname": address}
        self._protocol: asyncio.BaseProtocol | None = None
        self._unsent = bytearray()
        self._high, self._low = 64 << 10, 16 << 10
        self._has_paused_writer = False
        self._window = _WINDOW_BYTES  # how much more may be sent before the peer reads
        self._on_its_way: deque[_Piece] = deque()  # in flight to this end
        self._held_up = 0  # how many of them are held by a cut
        self._last_arrival_s = 0.0
        self._received: deque[bytes] = deque()
        self._is_paused = False
        self._has_eof = False  # the peer has sent EOF
        self._sends_eof = False
        self._has_sent_eof = False
        self._is_closing = False
        self._is_gone = False
        network.attach(self)

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """Call `connection_made`, then deliver what was received meanwhile."""
        self.context = contextvars.copy_context()
        self._protocol = protocol
        protocol.connection_made(self)
        self._soon(self._hand_over)

    # --- called by the protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._addresses.get(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def is_reading(self) -> bool:
        return not self._is_paused and not self._is_closing

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._soon(self._hand_over)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = (64 << 10 if low is None else 4 * low) if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._is_closing:
            return
        assert not self._sends_eof, "write after EOF"
        self._unsent += data
        self._send()
        if len(self._unsent) > self._high and not self._has_paused_writer:
            self._has_paused_writer = True
            self.get_protocol().pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._sends_eof:
            self._sends_eof = True
            self._send()

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """Flush, then close."""
        if not self._is_closing:
            self._is_closing = True
            self.write_eof()
            if not self._unsent:
                self._soon(self._lose, None)

    def abort(self) -> None:
        """Close at once. Sent bytes still arrive; if received bytes are unread, it is a reset, as with TCP."""
        if self._is_gone:
            return
        self._is_closing = True
        self._unsent.clear()
        if self._received:
            self._give(_Signal.RESET)
        self.write_eof()
        self._soon(self._lose, None)

    # --- send

    def _send(self) -> None:
        """Send what the window allows, in pieces."""
        while self._unsent and self._window > 0 and not self._is_gone:
            size = min(len(self._unsent), self._window)
            if self._network.chance.random() < 0.1:
                size = self._network.chance.randint(1, size)
            self._window -= size
            self._give(bytes(self._unsent[:size]))
            del self._unsent[:size]
        if self._has_paused_writer and len(self._unsent) <= self._low:
            self._has_paused_writer = False
            self._soon(self._resume_writing)
        if self._sends_eof and not self._unsent and not self._has_sent_eof:
            self._has_sent_eof = True
            self._give(_Signal.END)
            if self._is_closing:
                self._soon(self._lose, None)

    def _resume_writing(self) -> None:
        if not self._is_gone:
            self.get_protocol().resume_writing()

    def _give(self, piece: _Piece) -> None:
        peer, network = self.peer, self._network
        peer._on_its_way.append(piece)
        at_s = max(peer._last_arrival_s, self._loop.time() + network.delay_s(self.host, self.peer_host))
        peer._last_arrival_s = at_s
        self._loop.call_at(at_s, peer._arrive, context=peer.context)

    # --- receive

    def _arrive(self) -> None:
        """Receive the next piece."""
        is_cut = self._network.link(self.peer_host, self.host).is_cut
        if not self._on_its_way:  # a reset came first
            return
        if (is_cut or self._held_up) and not self._is_gone:
            self._held_up += 1
            return
        piece = self._on_its_way.popleft()
        if self._is_gone:
            is_heard = isinstance(piece, bytes) and not is_cut and self.host not in self._network.stopped
            if is_heard:
                self._give(_Signal.RESET)  # this end is closed
        elif piece is _Signal.RESET:
            self.fail()
        else:
            if piece is _Signal.END:
                self._has_eof = True
            else:
                self._network.on_delivery(self.peer_host, self.host, piece)
                self._received.append(piece)
            self._hand_over()

    def arrive_again(self) -> None:
        """The link is restored."""
        held_up, self._held_up = self._held_up, 0
        for _ in range(held_up):
            self._soon(self._arrive)

    def _hand_over(self) -> None:
        """Deliver received bytes while the protocol reads."""
        while self._received and self._protocol is not None and not self._is_paused and not self._is_closing:
            piece = self._received.popleft()
            self.peer._widen(len(piece))
            self._feed(piece)
        if self._has_eof and not self._received and self._protocol is not None and not self._is_closing:
            self._has_eof = False
            if not self._protocol.eof_received():  # type: ignore[attr-defined]
                self.close()

    def _feed(self, piece: bytes) -> None:
        rest = memoryview(piece)
        while rest and not self._is_closing:
            protocol = self._protocol
            if not isinstance(protocol, asyncio.BufferedProtocol):
                protocol.data_received(bytes(rest))  # type: ignore[union-attr]
                return
            room = memoryview(protocol.get_buffer(len(rest)))
            size = min(len(room), len(rest))
            room[:size] = rest[:size]
            protocol.buffer_updated(size)
            rest = rest[size:]

    def _widen(self, size: int) -> None:
        self._window += size
        self._send()

    # --- close

    def reset(self) -> None:
        """Drop the connection at both ends, with everything in flight."""
        for end in (self, self.peer):
            end._on_its_way.clear()
            end._received.clear()
            end._soon(end.fail)

    def fail(self) -> None:
        """The peer has reset the connection."""
        self._is_closing = True
        self._unsent.clear()
        self._lose(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def vanish(self, *, is_heard: bool) -> None:
        """Vanish with the machine: the protocol is not notified, the peer perhaps."""
        self._is_closing = self._is_gone = True
        self._unsent.clear()
        self._received.clear()
        self._protocol = None
        self.context = contextvars.Context()  # later pieces reach the restarted machine
        self._network.detach(self)
        if is_heard:
            self._give(_Signal.RESET)

    def _lose(self, error: Exception | None) -> None:
        if not self._is_gone:
            self._is_gone = True
            self._network.detach(self)
            if self._protocol is not None:
                self._protocol.connection_lost(error)

    def _soon(self, what: Callable[..., None], *args: Any) -> None:
        self._loop.call_soon(what, *args, context=self.context)
