"""This broker as one of many: it copies what others lead, registers, takes part in electing the controller, and
hands over what it leads before it stops."""

from __future__ import annotations

import asyncio
import logging
import ssl
from dataclasses import dataclass
from uuid import UUID

from flymq.broker.replicas.in_sync import InSync
from flymq.broker.replicas.partition import Partition
from flymq.broker.replicas.replicas import Replicas
from flymq.broker.replicas.replicator import FetchSettings, Replicator
from flymq.cluster.brokers import Kept, Listener, Registration
from flymq.cluster.catalog import Catalog
from flymq.cluster.controller import Controller
from flymq.cluster.image import Image
from flymq.cluster.membership import Membership
from flymq.cluster.peers import Credentials, Peers
from flymq.host.entropy import new_id
from flymq.host.host import Host
from flymq.host.tasks import Tasks, Threads
from flymq.metadata.store import MetadataStore
from flymq.model.errors import FlyMQError
from flymq.server.config import Config, TlsSettings
from flymq.storage.flusher import Flusher
from flymq.storage.identity import note_epoch

logger = logging.getLogger(__name__)

_LOOK_FOR_FAILED_S = 1.0


@dataclass(frozen=True, slots=True)
class Directory:
    """What the cluster has to know of the data directory."""

    directory_id: str
    kept: Kept


