"""What coordinators are for."""

from __future__ import annotations

from enum import Enum


class CoordinatorKind(Enum):
    """What a broker coordinates."""

    GROUP = "group"
    TRANSACTION = "transaction"
    """Transactional ids, and the queries whose attempts are committed together."""
