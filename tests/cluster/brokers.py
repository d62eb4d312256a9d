"""A cluster of broker processes on one machine. Its metadata store is served from here, or an etcd."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tests.broker_process import BrokerProcess

from flymq.cluster.image import Image, Topic
from flymq.host.host import system_host
from flymq.metadata.etcd.config import EtcdConfig, parse_endpoints
from flymq.metadata.etcd.store import EtcdMetadataStore
from flymq.metadata.served.server import MetadataServer
from flymq.metadata.sqlite import SqliteMetadataStore
from flymq.metadata.store import MetadataStore
from flymq.model.topic_config import TopicConfig

WITHIN_S = 60
T = TypeVar("T")


class StoreThread:
    """The metadata store in a thread of its own, and an image of it to look at."""

    settings: Mapping[str, object]
    """Of brokers that use this store."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._ready.wait(WITHIN_S)

    def _open(self) -> AbstractAsyncContextManager[MetadataStore]:
        raise NotImplementedError

    async def _run(self) -> None:
        async with self._open() as store:
            self.image = Image(store, TopicConfig())
            await self.image.load()
            following = asyncio.ensure_future(self.image.follow())
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            self._ready.set()
            await self._stop.wait()
            following.cancel()

    def until(self, condition: Callable[[Image], bool], what: str) -> None:
        """Wait until the image of the cluster is as it should be."""
        asyncio.run_coroutine_threadsafe(self._until(condition, what), self._loop).result(2 * WITHIN_S)

    async def _until(self, condition: Callable[[Image], bool], what: str) -> None:
        changed = asyncio.Event()
        self.image.watchers.append(lambda _: changed.set())
        self.image.member_watchers.append(changed.set)
        try:
            async with asyncio.timeout(WITHIN_S):
                while not condition(self.image):
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            states = {topic.name: topic.partitions for topic in self.image}
            raise AssertionError(f"{what}: not within {WITHIN_S} s; {states}") from None

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


class ServedStore(StoreThread):
    """A store that is served from here, as a supervisor does."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "store"
        self.settings = {"cluster.store": self.socket}
        self._path = folder / "metadata"
        super().__init__()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[MetadataStore]:
        host, path = system_host(), self._path
        threads = host.new_threads("metadata", 2)
        store = await threads.run(lambda: SqliteMetadataStore.open(host.disk, path, threads=threads, on_fatal=_failed))
        server = await MetadataServer.open(host, store, self.socket)
        yield store
        await server.close()
        await store.close()
        threads.close()


class EtcdStore(StoreThread):
    """An etcd that runs elsewhere."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.settings = {"cluster.etcd": ",".join(urls)}
        self._urls = urls
        super().__init__()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[MetadataStore]:
        store = await EtcdMetadataStore.open(
            system_host(), EtcdConfig(parse_endpoints(",".join(self._urls)), "/flymq/flymq/")
        )
        yield store
        await store.close()


def _failed(error: Exception) -> None:
    raise error


@dataclass(frozen=True)
class Place:
    """Where a broker runs: its address, and the command that runs another one there."""

    host: str = "127.0.0.1"
    within: Sequence[str] = ()
    environ: Mapping[str, str] = field(default_factory=dict)


class Brokers:
    """The brokers 1 to `count`, each a process."""

    def __init__(
        self,
        folder: Path,
        count: int = 3,
        settings: Mapping[str, object] | None = None,
        own_settings: Callable[[int], Mapping[str, object]] = lambda number: {},
        *,
        store: StoreThread | None = None,
        place: Callable[[int], Place] = lambda number: Place(),
    ) -> None:
        """`own_settings`: of one broker."""
        self.store = store or ServedStore(folder)
        common = {**self.store.settings, "topics.default_replication_factor": min(3, count)}

        def start(number: int) -> BrokerProcess:
            own = {**common, "broker.id": number, **(settings or {}), **own_settings(number)}
            at = place(number)
            log = folder / f"{number}.log"
            return BrokerProcess(folder / str(number), own, log=log, host=at.host, within=at.within, environ=at.environ)

        with ThreadPoolExecutor(count) as pool:
            started = pool.map(start, range(1, count + 1))
        self._by_id = dict(enumerate(started, start=1))
        self.store.until(lambda image: len(image.members.live) == count, "all brokers have joined")

    def __getitem__(self, broker_id: int) -> BrokerProcess:
        return self._by_id[broker_id]

    def __iter__(self) -> Iterator[BrokerProcess]:
        return iter(self._by_id.values())

    @property
    def addresses(self) -> str:
        """The bootstrap list."""
        return ",".join(broker.address for broker in self._by_id.values())

    def topic(self, name: str) -> Topic:
        return self.store.image.get(name)

    def leader_of(self, topic: str, partition: int = 0) -> int:
        return self.topic(topic).partitions[partition].leader

    def until_in_sync(self, topic: str, replicas: int = 3) -> None:
        """Wait until every partition has a leader and so many in-sync replicas."""

        def is_in_sync(image: Image) -> bool:
            found = image.find(topic)
            return found is not None and all(
                state.leader >= 0 and len(state.isr) == replicas for state in found.partitions
            )

        self.store.until(is_in_sync, f"all replicas of {topic} are in sync")

    def kill(self) -> None:
        """End it without ceremony."""
        for broker in self:
            broker.kill()
        self.store.close()

    def close(self) -> None:
        with ThreadPoolExecutor(len(self._by_id)) as pool:
            list(pool.map(lambda broker: broker.is_running and broker.stop(), self._by_id.values()))
        self.store.close()
