"""The metadata store that the brokers of a cluster share: etcd, or that of another process of the machine."""

from __future__ import annotations

import ssl

from flymq.host.host import Host
from flymq.metadata.etcd.config import EtcdConfig, parse_endpoints
from flymq.metadata.store import MetadataStore
from flymq.model.errors import InvalidSetting
from flymq.server.config import ClusterSettings


async def open_cluster_store(host: Host, settings: ClusterSettings) -> MetadataStore:
    """Open the metadata store that the brokers of a cluster share."""
    # Imported here: a single broker, which starts in a moment, needs neither.
    if settings.store is not None:
        from flymq.metadata.served.client import ServedMetadataStore

        return ServedMetadataStore.at(host, settings.store)
    from flymq.metadata.etcd.store import EtcdMetadataStore

    return await EtcdMetadataStore.open(host, etcd_config(settings))


def etcd_config(settings: ClusterSettings) -> EtcdConfig:
    """Return how to reach etcd."""
    assert settings.etcd is not None, "the broker is not in a cluster on etcd"
    return EtcdConfig(
        parse_endpoints(settings.etcd),
        f"/flymq/{settings.name}/",
        _tls_context(settings),
        settings.etcd_username or "",
        settings.etcd_password or "",
    )


def _tls_context(settings: ClusterSettings) -> ssl.SSLContext | None:
    if settings.etcd_ca_file is None and settings.etcd_cert_file is None:
        return None
    try:
        context = ssl.create_default_context(cafile=settings.etcd_ca_file)
        if settings.etcd_cert_file is not None:
            context.load_cert_chain(settings.etcd_cert_file, settings.etcd_key_file)
    except (OSError, ssl.SSLError) as error:
        raise InvalidSetting(
            f"cluster.etcd_ca_file, cluster.etcd_cert_file or cluster.etcd_key_file cannot be used: {error}"
        ) from error
    return context
