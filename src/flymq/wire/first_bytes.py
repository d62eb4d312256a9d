"""Protocol detection by the first bytes of a stream, so that one port can serve many protocols."""

from __future__ import annotations

from enum import Enum


class Speaks(Enum):
    """Whether the first bytes of a stream, at least one, are of a protocol."""

    YES = "yes"
    NO = "no"
    MORE = "more"
    """Too few bytes to decide."""