class ClusterMember:
    """The part of a broker that knows of other brokers."""

    def __init__(  # noqa: PLR0913  # called once
        self,
        host: Host,
        config: Config,
        store: MetadataStore,
        catalog: Catalog,
        image: Image,
        replicas: Replicas,
        flusher: Flusher,
        threads: Threads,
        tasks: Tasks,
    ) -> None:
        self._host = host
        self._config = config
        self._threads = threads
        self._store = store
        self._image = image
        self._replicas = replicas
        self._tasks = tasks
        self._in_office = Tasks(tasks.on_failure)
        """What ends when the broker is about to stop."""
        self._broker_id = broker_id = config.broker.id
        self._secret = new_id(host.entropy).hex
        self._membership: Membership | None = None
        self._noting = asyncio.Lock()
        self.directory = Directory("", Kept.NOTHING)
        self._emptied: set[tuple[UUID, int]] = set()
        self.was_admitted = False
        """Whether the cluster knows of this start: also that it came after a crash."""
        self.peers = Peers(broker_id, image, host, self._credentials, _peer_tls(config.tls))
        copying = config.replication
        fetching = FetchSettings(copying.fetch_wait_ms, copying.fetch_bytes_max, copying.bytes_per_s)
        self._replicator = Replicator(self.peers.connect, flusher, threads, tasks, fetching)
        replicas.join_cluster(self._replicator)
        lag_max_s = config.replication.lag_max_ms / 1000
        self.in_sync = InSync(broker_id, image, catalog, replicas.led, host.clock, lag_max_s=lag_max_s)
        replicas.on_caught_up = self.in_sync.caught_up
        self.leaderships = 0
        """How often this broker became the leader of a partition."""
        replicas.role_watchers.append(self._role_changed)
        self.controller = Controller(store, image, broker_id, probe=self.peers.listens)
        self.peers.on_lost = self.controller.suspect

    @property
    def epoch(self) -> int:
        """Of the current registration; 0 without one."""
        return (self._membership and self._membership.epoch) or 0

    def _role_changed(self, partition: Partition) -> None:
        self.leaderships += partition.leads

    @property
    def is_registered(self) -> bool:
        """Whether the cluster certainly counts on this broker."""
        return self._membership is not None and self._membership.is_valid

    def _credentials(self) -> Credentials | None:
        membership = self._membership
        if membership is None or membership.epoch is None:
            return None
        return Credentials(self._broker_id, membership.epoch, self._secret)

    async def join(self, addresses: list[Listener]) -> None:
        """Register with these addresses; return when the controller counts on this broker."""
        registration = Registration(
            addresses,
            self.directory.directory_id,
            rack=self._config.broker.rack or "",
            secret=self._secret,
            kept=self.directory.kept,
        )
        ttl_s = self._config.cluster.session_timeout_ms // 1000
        membership = Membership(self._store, self._image, self._broker_id, registration, ttl_s=ttl_s)
        self._membership = membership
        if self.directory.kept is Kept.NOTHING:
            self._emptied = self._only_here()
        membership.set_failed(self._failed())
        membership.on_registered = self._registered
        await membership.register()
        self._replicas.is_in_touch = lambda: membership.is_valid
        self._in_office.spawn("registration", membership.run())
        self._in_office.spawn("controller", self.controller.run())
        self._tasks.spawn("peers", self.peers.run())
        self._tasks.spawn("in-sync replicas", self.in_sync.run())
        self._tasks.spawn("failed partitions", self._tell_failed(membership))
        self._tasks.spawn("check of addresses", self.peers.check_own(addresses))
        await self._until_admitted()
        self.was_admitted = True
        await self._replicas.admitted()
        logger.info("this broker is %d of the cluster, at %s:%d", self._broker_id, addresses[0].host, addresses[0].port)

    def _registered(self) -> None:
        self._replicator.reconnect()
        self._tasks.spawn("note of the registration", self._note_epoch(self.epoch))

    async def _note_epoch(self, epoch: int) -> None:
        """Note in the data directory that it was in use with this registration, so that an old copy of it is known."""
        directory_id, disk, data_dir = self.directory.directory_id, self._host.disk, self._config.broker.data_dir
        async with self._noting:  # in the order of the registrations
            await self._threads.run(lambda: note_epoch(disk, data_dir, directory_id, epoch))

    async def _tell_failed(self, membership: Membership) -> None:
        """Let other replicas lead the partitions whose logs have failed here."""
        while True:
            await asyncio.sleep(_LOOK_FOR_FAILED_S)
            membership.set_failed(self._failed())

    def _failed(self) -> list[tuple[UUID, int]]:
        if self._emptied:
            self._emptied &= self._only_here()  # until another replica was elected, by request
        return [*self._replicas.failed(), *self._emptied]

    def _only_here(self) -> set[tuple[UUID, int]]:
        """Return the partitions of which only the replica here is in sync, and others exist.

        If it is gone with the data directory, an empty log must not replace what the others have.
        """
        return {
            (topic.topic_id, number)
            for topic in self._image
            for number, state in enumerate(topic.partitions)
            if state.isr == [self._broker_id] and len(state.replicas) > 1
        }

    async def _until_admitted(self) -> None:
        changed = asyncio.Event()
        self._image.member_watchers.append(changed.set)
        try:
            while (me := self._image.members.find(self._broker_id)) is None or not me.is_live:
                changed.clear()
                await changed.wait()
        finally:
            self._image.member_watchers.remove(changed.set)

    # --- stop

    async def hand_over(self, within_s: float) -> None:
        """Let others lead, as far as there are others that can; be the controller no more, nor register again."""
        if self._membership is not None and not await self._membership.drain(within_s):
            logger.warning("not all partitions that this broker leads were handed over in %.0f s", within_s)
        await self._in_office.close()

    async def leave(self) -> None:
        """End the registration."""
        await self._in_office.close()
        if self._membership is not None:
            try:
                await self._membership.leave()
            except FlyMQError as error:  # it ends by itself when it is not renewed
                logger.warning("the registration of this broker could not be ended: %s", error.message)


def _peer_tls(tls: TlsSettings) -> ssl.SSLContext | None:
    """Return how this broker connects to others: as it expects it of them."""
    if tls.cert_file is None:
        return None
    context = ssl.create_default_context(cafile=tls.ca_file)
    context.load_cert_chain(tls.cert_file, tls.key_file)
    return context
