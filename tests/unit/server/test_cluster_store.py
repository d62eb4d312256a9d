"""How the settings of a cluster become a connection to etcd."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme
from tests.unit.broker.world import World

from flymq.host.virtual_time import run
from flymq.metadata.etcd.config import Endpoint
from flymq.model.errors import InvalidSetting
from flymq.server.cluster_store import etcd_config
from flymq.server.config import ClusterSettings


def test_members_keys_and_login_are_those_of_the_settings() -> None:
    settings = ClusterSettings(
        etcd="http://a:2379, https://b", name="blue", etcd_username="flymq", etcd_password="hunter2"
    )
    found = etcd_config(settings)
    assert found.endpoints == (Endpoint("a", 2379, is_tls=False), Endpoint("b", 2379, is_tls=True))
    assert found.prefix == "/flymq/blue/"
    assert (found.user, found.password) == ("flymq", "hunter2")
    assert found.tls is None, "the certificates of the system"


def test_etcd_is_verified_by_the_given_authority_and_sees_our_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = authority.issue_cert("flymq")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    files = {f"etcd_{name}_file": tmp_path / f"{name}.pem" for name in ("ca", "cert", "key")}
    tls = etcd_config(ClusterSettings(etcd="https://a", **files)).tls  # type: ignore[arg-type]
    assert tls is not None and tls.verify_mode is ssl.CERT_REQUIRED and tls.check_hostname
    assert len(tls.get_ca_certs()) == 1
    (tmp_path / "key.pem").write_text("no key")
    with pytest.raises(InvalidSetting, match="etcd_key_file cannot be used"):
        etcd_config(ClusterSettings(etcd="https://a", **files))  # type: ignore[arg-type]


def test_no_client_is_shown_the_password_or_the_files_of_etcd() -> None:
    async def live() -> None:
        world = World()
        shown = (await world.start()).service.settings.file
        assert "cluster.etcd" in shown
        assert shown.keys().isdisjoint({"cluster.etcd_password", "cluster.etcd_key_file", "cluster.store"})
        await world.close()

    run(live())
