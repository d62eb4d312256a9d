"""Assemble a broker, start it and shut it down cleanly. There is no framework: read it top down.

Everything it knows of the outside world is the `Host` it is given: production, the broker of `flymq.testing` and the
simulation are wired here alike.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import AsyncExitStack
from pathlib import Path

from flymq.broker.replicas.maintenance import Maintenance, MaintenanceIntervals
from flymq.broker.replicas.scrubbing import Scrubber
from flymq.broker.service.accounts import Accounts
from flymq.broker.service.quota import ClientQuota
from flymq.broker.service.service import Service
from flymq.cluster.brokers import Listener as Address
from flymq.gateways.budget import BufferBudget
from flymq.gateways.connection import ConnectionLimits, SharedByConnections
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.handlers import HANDLERS as KAFKA_HANDLERS
from flymq.gateways.listener import FIRST_BYTES_TIMEOUT_S, Gateway, Listener, ListenerLimits
from flymq.gateways.native.connection import NativeConnection, speaks_native
from flymq.gateways.native.handlers import HANDLERS as NATIVE_HANDLERS
from flymq.gateways.rest.http.app import Rest, RestSettings, build_app
from flymq.gateways.rest.http.connection import http_connections, speaks_http
from flymq.gateways.rest.schema.operation_table import OPERATIONS
from flymq.host.host import Host
from flymq.host.tasks import Tasks
from flymq.model.errors import AddressInUse, FsyncFailed, InvalidSetting
from flymq.server.cluster_member import ClusterMember
from flymq.server.config import HTTP_PORT, NO_PORT, ClientAuth, Config, TlsSettings
from flymq.server.monitoring.fsync_timing import TimedThreads
from flymq.server.monitoring.health import Phase
from flymq.server.monitoring.monitor import Monitor
from flymq.server.open_broker import Workplace, open_broker
from flymq.wire.kafka.framing import speaks_kafka

logger = logging.getLogger(__name__)

_STOP_WITHIN_S = 5.0
_CLOSE_S_MIN = 1.0


def assemble(host: Host, config: Config) -> Server:
    """Return a broker that is ready to be started on this machine. There is no other way to make one."""
    return Server(host, config)


class Server:
    """One broker, from start to stop."""

    def __init__(self, host: Host, config: Config) -> None:
        self.config = config
        self.port = 0
        self.http_port = NO_PORT
        self.failed = asyncio.Event()
        """Set when the broker must be stopped."""
        self.fatal_error: FsyncFailed | None = None
        self._host = host
        self._data_dir = Path(config.broker.data_dir)
        self._tasks = Tasks(self._task_failed)
        self._disk_threads = host.new_threads("disk", config.storage.recovery_threads_max)
        self._flush_threads = TimedThreads(host.new_threads("flush", 1))
        self._undo = AsyncExitStack()
        self._stop_by_s: float | None = None
        self._member: ClusterMember | None = None
        self._more_listeners: list[Listener] = []
        self._accounts = Accounts(
            host.clock,
            ClientQuota(config.quotas.produce_bytes_per_s),
            ClientQuota(config.quotas.fetch_bytes_per_s),
        )
        self._shared = _shared(config, host, self._accounts)
        self.monitor = Monitor(config.broker.id, self._shared, self._flush_threads.durations, host.disk, self._data_dir)
        self._rest = _rest(config, self._shared, self.monitor)

    async def start(self) -> None:
        """Recover the logs, then accept connections; probes are served during recovery too.

        If a step fails, the steps before it are undone.
        """
        try:
            await self._start()
        except (Exception, asyncio.CancelledError):
            await self._undo.aclose()
            raise

    async def _start(self) -> None:
        config = self.config
        self._undo.callback(self._shared.codec_threads.close)
        self._undo.push_async_callback(self._tasks.close)
        self.monitor.start(self._tasks)
        tls = _tls_context(config.tls)
        if config.auth.users and not config.tls.enabled and not config.auth.plain_without_tls:
            logger.warning(
                "no client can log in: passwords are accepted only inside TLS, and the broker has no certificate. "
                "Set tls.cert_file and tls.key_file, or auth.plain_without_tls on a network that nobody can listen to"
            )
        http = Gateway("http", speaks_http, http_connections(build_app(self._rest), self._shared, self._tasks))
        self._http_listener = self._listener_of([http], tls, config.limits.http_connections_max)
        await self._open_http()
        broker, self._member = await open_broker(self._workplace())
        self.broker = broker
        maintenance = Maintenance(broker.replicas, broker.flusher, self._disk_threads, broker.steady_clock)
        maintenance.start(self._tasks, _intervals(config))
        storage = config.storage
        scrubber = Scrubber(broker.replicas, self._disk_threads, bytes_per_s=storage.scrub_bytes_per_s)
        scrubber.start(self._tasks, storage.scrub_interval_ms)
        gateways = self._gateways(broker.service, http)
        self._listener = self._listener_of(gateways, tls, config.limits.connections_max)
        self.port = await self._listener.open(config.listener.host, config.listener.port, config.listener.backlog)
        logger.info("listening for all protocols on %s:%d", config.listener.host, self.port)
        await self._open_more(gateways, tls)
        if self._member is not None:
            await self._member.join(self._advertised())
        self._rest.service = broker.service
        self.monitor.listeners += [self._listener, *self._more_listeners, self._http_listener]
        self.monitor.serve(broker, self._tasks, self._member)

    async def _open_more(self, gateways: list[Gateway], tls: ssl.SSLContext | None) -> None:
        """Open the additional listeners."""
        for each in self.config.listener.more:
            listener = self._listener_of(gateways, tls, self.config.limits.connections_max)
            await listener.open(each.host, each.port, self.config.listener.backlog)
            self._more_listeners.append(listener)
            self.broker.service.cluster.additional_listeners[each.port] = each.advertised
            told = f"{each.advertised_host}:{each.advertised_port}"
            logger.info(
                "listening on %s:%d for clients that reach it as %s (%s)", each.host, each.port, told, each.name
            )

    def _advertised(self) -> list[Address]:
        """Return the addresses of this broker. The first one is the one that other brokers connect to."""
        listener = self.config.listener
        if self.config.is_local_only:
            logger.warning(
                "brokers and clients on other machines are told %s, where they find themselves, not this broker. "
                "Start it with --host, or set listener.advertised_host",
                listener.advertised_host or listener.host,
            )
        default = Address(listener.advertised_host or listener.host, listener.advertised_port or self.port)
        return [default, *(each.advertised for each in listener.more)]

    def _workplace(self) -> Workplace:
        return Workplace(
            self._host,
            self.config,
            self._tasks,
            self._disk_threads,
            self._flush_threads,
            self._accounts,
            self._undo,
            self._stop_after,
            self._time_left_s,
        )

    def _listener_of(self, gateways: list[Gateway], tls: ssl.SSLContext | None, connections_max: int) -> Listener:
        limits = _limits(self.config, connections_max)
        listener = Listener(gateways, self._shared, limits, self._host.network, self._tasks, tls)
        self._undo.push_async_callback(listener.close, within_s=_STOP_WITHIN_S)
        return listener

    async def _open_http(self) -> None:
        """Open the HTTP port. If the default port is in use, the broker starts without it."""
        listener = self.config.listener
        wanted = HTTP_PORT if listener.http_port is None else listener.http_port
        if wanted == NO_PORT:
            return
        try:
            self.http_port = await self._http_listener.open(listener.host, wanted, listener.backlog)
            logger.info("HTTP on %s:%d", listener.host, self.http_port)
        except AddressInUse as error:
            if listener.http_port is not None:
                raise AddressInUse(error.message, hint="Set listener.http_port to another port, or to -1.") from None
            logger.warning(
                "%s, so HTTP is served on port %d alone. To choose another: listener.http_port",
                error.message,
                listener.port,
            )

    # --- stop

    async def stop(self) -> None:
        """Stop accepting connections, finish requests in flight, close every log with a clean-shutdown marker."""
        self.monitor.phase = Phase.STOPPING
        self._stop_by_s = self._host.clock.monotonic_s() + self.config.broker.shutdown_timeout_ms / 1000
        if self._member is not None:
            await self._member.hand_over(within_s=self._time_left_s() / 2)
        listeners = [self._listener, *self._more_listeners]
        for listener in listeners:
            listener.stop_accepting()
        self.broker.replicas.fetches.stop_waiting()
        within_s = min(_STOP_WITHIN_S, self._time_left_s())
        closing = [listener.close(within_s=within_s) for listener in listeners]
        await asyncio.gather(*closing, self._http_listener.drain(within_s=within_s))
        self._rest.service = None  # only probes are served from here on, while the logs are closed
        await self._undo.aclose()

    def _time_left_s(self) -> float:
        """Time left until a service manager may lose patience."""
        if self._stop_by_s is None:
            return self.config.broker.shutdown_timeout_ms / 1000
        return max(_CLOSE_S_MIN, self._stop_by_s - self._host.clock.monotonic_s())

    @property
    def connections(self) -> int:
        return sum(each.connections for each in (self._listener, *self._more_listeners, self._http_listener))

    def _gateways(self, service: Service, http: Gateway) -> list[Gateway]:
        shared = self._shared
        return [
            Gateway("native", speaks_native, lambda: NativeConnection(service, shared, NATIVE_HANDLERS)),
            http,
            # Last: a Kafka request has no magic number, only a length and an API key that other bytes can look like.
            Gateway("kafka", speaks_kafka, lambda: KafkaConnection(service, shared, KAFKA_HANDLERS)),
        ]

    def _stop_after(self, error: FsyncFailed) -> None:
        """An fsync failed: what is in the page cache can no longer be trusted. Stop without a clean-shutdown marker."""
        if self.fatal_error is None:
            self.fatal_error = error
            logger.critical("%s. %s", error.message, error.hint)
            self.failed.set()

    def _task_failed(self, name: str, error: BaseException) -> None:
        logger.error("the task %r failed", name, exc_info=error)


def _shared(config: Config, host: Host, accounts: Accounts) -> SharedByConnections:
    limits = config.limits
    return SharedByConnections(
        host.clock,
        BufferBudget(limits.buffer_bytes_max),
        ConnectionLimits(
            limits.requests_inflight_per_connection_max,
            limits.request_bytes_max,
            login_timeout_s=config.auth.login_timeout_ms / 1000,
            request_timeout_s=limits.request_timeout_ms / 1000,
        ),
        accounts.requests,
        codec_threads=host.new_threads("codec", 1),
    )


def _rest(config: Config, shared: SharedByConnections, monitor: Monitor) -> Rest:
    settings = RestSettings(
        config.rest.body_bytes_max,
        config.rest.body_timeout_ms / 1000,
        config.rest.origins,
        config.rest.host_names,
        clamps_replication=config.broker.dev,
    )
    return Rest(settings, shared, monitor, OPERATIONS)


def _limits(config: Config, connections_max: int) -> ListenerLimits:
    limits = config.limits
    return ListenerLimits(
        connections_max,
        limits.connections_per_ip_max,
        limits.idle_connection_timeout_ms / 1000,
        min(FIRST_BYTES_TIMEOUT_S, limits.request_timeout_ms / 1000),
        needs_tls=config.tls.refuses_plaintext,
    )


def _intervals(config: Config) -> MaintenanceIntervals:
    storage = config.storage
    return MaintenanceIntervals(
        storage.retention_check_interval_ms,
        storage.compaction_check_interval_ms,
        storage.checkpoint_interval_ms,
    )


def _tls_context(tls: TlsSettings) -> ssl.SSLContext | None:
    if tls.cert_file is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file)
        if tls.ca_file is not None:
            context.load_verify_locations(tls.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise InvalidSetting(f"tls.cert_file, tls.key_file or tls.ca_file cannot be used: {error}") from error
    modes = {
        ClientAuth.NONE: ssl.CERT_NONE,
        ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
        ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
    }
    context.verify_mode = modes[tls.client_auth]
    return context
