"""The data directory of a broker that does not run, for the commands that repair it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from flymq.cluster.image import Image
from flymq.host.host import Host
from flymq.host.simulated_disk import SimulatedDisk
from flymq.metadata.images import IMAGE_NAME
from flymq.metadata.recovery import Recovered
from flymq.metadata.sqlite import SqliteMetadataStore
from flymq.model.errors import DataDirectoryMissing
from flymq.model.topic_config import TopicConfig
from flymq.storage.data_directory import DataDirectory


@dataclass(frozen=True, slots=True)
class StoppedBroker:
    """The logs of a broker and its topics."""

    directory: DataDirectory
    image: Image


@asynccontextmanager
async def stopped_broker(host: Host, data_dir: Path) -> AsyncIterator[StoppedBroker]:
    """Lock the data directory, so that no broker starts on it, and read its metadata."""
    if not host.disk.exists(data_dir / IMAGE_NAME):
        raise DataDirectoryMissing(f"{data_dir} is not the data directory of a broker")
    directory = DataDirectory(host.disk, data_dir)
    try:
        store = SqliteMetadataStore.open(host.disk, data_dir / IMAGE_NAME)
        try:
            image = Image(store, TopicConfig())
            await image.load()
        finally:
            await store.close()
        yield StoppedBroker(directory, image)
    finally:
        directory.close()


def open_in_memory(data_dir: Path, recovered: Recovered | None = None) -> SqliteMetadataStore:
    """Open what was read of a store, or an empty one, such that nothing is written to the disk."""
    disk = SimulatedDisk()
    disk.make_directory(data_dir)
    if recovered is not None:
        recovered = replace(recovered, problems=[], lost=[], damaged=[], image_revision=None, journal=None)
    return SqliteMetadataStore.open(disk, data_dir / IMAGE_NAME, recovered=recovered)
