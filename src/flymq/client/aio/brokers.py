"""The brokers of a cluster: their addresses, and one connection to each.

The first connection is to an address that the user gave. Metadata then tells the id and the advertised address of every
broker. An address where a broker was reached is kept, whatever it advertises: behind a forwarded port only that one
may work. Which broker answers is checked by its id: one address may lead to several of them.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from flymq.client.aio.connection import Connection, connect
from flymq.client.aio.failover import first_success
from flymq.client.metrics import Counters
from flymq.client.settings import Address, ConnectionConfig
from flymq.host.network import Network
from flymq.model.errors import BrokerUnavailable, ClientClosed
from flymq.wire.native.messages.topics import NO_BROKER

logger = logging.getLogger(__name__)

CONNECT_STAGGER_S = 0.25
"""How long to wait for one address before the next is tried as well."""


class Brokers:
    """Addresses and connections, shared by everything in one client."""

    def __init__(
        self, config: ConnectionConfig, counters: Counters, network: Network, *, expects_broker: bool = False
    ) -> None:
        self._config = config
        self._counters = counters
        self._network = network
        self._advertised: dict[int, Address] = {}
        self._reached: dict[int, Address] = {}  # where each broker has answered
        self._of_broker: dict[int, Connection] = {}
        self._connections: dict[Address, Connection] = {}
        self._connecting: dict[Address, asyncio.Task[Connection]] = {}
        self._warned: set[tuple[int, Address]] = set()
        self.was_reached = expects_broker
        """Whether any broker was ever reached. Then an outage is temporary."""
        self._is_closed = False

    def learn(self, broker: int, address: Address) -> None:
        """Note the address that a broker advertises."""
        self._advertised[broker] = address

    @property
    def has_others(self) -> bool:
        """Whether one broker can replace another."""
        return len(self._advertised) > 1 or len(self._reached) > 1 or len(self._config.addresses) > 1

    def open_connection(self, broker: int) -> Connection | None:
        """Return the connection to this broker if it is open; do not wait."""
        connection = self._of_broker.get(broker)
        return connection if connection is not None and connection.is_open else None

    async def connection(self, broker: int) -> Connection:
        """Return an open connection to this broker."""
        if (connection := self.open_connection(broker)) is not None:
            return connection
        addresses = [known[broker] for known in (self._reached, self._advertised) if broker in known]
        if not addresses:
            raise BrokerUnavailable(f"the address of broker {broker} is not known yet")
        attempts = [partial(self._connect_to, broker, address) for address in dict.fromkeys(addresses)]
        try:
            return await first_success(attempts, stagger_s=CONNECT_STAGGER_S)
        except BrokerUnavailable as error:
            if broker in self._reached or not self.was_reached:
                raise
            raise self._not_reachable_as_advertised(broker, error) from error

    async def any_connection(self) -> Connection:
        """Return an open connection to any broker, if possible to one that answers."""
        if connections := self.open_connections():
            return connections[0]
        addresses = self._all_addresses()
        return await first_success(
            [partial(self._connect, address) for address in addresses], stagger_s=CONNECT_STAGGER_S
        )

    def open_connections(self) -> list[Connection]:
        """Return one open connection to each broker, those that answer first."""
        found = {connection.broker: connection for connection in self._connections.values() if connection.is_open}
        return sorted(found.values(), key=Connection.silence_s) if len(found) > 1 else list(found.values())

    def unconnected(self) -> list[Address]:
        """Return the addresses that lead to no broker with an open connection, as far as is known."""
        connected = {connection.broker for connection in self.open_connections()}
        taken = {known[broker] for known in (self._reached, self._advertised) for broker in connected & known.keys()}
        taken |= {address for address, connection in self._connections.items() if connection.is_open}
        return [address for address in self._all_addresses() if address not in taken]

    async def connect(self, address: Address) -> Connection:
        return await self._connect(address)

    def abort(self) -> None:
        """Disconnect at once. Requests in flight fail."""
        self._is_closed = True
        for attempt in list(self._connecting.values()):
            attempt.cancel()
        for connection in self._connections.values():
            connection.close(ClientClosed())

    async def close(self) -> None:
        self.abort()
        await asyncio.gather(*self._connecting.values(), return_exceptions=True)
        await asyncio.sleep(0)  # let the loop call connection_lost
        self._connections.clear()
        self._of_broker.clear()

    # ----------------------------------------------------------------------------------------------------------------

    def _all_addresses(self) -> list[Address]:
        known = [*self._config.addresses, *self._reached.values(), *self._advertised.values()]
        return list(dict.fromkeys(known))

    async def _connect_to(self, broker: int, address: Address) -> Connection:
        connection = await self._connect(address)
        if connection.broker not in (broker, NO_BROKER):
            if self._reached.get(broker) == address:
                del self._reached[broker]
            raise BrokerUnavailable(f"at {connection} broker {connection.broker} answers, not broker {broker}")
        self._reached[broker] = address
        self._of_broker[broker] = connection
        return connection

    async def _connect(self, address: Address) -> Connection:
        """Return the connection to an address; concurrent calls share one attempt."""
        if self._is_closed:
            raise ClientClosed
        connection = self._connections.get(address)
        if connection is not None and connection.is_open:
            return connection
        attempt = self._connecting.get(address)
        if attempt is None:
            attempt = asyncio.get_running_loop().create_task(self._open(address), name="connect {}:{}".format(*address))
            self._connecting[address] = attempt
            attempt.add_done_callback(partial(self._attempted, address))
        return await asyncio.shield(attempt)

    def _attempted(self, address: Address, attempt: asyncio.Task[Connection]) -> None:
        self._connecting.pop(address, None)
        if not attempt.cancelled():
            attempt.exception()  # retrieve it: those who waited may have got a connection elsewhere

    async def _open(self, address: Address) -> Connection:
        connection = await connect(address, self._config, self._counters, self._network)
        if self._is_closed:
            connection.close()
            raise ClientClosed
        self._connections[address] = connection
        self.was_reached = True
        if connection.broker != NO_BROKER and self.open_connection(connection.broker) is None:
            self._reached[connection.broker] = address
            self._of_broker[connection.broker] = connection
        return connection

    def _not_reachable_as_advertised(self, broker: int, error: BrokerUnavailable) -> BrokerUnavailable:
        """Explain the most common mistake in the setup of a cluster; in the log too, as retries hide errors."""
        address = self._advertised[broker]
        message = "broker {} advertises {}:{}, which cannot be reached from here ({})".format(
            broker, *address, error.message
        )
        hint = (
            "If the broker is running, set its `listener.advertised_host` and `listener.advertised_port` to an address "
            "that clients can reach."
        )
        if (broker, address) not in self._warned:
            self._warned.add((broker, address))
            logger.warning("%s. %s", message, hint)
        return BrokerUnavailable(message, hint=hint if error.hint == BrokerUnavailable.hint else error.hint)
