"""What the broker tells on stderr: one line for each event that matters, for people or for a log collector."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import msgspec

from flymq.server.config import LogFormat, LogSettings


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def set_up_logs(settings: LogSettings) -> None:
    """Send FlyMQ's messages to stderr, in the form and from the level that the settings say."""
    handler = logging.StreamHandler(sys.stderr)
    if settings.format is LogFormat.JSON:
        handler.setFormatter(_JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S"))
    root = logging.getLogger("flymq")
    root.handlers[:] = [handler]
    root.setLevel(settings.level.value.upper())
    root.propagate = False
    # What asyncio warns about, such as a connection that broke, is an everyday matter of a port on a network.
    other = logging.getLogger("asyncio")
    other.handlers[:] = [handler]
    other.setLevel(logging.ERROR)
    other.propagate = False
