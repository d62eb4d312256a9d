"""librdkafka's own performance tool, which limits a broker less than any Python program.

Its one source file comes from Debian's source package and is compiled against the library that confluent-kafka brings,
so that the tool and the Python client are the same librdkafka.
"""

from __future__ import annotations

import re
import tarfile
import urllib.request
from importlib.metadata import files
from pathlib import Path

from benchmarks.peers.cache import cache, command
from benchmarks.peers.debian import package_address

_PACKAGE = "librdkafka-dev"
_TAKEN = re.compile(r"in (\d+)ms")


class PerformanceTool:
    name = "rdkafka_performance"

    @property
    def _program(self) -> Path:
        return cache() / "rdkafka_performance"

    def missing(self) -> str | None:
        if self._program.exists():
            return None
        return "it is not in the cache directory: `python -m benchmarks.peers install`, which needs a C compiler"

    def install(self) -> None:
        address = package_address(_PACKAGE)
        version = address.rpartition("/")[2].split("_")[1].partition("-")[0]
        archive = cache() / f"librdkafka-{version}.tar.gz"
        urllib.request.urlretrieve(f"{address.rpartition('/')[0]}/librdkafka_{version}.orig.tar.gz", archive)
        with tarfile.open(archive) as packed:
            packed.extractall(cache(), filter="data")
        folder = cache() / f"librdkafka-{version}"
        command("./configure", folder=folder)
        library = _library()
        linked = (str(library), f"-Wl,-rpath,{library.parent}", "-lpthread", "-lm")
        command(
            "cc", "-O2", "-w", "-Isrc", "examples/rdkafka_performance.c", "-o", self._program, *linked, folder=folder
        )

    def produce(self, port: int, topic: str, count: int) -> float:
        """Write with the library's own 5 ms of lingering; the tool would wait for a second."""
        return self._run("-P", "-s", "100", "-a", "1", "-X", "linger.ms=5", port=port, topic=topic, count=count)

    def consume(self, port: int, topic: str, count: int) -> float:
        return self._run("-C", "-o", "beginning", "-B", "10000", port=port, topic=topic, count=count)

    def _run(self, *mode: str, port: int, topic: str, count: int) -> float:
        """Return the seconds that the tool itself counted: connecting is not among them."""
        where = ("-b", f"127.0.0.1:{port}", "-t", topic, "-p", "0", "-c", str(count))
        said = _TAKEN.findall(command(self._program, *mode, *where))
        return int(said[-1]) / 1000


def _library() -> Path:
    """Return the librdkafka that confluent-kafka was installed with."""
    installed = files("confluent-kafka") or []
    return next(Path(str(file.locate())).resolve() for file in installed if file.name.startswith("librdkafka"))
