"""Put a broker together by hand, start it, and take it down in good order. There is no framework: read it top down.

Everything it knows of the outside world is the `Host` it is given: production, the broker of `flymq.testing` and the
simulation are wired here alike.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from flymq.broker.access.login import Access
from flymq.broker.admin import Admin, TopicDefaults
from flymq.broker.coordinators.expiry import run_expiry
from flymq.broker.coordinators.groups import Groups
from flymq.broker.coordinators.internal_topics import OFFSETS, TRANSACTIONS, InternalTopic
from flymq.broker.coordinators.producer_ids import ProducerIds
from flymq.broker.coordinators.transactions import Transactions
from flymq.broker.replicas.maintenance import Maintenance, MaintenanceIntervals
from flymq.broker.replicas.replicas import Topics
from flymq.broker.service.quota import ClientQuota
from flymq.broker.service.service import Broker, FetchLimits
from flymq.cluster.catalog import Catalog
from flymq.coordination.group import GroupLimits
from flymq.coordination.transactions import TransactionLimits
from flymq.gateways.budget import BufferBudget
from flymq.gateways.connection import ConnectionLimits, SharedByConnections
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.handlers import HANDLERS as KAFKA_HANDLERS
from flymq.gateways.listener import Gateway, Listener, ListenerLimits
from flymq.gateways.native.connection import NativeConnection, speaks_native
from flymq.gateways.native.handlers import HANDLERS as NATIVE_HANDLERS
from flymq.gateways.rest.api import OPERATIONS
from flymq.gateways.rest.app import Rest, RestSettings, build_app
from flymq.gateways.rest.connection import http_connections, speaks_http
from flymq.gateways.rest.login import Login
from flymq.host.clock import Clock
from flymq.host.entropy import Entropy, new_id
from flymq.host.host import Host
from flymq.host.tasks import Tasks
from flymq.metadata.sqlite import SqliteMetadataStore
from flymq.model.errors import AddressInUse, FsyncFailed, InvalidSetting
from flymq.server.config import HTTP_PORT, NO_PORT, ClientAuth, Config, GroupsSettings, TlsSettings
from flymq.server.monitoring.fsync_timing import TimedThreads
from flymq.server.monitoring.health import Phase
from flymq.server.monitoring.monitor import Monitor
from flymq.storage.data_directory import DataDirectory
from flymq.storage.flusher import Flusher
from flymq.storage.log import Log
from flymq.wire.kafka.framing import speaks_kafka

logger = logging.getLogger(__name__)

_STOP_WITHIN_S = 5.0
METADATA_NAME = "metadata.db"


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
        """Set when the broker must not go on: stop it."""
        self.fatal_error: FsyncFailed | None = None
        self._host = host
        self._data_dir = Path(config.broker.data_dir)
        self._tasks = Tasks(self._task_failed)
        self._disk_threads = host.new_threads("disk", config.storage.recovery_threads_max)
        self._flush_threads = TimedThreads(host.new_threads("flush", 1))
        self._undo = AsyncExitStack()
        self._shared = _shared(config, host.clock)
        self.observation = Monitor(
            config.broker.id, self._shared, self._flush_threads.durations, host.disk, self._data_dir
        )
        self._rest = _rest(config, self._shared, self.observation, host.entropy)

    async def start(self) -> None:
        """Recover what is on disk, then listen; probes are answered from the beginning on.

        What was begun is undone when a later step fails.
        """
        try:
            await self._start()
        except BaseException:
            await self._undo.aclose()
            raise

    async def _start(self) -> None:
        config = self.config
        catalog = self._open_catalog()
        flusher = self._open_topics()
        tls = _tls_context(config.tls)
        http = Gateway("http", speaks_http, http_connections(build_app(self._rest), self._shared))
        self._http_listener = self._listener_of([http], tls, config.limits.http_connections_max)
        await self._open_http()
        broker = await self._recover(catalog)
        Maintenance(self.topics, flusher, self._disk_threads, self._host.clock).start(self._tasks, _intervals(config))
        self._listener = self._listener_of(self._gateways(broker, http), tls, config.limits.connections_max)
        self.port = await self._listener.open(config.listener.host, config.listener.port, config.listener.backlog)
        logger.info("every protocol on %s:%d", config.listener.host, self.port)
        self._serve(broker)

    # --- the steps of a start, in their order

    def _open_catalog(self) -> Catalog:
        """Take the data directory and open the metadata in it."""
        disk = self._host.disk
        disk.make_directory(self._data_dir)
        self._directory = DataDirectory(disk, self._data_dir)
        self._undo.callback(self._directory.close)
        store = SqliteMetadataStore.open(disk, self._data_dir / METADATA_NAME)
        self._undo.push_async_callback(store.close)
        return Catalog(store)

    def _open_topics(self) -> Flusher:
        """Make room for the logs, and what brings them to the disk."""
        flusher = Flusher(self._flush_threads, self._tasks, self._stop_after)
        self.topics = Topics(self._directory, flusher, self._host.clock)
        self._undo.callback(self._close_logs)
        self._undo.callback(self._disk_threads.close)
        self._undo.callback(self._flush_threads.close)
        self._undo.push_async_callback(self._tasks.close)
        self.observation.start(self._tasks)
        return flusher

    def _listener_of(self, gateways: list[Gateway], tls: ssl.SSLContext | None, connections_max: int) -> Listener:
        limits = _limits(self.config, connections_max)
        listener = Listener(gateways, self._shared, limits, self._host.network, self._tasks, tls)
        self._undo.push_async_callback(listener.close, within_s=_STOP_WITHIN_S)
        return listener

    async def _open_http(self) -> None:
        """Listen for HTTP alone. Where nobody asked for a port, one that is taken is no reason not to start."""
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

    async def _recover(self, catalog: Catalog) -> Broker:
        """Open every log and replay what lives in them."""
        admin = self._build_admin(catalog)
        recovered = await admin.open_topics()
        _report(recovered)
        return await self._build_broker(admin, catalog, was_clean=not recovered)

    def _serve(self, broker: Broker) -> None:
        """Everything is open: let it be used and observed."""
        self.topics.watchers.append(partial(_forget_traffic, broker))
        self._rest.broker = broker
        self._tasks.spawn("consumers over HTTP", self._rest.consumers.run(broker))
        self.observation.listeners += [self._listener, self._http_listener]
        self.observation.serve(broker, self._tasks)

    # --- its end

    async def stop(self) -> None:
        """Accept nothing new, finish what was begun, close every log with the marker of an orderly end."""
        self.observation.phase = Phase.STOPPING
        self._listener.stop_accepting()
        self.topics.fetches.stop_waiting()
        await self._http_listener.close(within_s=_STOP_WITHIN_S)
        await self._undo.aclose()

    def _close_logs(self) -> None:
        if self.fatal_error is None:
            self.topics.close()

    @property
    def connections(self) -> int:
        return self._listener.connections + self._http_listener.connections

    # --- the parts of a broker

    def _build_admin(self, catalog: Catalog) -> Admin:
        config = self.config
        defaults = TopicDefaults(
            config.topics.default_partitions,
            config.topics.default_replication_factor,
            config.topics.defaults,
            config.topics.auto_create,
            config.limits.topic_partitions_max,
        )
        return Admin(
            config.broker.id, self.topics, catalog, self._directory, self._disk_threads, self._host.entropy, defaults
        )

    async def _build_broker(self, admin: Admin, catalog: Catalog, *, was_clean: bool) -> Broker:
        config, clock, entropy = self.config, self._host.clock, self._host.entropy
        cluster_id = await catalog.cluster_id(config.broker.cluster_id or new_id(entropy).hex)
        groups = Groups(
            await self._internal_topic(admin, OFFSETS),
            self.topics,
            clock,
            entropy,
            _group_limits(config.groups),
        )
        groups.open()
        self._undo.callback(groups.close)
        producer_ids = ProducerIds(catalog)
        transactions = Transactions(
            await self._internal_topic(admin, TRANSACTIONS),
            self.topics,
            groups,
            producer_ids,
            clock,
            self._tasks,
            TransactionLimits(config.transactions.timeout_ms_max, config.transactions.id_retention_ms),
        )
        await transactions.open(was_clean=was_clean)
        self._undo.callback(transactions.close)
        self._tasks.spawn("expiry", run_expiry(groups, transactions))
        return Broker(
            config.broker.id,
            cluster_id,
            self.topics,
            admin,
            groups,
            transactions,
            producer_ids,
            Access(self._disk_threads, config.auth.required, config.auth.users),
            FetchLimits(config.limits.fetch_wait_ms_max, config.limits.fetch_bytes_max),
            clock,
            self._tasks,
            (config.listener.advertised_host, config.listener.advertised_port),
        )

    async def _internal_topic(self, admin: Admin, name: str) -> InternalTopic:
        partitions = self.config.groups.internal_partitions
        return await InternalTopic.open(admin, name, self._host.clock, partitions=partitions)

    def _gateways(self, broker: Broker, http: Gateway) -> list[Gateway]:
        shared = self._shared
        return [
            Gateway("native", speaks_native, lambda: NativeConnection(broker, shared, NATIVE_HANDLERS)),
            http,
            # Last: a request of Kafka's has no mark of its own, only a length and a number that can be one.
            Gateway("kafka", speaks_kafka, lambda: KafkaConnection(broker, shared, KAFKA_HANDLERS)),
        ]

    def _stop_after(self, error: FsyncFailed) -> None:
        """An fsync failed: what is in the page cache can no longer be trusted. End without a marker of order."""
        if self.fatal_error is None:
            self.fatal_error = error
            logger.critical("%s. %s", error.message, error.hint)
            self.failed.set()

    def _task_failed(self, name: str, error: BaseException) -> None:
        logger.error("the task %r failed", name, exc_info=error)


def _shared(config: Config, clock: Clock) -> SharedByConnections:
    limits, quotas = config.limits, config.quotas
    return SharedByConnections(
        clock,
        BufferBudget(limits.buffer_bytes_max),
        ClientQuota(quotas.produce_bytes_per_s),
        ClientQuota(quotas.fetch_bytes_per_s),
        ConnectionLimits(limits.requests_inflight_per_connection_max, limits.request_bytes_max),
    )


def _rest(config: Config, shared: SharedByConnections, observation: Monitor, entropy: Entropy) -> Rest:
    settings = RestSettings(
        config.rest.body_bytes_max,
        config.rest.body_timeout_ms / 1000,
        config.rest.origins,
        clamps_replication=config.broker.dev,
    )
    return Rest(settings, shared, observation, Login(new_id(entropy).bytes), OPERATIONS)


def _limits(config: Config, connections_max: int) -> ListenerLimits:
    limits = config.limits
    return ListenerLimits(connections_max, limits.connections_per_ip_max, limits.idle_connection_timeout_ms / 1000)


def _forget_traffic(broker: Broker, topic: str) -> None:
    if topic not in broker.topics:
        broker.traffic.forget(topic)


def _intervals(config: Config) -> MaintenanceIntervals:
    storage = config.storage
    return MaintenanceIntervals(
        storage.retention_check_interval_ms, storage.compaction_check_interval_ms, storage.checkpoint_interval_ms
    )


def _group_limits(settings: GroupsSettings) -> GroupLimits:
    return GroupLimits(
        members_max=settings.members_max,
        session_timeout_ms_min=settings.session_timeout_ms_min,
        session_timeout_ms_max=settings.session_timeout_ms_max,
        consumer_session_timeout_ms=settings.consumer_session_timeout_ms,
        consumer_heartbeat_ms=settings.consumer_heartbeat_ms,
        quiet_ms=settings.quiet_ms,
        offset_retention_ms=settings.offset_retention_ms,
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


def _report(recovered: list[Log]) -> None:
    """Tell what a crash had left behind."""
    for log in recovered:
        report = log.recovery
        if report.cut_at is not None:
            path, position = report.cut_at
            aside = ", ".join(map(str, report.kept_aside))
            logger.warning("%s: cut %d torn bytes at byte %d, kept in %s", path, report.cut_bytes, position, aside)
    if recovered:
        scanned = sum(log.recovery.scanned_bytes for log in recovered)
        logger.info("recovered %d partitions after a crash, %d bytes scanned", len(recovered), scanned)
