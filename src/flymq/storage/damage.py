"""Corrupt batches found in a log since it was opened: by a reader, by compaction, by the scrub. Each is logged once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from flymq.model.errors import CorruptLog

logger = logging.getLogger(__name__)

_KNOWN_MAX = 100


class Damage:
    """What is known to be corrupt in one log."""

    def __init__(self) -> None:
        self._found: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[str]:
        """Yield what is damaged: file, position and reason."""
        return iter(self._found)

    def note(self, error: CorruptLog) -> None:
        if error.message not in self._found and len(self._found) < _KNOWN_MAX:
            self._found[error.message] = None
            logger.error("corrupt batch: %s. %s", error.message, error.hint)

    def forget(self, path: Path) -> None:
        """The file is removed or replaced."""
        if self._found:
            self._found = {text: None for text in self._found if not text.startswith(f"{path} ")}
