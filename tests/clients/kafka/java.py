"""Apache Kafka's own client for Java: its jars are fetched once into a cache by Maven."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

VERSIONS = ("4.3.1", "3.9.1")
"""With an epoch for every transaction (KIP-890), and the last one without."""
FOLDER = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "flymq-tests"
MISSING = "Apache Kafka's client is not installed: it needs a JDK, and Maven that reaches its repository"
_POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>tests</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>
  </dependencies>
</project>
"""


def find_jars(version: str, artifact: str = "kafka-clients") -> Path | None:
    """Return the directory of the client's jars; None where it cannot be had."""
    maven, folder = shutil.which("mvn"), CACHE / f"{artifact}-{version}"
    if shutil.which("java") is None:
        return None
    if folder.is_dir():
        return folder
    if maven is None:
        return None
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        pom = Path(scratch, "pom.xml")
        pom.write_text(_POM.format(artifact=artifact, version=version))
        jars = Path(scratch, "jars")
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
        command = [maven, "--quiet", "--batch-mode", f"--file={pom}", *goal]
        if subprocess.run(command, capture_output=True, timeout=120, check=False).returncode != 0:
            return None
        if not folder.exists():  # another worker may have been faster
            shutil.copytree(jars, folder)
    return folder


def start(jars: Path, program: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a program of one source file."""
    java = shutil.which("java")
    assert java is not None
    return subprocess.Popen(
        [java, "-cp", f"{jars}/*", str(FOLDER / f"{program}.java"), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
