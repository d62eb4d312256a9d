"""Open a broker on its data directory: metadata, logs, coordinators, the service in front of them. No sockets here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import TypeVar

from flymq.broker.access.checking import CHECKS_AT_ONCE, PasswordChecks
from flymq.broker.access.login import Access
from flymq.broker.admin import Admin, TopicDefaults, remove_deleted
from flymq.broker.broker import Broker
from flymq.broker.coordinators.expiry import run_expiry
from flymq.broker.coordinators.groups import Groups
from flymq.broker.coordinators.producer_ids import ProducerIds
from flymq.broker.coordinators.set_aside import SetAside
from flymq.broker.coordinators.state_log import OFFSETS, TRANSACTIONS, StateLog, Table
from flymq.broker.coordinators.transactions import Transactions
from flymq.broker.partition_admin import PartitionAdmin
from flymq.broker.replicas.replicas import CLOSED_AT_ONCE, NewEpochs, Replicas
from flymq.broker.service.accounts import Accounts
from flymq.broker.service.brokers import OtherBrokers
from flymq.broker.service.client_metrics import ClientMetrics
from flymq.broker.service.cluster import Cluster
from flymq.broker.service.cluster_state import ClusterStates
from flymq.broker.service.coordinators import Coordinators
from flymq.broker.service.first_batches import FirstBatches
from flymq.broker.service.forwarding import Forwarding
from flymq.broker.service.gate import Gate
from flymq.broker.service.groups import Groups as GroupService
from flymq.broker.service.leaders import Leaders
from flymq.broker.service.members import Members
from flymq.broker.service.peer_transactions import PeerTransactions
from flymq.broker.service.records import FetchLimits, Records
from flymq.broker.service.service import Service
from flymq.broker.service.settings import FileSetting, Settings
from flymq.broker.service.slow_appends import SlowAppends
from flymq.broker.service.topics import Topics
from flymq.broker.service.transactions import Transactions as TransactionService
from flymq.broker.topic_notes import TopicNotes
from flymq.cluster.brokers import Kept
from flymq.cluster.catalog import Catalog
from flymq.cluster.image import Image, TopicChange
from flymq.cluster.peers import Peers
from flymq.coordination.group import GroupLimits
from flymq.coordination.groups import GroupTable
from flymq.coordination.transaction_table import TransactionTable
from flymq.coordination.transactions import TransactionLimits
from flymq.host.entropy import new_id
from flymq.host.host import Host
from flymq.host.tasks import Tasks, Threads
from flymq.metadata.images import IMAGE_NAME
from flymq.metadata.recovery import recover
from flymq.metadata.sqlite import SqliteMetadataStore
from flymq.metadata.store import MetadataStore
from flymq.model.errors import ForeignDataDirectory, FsyncFailed
from flymq.server.adoption import adopt_at_start, check_is_empty, report_unknown
from flymq.server.cluster_member import ClusterMember, Directory
from flymq.server.cluster_store import open_cluster_store
from flymq.server.config import Config, GroupsSettings
from flymq.server.settings import describe_settings
from flymq.server.supervisor import SUPERVISED_METADATA
from flymq.storage.data_directory import DataDirectory
from flymq.storage.flusher import Flusher
from flymq.storage.headroom import Headroom
from flymq.storage.identity import (
    DirectoryNote,
    Identity,
    check_is_single,
    forget_clean,
    mark_clean,
    open_identity,
    read_identity,
)
from flymq.storage.log import Log
from flymq.storage.steady_clock import SteadyClock, read_last_time, run_clock

logger = logging.getLogger(__name__)

_CLOSE_WITHIN_S = 20.0
_METADATA_THREADS = 2  # one writes an image while the other syncs the journal
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
    time_left_s: Callable[[], float] = lambda: _CLOSE_WITHIN_S
    """Time left for closing the logs."""

    @property
    def data_dir(self) -> Path:
        return Path(self.config.broker.data_dir)


async def open_broker(at: Workplace) -> tuple[Broker, ClusterMember | None]:
    """Recover what is on the disk, and return a broker that is ready to be served, and its part in a cluster."""
    headroom = Headroom(
        at.host.disk, at.data_dir, at.host.clock, at.disk_threads, reserve_bytes=at.config.storage.reserve_bytes
    )
    directory = _open_directory(at, headroom)
    store = await open_metadata_store(at, directory)
    cluster_id, identity = await _identify(at, Catalog(store))
    catalog = Catalog(store, identity.directory_id if at.config.is_clustered else "")
    await remove_deleted(catalog, directory, at.disk_threads, at.config.broker.id)
    if at.config.is_clustered:
        await report_unknown(catalog, directory, at.config.broker.id)
    else:
        await adopt_at_start(catalog, directory, at.config.broker.id)
    directory.made = await catalog.made()
    image = Image(store, at.config.topics.defaults, broker_id=at.config.broker.id)
    await image.load()
    at.tasks.spawn("image", image.follow())
    flusher = Flusher(at.flush_threads, at.tasks, at.fsync_failed)
    replicas = Replicas(at.config.broker.id, image, directory, flusher, at.host.clock, at.disk_threads, at.tasks)
    member = None
    if at.config.is_clustered:
        member = ClusterMember(at.host, at.config, store, catalog, image, replicas, flusher, at.disk_threads, at.tasks)
        at.undo.push_async_callback(member.leave)
    at.undo.push_async_callback(_close, at, replicas, identity, member)
    at.undo.callback(at.disk_threads.close)  # whatever works on the logs ends before they are closed
    at.undo.callback(at.flush_threads.close)
    at.undo.push_async_callback(at.tasks.close)
    headroom.on_files_out.append(replicas.release_sealed)
    headroom.on_room.append(replicas.reopen)
    if identity.was_clean:
        await at.disk_threads.run(partial(forget_clean, at.host.disk, at.data_dir))
    new_epochs = await replicas.open()
    _report(_logs(replicas))
    if new_epochs:
        await headroom.when_room(partial(_raise_leader_epochs, catalog, image, new_epochs))
    at.tasks.spawn("headroom", headroom.run())
    notes = TopicNotes(directory, catalog, replicas, at.disk_threads)
    await headroom.when_room(partial(notes.write_all, image))
    if member is not None:
        replicas.topic_watchers.append(partial(_note_topic, at, headroom, notes, image))
    was_clean = not new_epochs and not any(replicas.offline(topic) for topic in image)
    peers = None if member is None else member.peers
    broker = await _coordinate(
        at, cluster_id, catalog, notes, image, replicas, flusher, headroom, peers, was_clean=was_clean
    )
    if member is not None:
        last_epoch = image.members.last_epoch(at.config.broker.id)
        member.directory = Directory(identity.directory_id, _kept(identity, last_epoch, _logs(replicas)))
    return broker, member


def _kept(identity: Identity, last_epoch: int, logs: list[Log]) -> Kept:
    """Return what has survived of what the broker had when it was last registered, with this epoch."""
    if identity.is_complete(last_epoch) and all(log.recovery.clean for log in logs):
        return Kept.WRITTEN
    return Kept.SYNCED if identity.is_current(last_epoch) else Kept.NOTHING


async def _close(at: Workplace, replicas: Replicas, identity: Identity, member: ClusterMember | None) -> None:
    was_complete = all(log.recovery.clean for log in _logs(replicas)) and identity.was_clean
    broker_epoch = 0 if member is None else member.epoch
    if not await replicas.close(at.host.new_threads("close", CLOSED_AT_ONCE), at.time_left_s()):
        return
    if member is None or member.was_admitted:
        mark_clean(at.host.disk, at.data_dir, identity, broker_epoch=broker_epoch)
    elif was_complete:  # the start was given up, and the cluster has not heard of it
        mark_clean(at.host.disk, at.data_dir, identity, broker_epoch=identity.clean_epoch)


async def _identify(at: Workplace, catalog: Catalog) -> tuple[str, Identity]:
    """Return the id of the cluster, and that of the data directory in it."""
    disk, entropy, is_clustered = at.host.disk, at.host.entropy, at.config.is_clustered
    known = read_identity(disk, at.data_dir)
    if known is not None and is_clustered:
        cluster_id = await _known_cluster(at, catalog, known)
    else:
        proposed = at.config.broker.cluster_id or (known.cluster if known is not None else new_id(entropy).hex)
        cluster_id = await catalog.cluster_id(proposed)
    broker_id = at.config.broker.id
    identity = await at.disk_threads.run(
        lambda: open_identity(
            disk, at.data_dir, entropy, cluster=cluster_id, broker_id=broker_id, is_clustered=is_clustered
        )
    )
    return cluster_id, identity


async def _known_cluster(at: Workplace, catalog: Catalog, known: DirectoryNote) -> str:
    """Return the id of the cluster for a directory that belongs to one: it does not begin another one."""
    if not known.is_clustered:
        raise ForeignDataDirectory(
            f"{at.data_dir} is the data directory of a single broker",
            hint="Let the cluster adopt it with `flymq cluster adopt`, or give another --data-dir.",
        )
    if (cluster_id := await catalog.find_cluster_id()) is None:
        raise ForeignDataDirectory(
            f"{at.data_dir} belongs to the cluster {known.cluster}, but there is no cluster in the metadata store",
            hint="Check --etcd and cluster.name. If the metadata was lost, restore it from a backup of etcd.",
        )
    return cluster_id


def _note_topic(at: Workplace, headroom: Headroom, notes: TopicNotes, image: Image, name: str) -> None:
    """Note a topic that another broker has created or extended."""
    if (topic := image.find(name)) is not None:
        at.tasks.spawn(f"note of {name}", headroom.when_room(partial(notes.write_patiently, topic)))


async def _raise_leader_epochs(catalog: Catalog, image: Image, new_epochs: NewEpochs) -> None:
    await image.until(await catalog.raise_leader_epochs(new_epochs))


def _open_directory(at: Workplace, headroom: Headroom) -> DataDirectory:
    """Lock the data directory."""
    disk = at.host.disk
    if not at.config.is_clustered and disk.exists(at.data_dir / SUPERVISED_METADATA):
        raise ForeignDataDirectory(
            f"{at.data_dir} belongs to several brokers under a supervisor",
            hint="Start them with `flymq server start --brokers`, or give another --data-dir.",
        )
    disk.make_directory(at.data_dir)
    if not at.config.is_clustered:
        check_is_single(disk, at.data_dir)
    directory = DataDirectory(disk, at.data_dir, headroom.gate_of)
    at.undo.callback(directory.close)
    headroom.open()
    return directory


async def open_metadata_store(at: Workplace, directory: DataDirectory) -> MetadataStore:
    """Open the metadata of the cluster; that of a single broker is in its data directory."""
    if at.config.is_clustered:
        store = await open_cluster_store(at.host, at.config.cluster)
    else:
        store = await _open_own_store(at, directory)
    at.undo.push_async_callback(store.close)
    return store


async def _open_own_store(at: Workplace, directory: DataDirectory) -> MetadataStore:
    disk = at.host.disk
    threads = at.host.new_threads("metadata", _METADATA_THREADS)
    at.undo.callback(threads.close)

    def open_store() -> SqliteMetadataStore:
        recovered = recover(disk, at.data_dir)
        if recovered.is_new:
            check_is_empty(directory)
        path = at.data_dir / IMAGE_NAME
        return SqliteMetadataStore.open(disk, path, threads=threads, on_fatal=at.fsync_failed, recovered=recovered)

    return await threads.run(open_store)


async def _coordinate(  # noqa: PLR0913  # called once
    at: Workplace,
    cluster_id: str,
    catalog: Catalog,
    notes: TopicNotes,
    image: Image,
    replicas: Replicas,
    flusher: Flusher,
    headroom: Headroom,
    peers: Peers | None,
    *,
    was_clean: bool,
) -> Broker:
    """Start the coordinators on their internal topics."""
    config, host = at.config, at.host
    admin = Admin(image, replicas, catalog, notes, host.entropy, at.tasks, headroom, _topic_defaults(config))
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
        peers,
    )
    at.undo.callback(transactions.close)
    await transactions.open()
    await headroom.when_room(partial(transactions.abort_interrupted, was_clean=was_clean))
    steady_clock = SteadyClock(
        host.clock, last_ms=read_last_time(host.disk, at.data_dir), wait_ms=config.storage.clock_leap_wait_ms
    )
    at.tasks.spawn("clock", run_clock(steady_clock, host.disk, at.data_dir, at.disk_threads))
    at.tasks.spawn("expiry", run_expiry(groups, transactions, steady_clock))
    advertised = (config.listener.advertised_host, config.listener.advertised_port)
    cluster = Cluster(cluster_id, config.broker.id, at.data_dir.absolute(), host.disk, image.members, advertised)
    service = _service(at, cluster, catalog, image, replicas, admin, groups, transactions, producer_ids, peers)
    return Broker(
        service, image, replicas, flusher, admin, groups, transactions, set_aside, headroom, steady_clock, host.clock
    )


async def _state_log(
    at: Workplace, admin: Admin, replicas: Replicas, topic: str, new_table: Callable[[], T], set_aside: SetAside
) -> StateLog[T]:
    partitions = await StateLog.create_topic(admin, topic, at.config.groups.internal_partitions)
    return StateLog(topic, partitions, new_table, replicas, at.host.clock, at.disk_threads, set_aside)


def _service(  # noqa: PLR0913  # called once
    at: Workplace,
    cluster: Cluster,
    catalog: Catalog,
    image: Image,
    replicas: Replicas,
    admin: Admin,
    groups: Groups,
    transactions: Transactions,
    producer_ids: ProducerIds,
    peers: Peers | None,
) -> Service:
    """Build the front door."""
    config, accounts, gate, clock = at.config, at.accounts, Gate(), at.host.clock
    limits = FetchLimits(config.limits.fetch_wait_ms_max, config.limits.fetch_bytes_max)
    slow_appends = SlowAppends(at.host.new_threads("records", 1), clock)
    at.undo.push_async_callback(slow_appends.close)
    first_batches = FirstBatches(transactions, slow_appends)
    at.undo.push_async_callback(first_batches.close)
    records = Records(image, replicas, admin, transactions, gate, accounts, clock, limits, slow_appends, first_batches)
    leaders = Leaders(image, replicas, clock, peers)
    forwarding = Forwarding(config.broker.id, image, gate, accounts, at.tasks, None if peers is None else peers.connect)
    at.undo.callback(forwarding.close)
    group_service = GroupService(groups, records, gate, clock, leaders, forwarding)
    members = Members(records, group_service, at.tasks, forwarding)

    def forget_deleted(change: TopicChange) -> None:
        if change.after is None:
            accounts.traffic.forget(change.name)
            records.topic_deleted(change.name)
            members.topic_deleted(change.name)

    image.watchers.append(forget_deleted)
    return Service(
        cluster,
        Coordinators(image, cluster, gate),
        Topics(image, replicas, admin, PartitionAdmin(catalog.store, image, config.broker.id), gate, leaders),
        records,
        group_service,
        TransactionService(transactions, producer_ids, image, replicas, group_service, gate, clock),
        PeerTransactions(transactions, gate),
        members,
        Settings(image, catalog, groups.consumers, gate, _file_settings(config), config.topics.defaults),
        ClientMetrics(image, catalog, gate, clock, at.host.entropy),
        Access(_password_checks(at), config.auth.required, config.auth.users, config.auth.plain_without_tls),
        accounts,
        OtherBrokers(image, replicas, clock),
        ClusterStates(image, cluster, leaders, gate),
        forwarding,
    )


def _password_checks(at: Workplace) -> PasswordChecks:
    threads = at.host.new_threads("login", CHECKS_AT_ONCE)  # not those of the disk, which a flood of logins would block
    at.undo.callback(threads.close)
    return PasswordChecks(threads, at.host.clock, new_id(at.host.entropy).bytes)


def _file_settings(config: Config) -> dict[str, FileSetting]:
    """Return the settings that clients may see: not those of users, secrets and TLS files."""
    found = {}
    for setting in describe_settings():
        is_private = setting.is_secret or setting.type is Mapping
        if not is_private and not (setting.levels[0] in ("tls", "cluster") and setting.type is Path):
            value = reduce(getattr, setting.path, config)
            found[setting.name] = FileSetting(value, value == setting.default)
    return found


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
        streams_standby_replicas=settings.streams_standby_replicas,
        quiet_ms=settings.quiet_ms,
        offset_retention_ms=settings.offset_retention_ms,
    )


def _logs(replicas: Replicas) -> list[Log]:
    return [partition.log for partition in replicas if isinstance(partition.log, Log)]


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
