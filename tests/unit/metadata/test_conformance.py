"""What every engine of the metadata store promises. A new engine is one more line in `ENGINES`."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.etcd_process import shared_etcd

from flymq.host.disk import SystemDisk
from flymq.host.host import system_host
from flymq.host.simulated_disk import SimulatedDisk
from flymq.metadata.etcd.config import EtcdConfig, parse_endpoints
from flymq.metadata.etcd.store import EtcdMetadataStore
from flymq.metadata.served.client import ServedMetadataStore
from flymq.metadata.served.server import MetadataServer
from flymq.metadata.sqlite import SqliteMetadataStore
from flymq.metadata.store import (
    NO_LEASE,
    TXN_BYTES_MAX,
    TXN_OPS_MAX,
    Compare,
    Delete,
    DeletePrefix,
    EventBatch,
    Get,
    KeyValue,
    MetadataStore,
    Op,
    Put,
    Relation,
    Target,
    created_at,
    exists,
    has_value,
    is_absent,
    modified_at,
)
from flymq.model.errors import InvalidTxn, MetadataUnavailable, RevisionCompacted, SessionEnded


class Engine(NamedTuple):
    open: Callable[[Path], AbstractAsyncContextManager[MetadataStore]]
    forget: Callable[[MetadataStore], Awaitable[None]]
    """Make the store forget the changes up to now."""


async def write_more_than_the_history_holds(store: MetadataStore) -> None:
    await store.txn(success=[Put("elsewhere", bytes(20_000))])
    await store.txn(success=[Delete("elsewhere")])


DATA = Path("/data")


@asynccontextmanager
async def sqlite_in_a_file(directory: Path) -> AsyncIterator[MetadataStore]:
    yield SqliteMetadataStore.open(SystemDisk(), directory / "metadata.db", history_bytes_max=10_000)


@asynccontextmanager
async def sqlite_on_a_simulated_disk(directory: Path) -> AsyncIterator[MetadataStore]:
    disk = SimulatedDisk()
    disk.make_directory(DATA)
    yield SqliteMetadataStore.open(disk, DATA / "metadata.db", history_bytes_max=10_000)


@asynccontextmanager
async def etcd(directory: Path) -> AsyncIterator[MetadataStore]:
    """A prefix of its own in an etcd that all tests of this process share."""
    endpoints, prefix = parse_endpoints(shared_etcd().client_url), f"/flymq/{directory.name}-{next(numbers)}/"
    yield await EtcdMetadataStore.open(
        system_host(), EtcdConfig(endpoints, prefix, response_timeout_s=30.0, timeout_s=30.0)
    )


@asynccontextmanager
async def served_sqlite(directory: Path) -> AsyncIterator[MetadataStore]:
    host = system_host()
    store = SqliteMetadataStore.open(SystemDisk(), directory / "metadata.db", history_bytes_max=10_000)
    socket = Path(tempfile.mkdtemp(prefix="flymq-")) / "socket"  # the path of a socket must be short
    server = await MetadataServer.open(host, store, socket)
    yield ServedMetadataStore.at(host, socket)
    await server.close()
    await store.close()
    socket.parent.rmdir()


async def compact(store: MetadataStore) -> None:
    await store.txn(success=[Put("elsewhere", b"")])
    latest = await store.txn(success=[Delete("elsewhere")])
    shared_etcd().call("/v3/kv/compaction", {"revision": latest.revision})


ENGINES = {
    "sqlite in a file": Engine(sqlite_in_a_file, write_more_than_the_history_holds),
    "sqlite on a simulated disk": Engine(sqlite_on_a_simulated_disk, write_more_than_the_history_holds),
    "served sqlite": Engine(served_sqlite, write_more_than_the_history_holds),
    "etcd": Engine(etcd, compact),
}
numbers = count()


@pytest.fixture(params=ENGINES.values(), ids=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> Engine:
    engine: Engine = request.param
    return engine


@pytest.fixture
async def store(engine: Engine, tmp_path: Path) -> AsyncIterator[MetadataStore]:
    async with engine.open(tmp_path) as store:
        yield store
        await store.close()


async def get(store: MetadataStore, key: str) -> KeyValue | None:
    return (await store.txn(success=[Get(key)])).found[0]


async def put(store: MetadataStore, key: str, value: bytes = b"") -> int:
    """Write one key; return the revision it was written at."""
    return (await store.txn(success=[Put(key, value)])).revision


async def keys(store: MetadataStore, prefix: str = "") -> list[str]:
    return [found.key for found in (await store.range(prefix)).key_values]


# --- txn ---


async def test_a_txn_takes_the_next_revision_and_writes_all_its_keys_at_it(store: MetadataStore) -> None:
    before = (await store.range("")).revision
    result = await store.txn(success=[Put("a", b"1"), Put("b", b"2")])
    assert result.succeeded
    assert result.revision == before + 1
    assert await store.range("") == (
        result.revision,
        (KeyValue("a", b"1", result.revision, result.revision), KeyValue("b", b"2", result.revision, result.revision)),
    )


async def test_a_key_keeps_its_creation_until_it_is_deleted(store: MetadataStore) -> None:
    created = await put(store, "a", b"1")
    written = await put(store, "a", b"2")
    assert await get(store, "a") == KeyValue("a", b"2", created, written)
    await store.txn(success=[Delete("a")])
    again = await put(store, "a", b"3")
    assert await get(store, "a") == KeyValue("a", b"3", again, again)


async def test_a_txn_with_a_compare_that_fails_runs_the_other_branch_alone(store: MetadataStore) -> None:
    await put(store, "a", b"1")
    result = await store.txn([exists("a"), is_absent("a")], [Put("yes", b"")], [Put("no", b""), Get("a")])
    assert not result.succeeded
    assert [found and found.value for found in result.found] == [b"1"]
    assert await keys(store) == ["a", "no"]


async def test_compares_see_revisions_and_values(store: MetadataStore) -> None:
    created = await put(store, "a", b"1")
    written = await put(store, "a", b"2")
    for compare, expected in [
        (exists("a"), True),
        (is_absent("a"), False),
        (is_absent("b"), True),
        (created_at("a", created), True),
        (created_at("a", written), False),
        (modified_at("a", written), True),
        (modified_at("a", created), False),
        (has_value("a", b"2"), True),
        (has_value("a", b"1"), False),
        (Compare("a", Target.MOD_REVISION, Relation.GREATER, created), True),
        (Compare("a", Target.MOD_REVISION, Relation.LESS, written), False),
        (Compare("a", Target.MOD_REVISION, Relation.NOT_EQUAL, written), False),
        (Compare("a", Target.VALUE, Relation.LESS, b"3"), True),
        (Compare("a", Target.VALUE, Relation.GREATER, b"1\xff"), True),
    ]:
        assert (await store.txn([compare])).succeeded is expected, compare


@pytest.mark.parametrize("relation", Relation)
async def test_no_compare_of_an_absent_keys_value_holds(store: MetadataStore, relation: Relation) -> None:
    assert not (await store.txn([Compare("absent", Target.VALUE, relation, b"")])).succeeded


async def test_of_two_who_write_from_the_same_state_only_the_first_succeeds(store: MetadataStore) -> None:
    seen = await put(store, "counter", b"0")
    first = await store.txn([modified_at("counter", seen)], [Put("counter", b"first")])
    second = await store.txn([modified_at("counter", seen)], [Put("counter", b"second")])
    assert (first.succeeded, second.succeeded) == (True, False)
    found = await get(store, "counter")
    assert found is not None and found.value == b"first"


async def test_a_txn_that_changes_nothing_takes_no_revision(store: MetadataStore) -> None:
    revision = await put(store, "a")
    for ops in ([], [Get("a")], [Delete("absent")], [DeletePrefix("absent/")]):
        assert (await store.txn(success=ops)).revision == revision


async def test_a_get_sees_what_its_own_txn_did_before_it(store: MetadataStore) -> None:
    await store.txn(success=[Put("gone", b""), Put("a", b"old")])
    result = await store.txn(success=[Get("a"), Put("a", b"new"), Get("a"), Delete("gone"), Get("gone")])
    assert [found and found.value for found in result.found] == [b"old", b"new", None]


async def test_a_prefix_covers_exactly_the_keys_that_start_with_it(store: MetadataStore) -> None:
    under = ["t/", "t/a", "t/a/b", "t/é", "t/\U0010ffff", "t/\U0010ffff\U0010ffff"]
    beside = ["s", "t", "t.", "t0", "u/a"]
    await store.txn(success=[Put(key, b"") for key in under + beside])
    assert await keys(store, "t/") == under
    await store.txn(success=[DeletePrefix("t/")])
    assert await keys(store) == beside
    await store.txn(success=[DeletePrefix("")])
    assert await keys(store) == []


@pytest.mark.parametrize(
    ("compares", "success", "rule"),
    [
        ([exists(f"{n}") for n in range(TXN_OPS_MAX + 1)], [], "at most 128"),
        ([], [Get(f"{n}") for n in range(TXN_OPS_MAX + 1)], "at most 128"),
        ([], [Put("a", bytes(TXN_BYTES_MAX))], "bytes of keys and values"),
        ([], [Put("a", b"1"), Put("a", b"2")], "'a' is put twice"),
        ([], [Delete("a"), Put("a", b"1")], "'a' is put and deleted"),
        ([], [Put("t/a", b"1"), DeletePrefix("t/")], "'t/a' is put and deleted"),
        ([], [Put("", b"1")], "must not be empty"),
        ([exists("")], [], "must not be empty"),
        ([Compare("a", Target.VALUE, Relation.EQUAL, 1)], [], "the value of 'a' is compared to 1"),
    ],
)
async def test_a_txn_that_some_engine_would_refuse_is_refused_by_all(
    store: MetadataStore, compares: list[Compare], success: list[Op], rule: str
) -> None:
    with pytest.raises(InvalidTxn, match=rule):
        await store.txn(compares, success)
    with pytest.raises(InvalidTxn, match=rule):
        await store.txn(compares, [], success)
    assert await keys(store) == []


async def test_the_largest_txn_allowed_is_accepted(store: MetadataStore) -> None:
    names = [f"{n:03}" for n in range(TXN_OPS_MAX)]
    value = bytes((TXN_BYTES_MAX - 2 * 3 * TXN_OPS_MAX) // TXN_OPS_MAX)
    assert (await store.txn([is_absent(name) for name in names], [Put(name, value) for name in names])).succeeded
    assert await keys(store) == names


# --- watch ---


async def test_a_watch_gives_what_happened_and_then_what_happens_one_batch_a_revision(store: MetadataStore) -> None:
    first = await store.txn(success=[Put("a", b"1"), Put("b", b"2")])
    second = await store.txn(success=[Delete("a"), Put("b", b"3")])
    watch = store.watch("", from_revision=first.revision)
    a, b = (KeyValue(key, value, first.revision, first.revision) for key, value in (("a", b"1"), ("b", b"2")))
    assert await anext(watch) == (first.revision, (("a", a), ("b", b)))
    assert await anext(watch) == (
        second.revision,
        (("a", None), ("b", KeyValue("b", b"3", first.revision, second.revision))),
    )
    third = await put(store, "c")
    assert (await anext(watch)).revision == third


async def test_a_watch_gives_only_what_lies_under_its_prefix(store: MetadataStore) -> None:
    revision = (await store.range("")).revision
    await put(store, "other")
    both = await store.txn(success=[Put("other", b""), Put("t/a", b"")])
    gone = await store.txn(success=[DeletePrefix("")])
    watch = store.watch("t/", from_revision=revision + 1)
    batches = [await anext(watch), await anext(watch)]
    assert [batch.revision for batch in batches] == [both.revision, gone.revision]
    assert [[event.key for event in batch.events] for batch in batches] == [["t/a"], ["t/a"]]


async def test_a_watch_from_a_later_revision_leaves_out_what_comes_before_it(store: MetadataStore) -> None:
    revision = await put(store, "a")
    watch = store.watch("", from_revision=revision + 2)
    await put(store, "b")
    later = await put(store, "c")
    assert (await anext(watch)).revision == later


async def test_a_watch_from_a_forgotten_revision_says_so(engine: Engine, store: MetadataStore) -> None:
    revision = await put(store, "a")
    await engine.forget(store)
    with pytest.raises(RevisionCompacted):
        await anext(store.watch("", from_revision=revision))


async def test_a_slow_watch_leaves_nothing_out_or_says_so(engine: Engine, store: MetadataStore) -> None:
    watch = store.watch("", from_revision=await put(store, "a"))
    await anext(watch)
    written = await put(store, "perhaps missed")
    await engine.forget(store)
    with contextlib.suppress(RevisionCompacted):  # unless it was on its way here already
        assert (await anext(watch)).revision == written


async def test_a_watch_ends_when_the_store_is_closed(store: MetadataStore) -> None:
    watch = store.watch("", from_revision=await put(store, "a"))
    await anext(watch)
    await store.close()
    assert [batch async for batch in watch] == []


_KEYS = st.sampled_from(["a", "b", "t/a", "t/b"])
_OPS = st.one_of(
    st.builds(Put, _KEYS, st.binary(max_size=3), st.just(NO_LEASE)),
    st.builds(Delete, _KEYS),
    st.builds(DeletePrefix, st.sampled_from(["", "t/", "x"])),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, *settings().suppress_health_check])
@given(ops=st.lists(_OPS, max_size=30), read_at=st.integers(min_value=0, max_value=30))
async def test_a_snapshot_and_the_watch_after_it_give_the_state_of_now(
    store: MetadataStore, ops: list[Op], read_at: int
) -> None:
    await store.txn(success=[DeletePrefix("")])
    for op in ops[:read_at]:
        await store.txn(success=[op])
    revision, key_values = await store.range("t/")
    for op in ops[read_at:]:
        await store.txn(success=[op])
    end = await put(store, "t/end")

    image = {found.key: found for found in key_values}
    async for batch in store.watch("t/", from_revision=revision + 1):
        _apply(image, batch)
        if batch.revision == end:
            break
    assert tuple(image[key] for key in sorted(image)) == (await store.range("t/")).key_values


def _apply(image: dict[str, KeyValue], batch: EventBatch) -> None:
    for key, found in batch.events:
        if found is None:
            del image[key]
        else:
            assert found.mod_revision == batch.revision
            image[key] = found


# --- sessions ---


async def test_the_keys_of_a_session_go_together_when_it_ends(store: MetadataStore) -> None:
    session, other = await store.session(ttl_s=5), await store.session(ttl_s=5)
    written = await store.txn(
        success=[Put("b/1", b"", session.lease), Put("b/2", b"", session.lease), Put("b/3", b"", other.lease)]
    )
    await put(store, "stays")
    assert session.is_valid
    await session.close()
    assert session.has_ended
    assert not session.is_valid
    await session.wait_ended()
    assert not other.has_ended
    assert await keys(store) == ["b/3", "stays"]
    watch = store.watch("b/", from_revision=written.revision + 1)
    assert (await anext(watch)).events == (("b/1", None), ("b/2", None))


async def test_a_key_belongs_to_the_session_that_wrote_it_last(store: MetadataStore) -> None:
    first, second = await store.session(ttl_s=5), await store.session(ttl_s=5)
    for key in ("freed", "taken", "kept"):
        await store.txn(success=[Put(key, b"", first.lease)])
    await store.txn(success=[Put("freed", b""), Put("taken", b"", second.lease)])
    await first.close()
    assert await keys(store) == ["freed", "taken"]
    await second.close()
    assert await keys(store) == ["freed"]


async def test_a_txn_with_the_lease_of_an_ended_session_changes_nothing(store: MetadataStore) -> None:
    session = await store.session(ttl_s=5)
    await session.close()
    revision = (await store.range("")).revision
    with pytest.raises(SessionEnded):
        await store.txn(success=[Put("a", b""), Put("b", b"", session.lease)])
    assert await store.range("") == (revision, ())


async def test_the_first_to_create_a_leased_key_holds_it_until_its_session_ends(store: MetadataStore) -> None:
    first, second = await store.session(ttl_s=5), await store.session(ttl_s=5)
    won = await store.txn([is_absent("ctl")], [Put("ctl", b"1", first.lease)])
    assert won.succeeded
    assert not (await store.txn([is_absent("ctl")], [Put("ctl", b"2", second.lease)])).succeeded
    await first.close()
    next_won = await store.txn([is_absent("ctl")], [Put("ctl", b"2", second.lease)])
    assert next_won.succeeded
    paused_write = await store.txn([created_at("ctl", won.revision)], [Put("p/1", b"stale")])
    assert not paused_write.succeeded


async def test_a_closed_store_answers_that_it_is_unavailable(store: MetadataStore) -> None:
    session = await store.session(ttl_s=5)
    await store.close()
    await store.close()
    await session.close()
    assert session.has_ended
    for call in (store.txn(success=[Put("a", b"")]), store.range(""), store.session(ttl_s=5)):
        with pytest.raises(MetadataUnavailable):
            await call
