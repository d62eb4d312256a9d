"""The caller of a service operation. Gateways set its fields as they learn them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Caller:
    """One client on one connection, of any protocol."""

    protocol: str
    address: str = ""
    """The host of the client."""
    client_id: str = ""
    """The client id it has sent."""
    principal: str = ""
    """The authenticated user; empty: anonymous."""
    connection: int = 0
    """The number of its connection: they are numbered in the order in which they were accepted."""
    is_encrypted: bool = False
    """Whether the connection has TLS."""
    is_peer: bool = False
    """Whether it is another broker of the cluster, which has charged its client already."""

    @property
    def quota_name(self) -> str:
        """The key of its quota."""
        return self.principal or self.client_id or self.address
