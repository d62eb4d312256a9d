"""What the programs in this folder are built on: sets of Maven artifacts, resolved once into Maven's own repository."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import zlib
from pathlib import Path

KAFKA = "4.3.1"
"""With an epoch for every transaction (KIP-890) and both group protocols."""
KAFKA_BEFORE = "3.9.1"
"""The last one without an epoch for every transaction."""
SPRING_BOOT = "4.0.0"
FLINK = "2.0.0"

SETS = {
    # Clients, command-line tools, Streams, Connect and MirrorMaker in one set: they share all but a few jars.
    f"kafka-{KAFKA}": [
        *(f"org.apache.kafka:{name}:{KAFKA}" for name in ("kafka-tools", "kafka_2.13", "kafka-streams")),
        *(f"org.apache.kafka:{name}:{KAFKA}" for name in ("connect-runtime", "connect-file", "connect-mirror")),
        "org.slf4j:slf4j-simple:1.7.36",
    ],
    f"clients-{KAFKA_BEFORE}": [f"org.apache.kafka:kafka-clients:{KAFKA_BEFORE}"],
    f"flink-{FLINK}": [
        f"org.apache.flink:flink-clients:{FLINK}",
        f"org.apache.flink:flink-connector-base:{FLINK}",
        "org.apache.flink:flink-connector-kafka:4.0.0-2.0",
        "org.slf4j:slf4j-simple:1.7.36",
    ],
    f"spring-{SPRING_BOOT}": [f"org.springframework.boot:spring-boot-starter-kafka:{SPRING_BOOT}"],
}
MISSING = "the JVM's Kafka clients cannot be had: they need a JDK (java, javac), and Maven that reaches its repository"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "flymq-tests"
_LEFT_OUT = ("rocksdbjni",)
"""Seventy megabytes of native libraries; Streams keeps its state in memory here, and in its changelog topics."""
_POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>tests</groupId><artifactId>{name}</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = """
    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
      <exclusions>{exclusions}</exclusions>
    </dependency>"""
_EXCLUSION = "<exclusion><groupId>*</groupId><artifactId>{}</artifactId></exclusion>"


def find_classpath(name: str) -> str | None:
    """Return the class path of a set; None where it cannot be had. The first call of a machine downloads it."""
    if shutil.which("java") is None or shutil.which("javac") is None:
        return None
    pom = _pom(name)
    known = CACHE / f"{name}-{zlib.crc32(pom.encode()):08x}.classpath"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "maven.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Maven's repository is not made for two at a time
        if not _is_complete(known) and not _resolve(pom, known):
            return None
    return known.read_text()


def _is_complete(known: Path) -> bool:
    return known.is_file() and all(Path(jar).is_file() for jar in known.read_text().split(os.pathsep))


def _resolve(pom: str, known: Path) -> bool:
    maven = shutil.which("mvn")
    if maven is None:
        return False
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        file, target = Path(scratch, "pom.xml"), Path(scratch, "classpath")
        file.write_text(pom)
        goal = ["dependency:build-classpath", "-DincludeScope=runtime", f"-Dmdep.outputFile={target}"]
        command = [maven, "--quiet", "--batch-mode", f"--file={file}", *goal]
        if subprocess.run(command, capture_output=True, timeout=300, check=False).returncode != 0:
            return False
        target.replace(known)
    return True


def _pom(name: str) -> str:
    exclusions = "".join(map(_EXCLUSION.format, _LEFT_OUT))
    parts = [_DEPENDENCY.format(*each.split(":"), exclusions=exclusions) for each in SETS[name]]
    return _POM.format(name=name, dependencies="".join(parts))
