"""The metadata of a single broker, copied into the empty metadata store of a cluster.

    adopting    id of the data directory whose metadata is being copied; while it is there, no broker starts

A copy is claimed by this key, written in several txns, and ends with one that replaces the key by `cluster`. One that
was interrupted is made again from its beginning, by the same data directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from flymq.cluster.catalog import (
    ADOPTING_KEY,
    CLUSTER_KEY,
    GONE_PREFIX,
    MADE_PREFIX,
    NO_LEADER,
    PARTITION_PREFIX,
    PRODUCER_IDS_KEY,
    SETTINGS_PREFIX,
    TOPIC_PREFIX,
    Scope,
    encode_state,
    parse_partition,
    settings_key,
)
from flymq.metadata.store import (
    TXN_BYTES_MAX,
    TXN_OPS_MAX,
    Delete,
    DeletePrefix,
    MetadataStore,
    Put,
    has_value,
    is_absent,
)
from flymq.model.errors import ClusterNotEmpty

Metadata = dict[str, bytes]
"""Keys and their values."""

_COPIED = (TOPIC_PREFIX, PARTITION_PREFIX, MADE_PREFIX, GONE_PREFIX, SETTINGS_PREFIX, PRODUCER_IDS_KEY)


def translate(found: Mapping[str, bytes], *, old_id: int, broker_id: int, directory_id: str) -> Metadata:
    """Return the metadata of a single broker as that of a cluster in which it is alone, with this broker id.

    Nobody leads yet: the controller elects the broker when it has joined.
    """
    own_settings = settings_key(Scope.BROKER, str(old_id))
    translated: Metadata = {}
    for key, value in found.items():
        if key.startswith(PARTITION_PREFIX):
            state = replace(parse_partition(value), leader=NO_LEADER, replicas=[broker_id], isr=[broker_id])
            translated[key] = encode_state(state)
        elif key.startswith(MADE_PREFIX):
            translated[f"{key}/{directory_id}"] = value
        elif key.startswith(GONE_PREFIX):
            topic_id = key.removeprefix(GONE_PREFIX).partition("/")[0]
            translated[f"{GONE_PREFIX}{topic_id}/{broker_id}"] = value
        elif key == own_settings:
            translated[settings_key(Scope.BROKER, str(broker_id))] = value
        elif key.startswith(_COPIED):
            translated[key] = value
    return translated


async def check_is_free(store: MetadataStore, directory_id: str) -> None:
    """Raise ClusterNotEmpty if there is anything but an interrupted copy from the same data directory."""
    found = {each.key: each.value for each in (await store.range("")).key_values}
    claim = found.get(ADOPTING_KEY)
    if claim is None and found:
        raise ClusterNotEmpty(f"the metadata store has {len(found)} keys already, such as {min(found)!r}")
    if claim is not None and claim != directory_id.encode():
        raise ClusterNotEmpty(f"the metadata of another data directory, {claim.decode()}, is being copied there")


async def copy(store: MetadataStore, metadata: Metadata, directory_id: str) -> None:
    """Claim the store and write all of it. No broker can start on it before `finish`."""
    claim = directory_id.encode()
    result = await store.txn(
        [is_absent(ADOPTING_KEY), is_absent(CLUSTER_KEY)],
        [Put(ADOPTING_KEY, claim)],
    )
    if not result.succeeded:  # what an interrupted copy has left may be outdated
        result = await store.txn([has_value(ADOPTING_KEY, claim)], [DeletePrefix(prefix) for prefix in _COPIED])
    for some in _blocks(metadata):
        if not result.succeeded:
            break
        result = await store.txn([has_value(ADOPTING_KEY, claim)], some)
    if not result.succeeded:
        raise _taken()


async def finish(store: MetadataStore, cluster_id: str, directory_id: str) -> None:
    """Let brokers start."""
    result = await store.txn(
        [has_value(ADOPTING_KEY, directory_id.encode())],
        [Delete(ADOPTING_KEY), Put(CLUSTER_KEY, cluster_id.encode())],
    )
    if not result.succeeded:
        raise _taken()


def _blocks(metadata: Metadata) -> Iterator[list[Put]]:
    """Yield puts that fit into a txn, beside its condition."""
    block: list[Put] = []
    size = 0
    for key, value in metadata.items():
        if len(block) == TXN_OPS_MAX or (block and size + len(key) + len(value) > TXN_BYTES_MAX // 2):
            yield block
            block, size = [], 0
        block.append(Put(key, value))
        size += len(key) + len(value)
    if block:
        yield block


def _taken() -> ClusterNotEmpty:
    return ClusterNotEmpty("another broker or copy has begun to use the metadata store meanwhile")
