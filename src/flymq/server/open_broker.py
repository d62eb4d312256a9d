"""Open a broker on its data directory: metadata, logs, coordinators, the service in front of them. No sockets here."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from flymq.broker.access.login import Access
from flymq.broker.admin import Admin, TopicDefaults, remove_deleted
from flymq.broker.broker import Broker
from flymq.broker.coordinators.expiry import run_expiry
from flymq.broker.coordinators.groups import Groups
from flymq.broker.coordinators.producer_ids import ProducerIds
from flymq.broker.coordinators.set_aside import SetAside
from flymq.broker.coordinators.state_log import OFFSETS, TRANSACTIONS, StateLog, Table
from flymq.broker.coordinators.transactions import Transactions
from flymq.broker.replicas.replicas import Replicas
from flymq.broker.service.accounts import Accounts
from flymq.broker.service.cluster import Cluster
from flymq.broker.service.gate import Gate
from flymq.broker.service.groups import Groups as GroupService
from flymq.broker.service.members import Members
from flymq.broker.service.records import FetchLimits, Records
from flymq.broker.service.service import Service
from flymq.broker.service.topics import Topics
from flymq.broker.service.transactions import Transactions as TransactionService
from flymq.cluster.catalog import Catalog
from flymq.cluster.image import Image, TopicChange
from flymq.coordination.group import GroupLimits
from flymq.coordination.groups import GroupTable
from flymq.coordination.transaction_table import TransactionTable
from flymq.coordination.transactions import TransactionLimits
from flymq.host.entropy import new_id
from flymq.host.host import Host
from flymq.host.tasks import Tasks, Threads
from flymq.metadata.sqlite import SqliteMetadataStore
from flymq.model.errors import FsyncFailed
from flymq.server.config import Config, GroupsSettings
from flymq.storage.data_directory import DataDirectory
from flymq.storage.flusher import Flusher
from flymq.storage.log import Log

logger = logging.getLogger(__name__)

METADATA_NAME = "metadata.db"
T = TypeVar("T", bound=Table)


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where a broker runs, and what it shares with the server around it."""

    host: Host
    config: Config
    tasks: Tasks
    disk_threads: Threads
    flush_threads: Threads
    accounts: Accounts
    undo: AsyncExitStack
    """What is opened is closed by it, in reverse order."""
    fsync_failed: Callable[[FsyncFailed], None]
    """Called when an fsync fails: the broker must be stopped."""

    @property
    def data_dir(self) -> Path:
        return Path(self.config.broker.data_dir)


async def open_broker(at: Workplace) -> Broker:
    """Recover what is on the disk, and return a broker that is ready to be served."""
    directory, store = _open_store(at)
    catalog = Catalog(store)
    await remove_deleted(catalog, directory, at.disk_threads)
    image = Image(store, at.config.topics.defaults)
    await image.load()
    at.tasks.spawn("image", image.follow())
    flusher = Flusher(at.flush_threads, at.tasks, at.fsync_failed)
    replicas = Replicas(at.config.broker.id, image, directory, flusher, at.host.clock, at.disk_threads, at.tasks)
    at.undo.callback(replicas.close)
    at.undo.callback(at.disk_threads.close)  # whatever works on the logs ends before they are closed
    at.undo.callback(at.flush_threads.close)
    at.undo.push_async_callback(at.tasks.close)
    new_epochs = await replicas.open()
    _report([partition.log for partition in replicas if isinstance(partition.log, Log)])
    if new_epochs:
        await image.until(await catalog.raise_leader_epochs(new_epochs))
    was_clean = not new_epochs and not any(replicas.offline(topic) for topic in image)
    return await _coordinate(at, catalog, image, replicas, flusher, was_clean=was_clean)


def _open_store(at: Workplace) -> tuple[DataDirectory, SqliteMetadataStore]:
    """Lock the data directory and open the metadata in it."""
    disk = at.host.disk
    disk.make_directory(at.data_dir)
    directory = DataDirectory(disk, at.data_dir)
    at.undo.callback(directory.close)
    store = SqliteMetadataStore.open(disk, at.data_dir / METADATA_NAME)
    at.undo.push_async_callback(store.close)
    return directory, store


