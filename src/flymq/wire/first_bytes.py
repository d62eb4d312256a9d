"""Whose a stream is, by its first bytes: what lets one port speak many protocols."""

from __future__ import annotations

from enum import Enum


class Speaks(Enum):
    """What a protocol makes of the first bytes of a stream, at least one of them."""

    YES = "yes"
    NO = "no"
    MORE = "more"
    """Too few to tell."""
