"""The broker's log on stderr: text for a terminal, or JSON lines for a log collector."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import msgspec

from flymq.server.config import LogFormat, LogSettings


class _JsonLines(logging.Formatter):
    def __init__(self, broker_id: int | None) -> None:
        super().__init__()
        self._broker_id = broker_id

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, str | int] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._broker_id is not None:
            line["broker"] = self._broker_id
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def set_up_logging(settings: LogSettings, *, broker_id: int | None = None) -> None:
    """Configure logging to stderr, with the format and level of the settings.

    `broker_id` is that of a broker of a cluster: several may write to one terminal or collector.
    """
    handler = logging.StreamHandler(sys.stderr)
    if settings.format is LogFormat.JSON:
        handler.setFormatter(_JsonLines(broker_id))
    else:
        who = "" if broker_id is None else f"broker {broker_id}: "
        handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)-7s {who}%(message)s", "%H:%M:%S"))
    root = logging.getLogger("flymq")
    root.handlers[:] = [handler]
    root.setLevel(settings.level.value.upper())
    root.propagate = False
    # Its warnings, such as about connections that broke, are normal for a port that is open to a network.
    other = logging.getLogger("asyncio")
    other.handlers[:] = [handler]
    other.setLevel(logging.ERROR)
    other.propagate = False