async def _coordinate(
    at: Workplace, catalog: Catalog, image: Image, replicas: Replicas, flusher: Flusher, *, was_clean: bool
) -> Broker:
    """Start the coordinators on their internal topics."""
    config, host = at.config, at.host
    admin = Admin(image, replicas, catalog, host.entropy, at.tasks, _topic_defaults(config))
    set_aside = SetAside(host.disk, at.data_dir)
    limits = group_limits(config.groups)
    offsets_log = await _state_log(at, admin, replicas, OFFSETS, lambda: GroupTable(limits), set_aside)
    groups = Groups(offsets_log, image, replicas, host.clock, host.entropy, at.tasks, limits)
    at.undo.callback(groups.close)
    await groups.open()
    producer_ids = ProducerIds(catalog)
    transactions = Transactions(
        await _state_log(at, admin, replicas, TRANSACTIONS, TransactionTable, set_aside),
        image,
        replicas,
        groups,
        producer_ids,
        host.clock,
        at.tasks,
        TransactionLimits(config.transactions.timeout_ms_max, config.transactions.id_retention_ms),
    )
    at.undo.callback(transactions.close)
    await transactions.open(was_clean=was_clean)
    at.tasks.spawn("expiry", run_expiry(groups, transactions))
    cluster_id = await catalog.cluster_id(config.broker.cluster_id or new_id(host.entropy).hex)
    advertised = (config.listener.advertised_host, config.listener.advertised_port)
    cluster = Cluster(cluster_id, config.broker.id, advertised)
    service = _service(at, cluster, image, replicas, admin, groups, transactions, producer_ids)
    return Broker(service, image, replicas, flusher, admin, groups, transactions, set_aside, host.clock)


async def _state_log(
    at: Workplace, admin: Admin, replicas: Replicas, topic: str, new_table: Callable[[], T], set_aside: SetAside
) -> StateLog[T]:
    partitions = await StateLog.create_topic(admin, topic, at.config.groups.internal_partitions)
    return StateLog(topic, partitions, new_table, replicas, at.host.clock, at.disk_threads, set_aside)


def _service(
    at: Workplace,
    cluster: Cluster,
    image: Image,
    replicas: Replicas,
    admin: Admin,
    groups: Groups,
    transactions: Transactions,
    producer_ids: ProducerIds,
) -> Service:
    """Build the front door."""
    config, accounts, gate, clock = at.config, at.accounts, Gate(), at.host.clock
    limits = FetchLimits(config.limits.fetch_wait_ms_max, config.limits.fetch_bytes_max)
    records = Records(image, replicas, admin, transactions, gate, accounts, clock, limits)
    group_service = GroupService(groups, records, gate, clock)
    members = Members(records, group_service, at.tasks)

    def forget_deleted(change: TopicChange) -> None:
        if change.after is None:
            accounts.traffic.forget(change.name)
            records.topic_deleted(change.name)
            members.topic_deleted(change.name)

    image.watchers.append(forget_deleted)
    return Service(
        cluster,
        Topics(image, replicas, admin, gate),
        records,
        group_service,
        TransactionService(transactions, producer_ids, image, group_service, gate),
        members,
        Access(at.disk_threads, config.auth.required, config.auth.users),
        accounts,
    )


def _topic_defaults(config: Config) -> TopicDefaults:
    return TopicDefaults(
        config.topics.default_partitions,
        config.topics.default_replication_factor,
        config.topics.defaults,
        config.topics.auto_create,
        config.limits.topic_partitions_max,
    )


def group_limits(settings: GroupsSettings) -> GroupLimits:
    return GroupLimits(
        members_max=settings.members_max,
        session_timeout_ms_min=settings.session_timeout_ms_min,
        session_timeout_ms_max=settings.session_timeout_ms_max,
        consumer_session_timeout_ms=settings.consumer_session_timeout_ms,
        consumer_heartbeat_ms=settings.consumer_heartbeat_ms,
        quiet_ms=settings.quiet_ms,
        offset_retention_ms=settings.offset_retention_ms,
    )


def _report(logs: list[Log]) -> None:
    """Log what a crash had left behind."""
    recovered = [log for log in logs if not log.recovery.clean]
    for log in recovered:
        report = log.recovery
        if report.cut_at is not None:
            path, position = report.cut_at
            aside = ", ".join(map(str, report.kept_aside))
            logger.warning("%s: cut %d torn bytes at byte %d, kept in %s", path, report.cut_bytes, position, aside)
    if recovered:
        scanned = sum(log.recovery.scanned_bytes for log in recovered)
        logger.info("recovered %d partitions after a crash, %d bytes scanned", len(recovered), scanned)
