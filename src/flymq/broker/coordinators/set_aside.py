"""Unreadable records of internal topics: skipped, copied to a file, and reported. The broker keeps running.

    <data dir>/set-aside/__offsets-0.jsonl      one line per record: offset, reason, key and value in base64

The records stay in the topic and are skipped at every start, so that a broker of a newer version, which may have
written them, can still read them. `flymq repair internal-topics` deletes them.
"""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path

from flymq.coordination.entries import Unreadable
from flymq.host.disk import Disk, replace_file
from flymq.model.errors import StorageError
from flymq.model.names import TopicPartition

logger = logging.getLogger(__name__)

FOLDER = "set-aside"
_NAMED_MAX = 5


class SetAside:
    """Copies unreadable records and reports them."""

    def __init__(self, disk: Disk, data_dir: Path) -> None:
        self._disk = disk
        self._folder = data_dir / FOLDER
        self.problems: dict[TopicPartition, str] = {}
        """For /health: what was skipped, by partition."""
        self.records = 0
        """Number of skipped records since the start, for metrics."""

    def copy(self, name: TopicPartition, found: Sequence[Unreadable]) -> Path:
        """Write the records to a file. Waits for the disk."""
        path = self._folder / f"{name}.jsonl"
        self._disk.make_directory(self._folder)
        replace_file(self._disk, path, "".join(_line(each) for each in found).encode())
        return path

    def report(self, name: TopicPartition, found: Sequence[Unreadable]) -> None:
        """Copy the records that the coordinator of a partition skips, and report them in the log and in /health."""
        try:
            where = f"a copy is in {self.copy(name, found)}"
        except StorageError as error:
            where = f"they could not be copied: {error.message}"
        self.records += len(found)
        skipped = f"{name}: {len(found)} records are unreadable and were skipped"
        self.problems[name] = f"{skipped}; {where}"
        some = "; ".join(f"offset {each.offset}: {each.reason}" for each in found[:_NAMED_MAX])
        more = "" if len(found) <= _NAMED_MAX else f"; and {len(found) - _NAMED_MAX} more"
        logger.error(
            "%s (%s%s); %s. To remove them from the topic, stop the broker and run: "
            "flymq repair internal-topics --data-dir %s",
            skipped,
            some,
            more,
            where,
            self._folder.parent,
        )


def _line(record: Unreadable) -> str:
    fields = {
        "offset": record.offset,
        "reason": record.reason,
        "key": None if record.key is None else b64encode(record.key).decode(),
        "value": None if record.value is None else b64encode(record.value).decode(),
    }
    return json.dumps(fields) + "\n"
