"""Who asks. Every call of the service names its caller; gateways fill it in as they learn it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Caller:
    """One client on one connection, whatever protocol it speaks."""

    protocol: str
    address: str = ""
    """The host it connects from."""
    client_id: str = ""
    """What it calls itself."""
    principal: str = ""
    """Who it has logged in as; empty: nobody in particular."""

    @property
    def quota_name(self) -> str:
        """The name under which the bytes of this client are counted."""
        return self.principal or self.client_id or self.address
