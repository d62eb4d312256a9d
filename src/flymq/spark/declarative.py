"""Spark Declarative Pipelines over topics: projects of tables, each defined in Python or SQL, run together.

PROJECT/
├─ spark-pipeline.yml      the project's files, and where Spark stores its checkpoints
├─ transformations/        the definitions of the tables
└─ state/                  created by the first run
   ├─ catalog/             the tables' metadata: a Derby database, since Spark's own catalog is in memory
   ├─ warehouse/           the tables, as Parquet
   └─ storage/             checkpoints of the streams
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from flymq.host.disk import SystemDisk
from flymq.model.errors import DirectoryLocked, InvalidPipeline, PipelineFailed, PipelineRunning
from flymq.spark.session import LOCAL_MASTER, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPEC_FILES = ("spark-pipeline.yml", "spark-pipeline.yaml")
_STATE = "state"
_STDERR = 2
_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_RAISED = re.compile(r"^(?:\w+\.)*\w*(?:Exception|Error):\s+(?:\[[A-Z0-9_.]+\] )?(.+)$", re.MULTILINE)

_SPEC = """\
name: {name}
storage: {storage}
libraries:
  - glob:
      include: transformations/**
"""

_PYTHON = '''\
"""A topic as an append-only table: each run adds the records since the last one."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame

TOPIC = {topic!r}


@dp.table
def records() -> DataFrame:
    topic = spark.readStream.format("flymq").option("subscribe", TOPIC).option("startingOffsets", "earliest").load()
    return topic.selectExpr(
        "CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value", "partition", "offset", "timestamp"
    )
'''

_SQL = """\
-- Recomputed by each run. With JSON values, get_json_object(value, '$.field') extracts a field.
CREATE MATERIALIZED VIEW records_per_key AS
SELECT key, count(*) AS records, max(timestamp) AS last_seen
FROM records
GROUP BY key
"""


def write_project(folder: Path, topic: str) -> None:
    """Create a small working project: the topic as a table, and a view that counts its keys."""
    if folder.exists() and any(folder.iterdir()):
        raise InvalidPipeline(f"{folder} is not empty", hint="Use a directory that does not exist yet.")
    storage = (folder / _STATE / "storage").absolute().as_uri()
    files = {
        SPEC_FILES[0]: _SPEC.format(name=folder.absolute().name, storage=storage),
        "transformations/records.py": _PYTHON.format(topic=topic),
        "transformations/records_per_key.sql": _SQL,
        ".gitignore": f"{_STATE}/\n__pycache__/\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def find_spec(path: Path) -> Path:
    """Return the project's spec file, given its directory or the file itself."""
    if path.is_file():
        return path
    for name in SPEC_FILES:
        if (path / name).is_file():
            return path / name
    raise InvalidPipeline(
        f"there is no {SPEC_FILES[0]} in {path}", hint=f"flymq pipeline init {path} creates a project."
    )


@contextmanager
def project_session(spec: Path, master: str = LOCAL_MASTER) -> Iterator[SparkSession]:
    """Open the session of a project, with its catalog and tables. One process at a time can open it."""
    state = spec.parent.absolute() / _STATE
    state.mkdir(exist_ok=True)
    try:
        lock = SystemDisk().lock(state / "lock")
    except DirectoryLocked:
        raise PipelineRunning(f"the project in {spec.parent} is already running") from None
    os.environ[_TOKEN] = secrets.token_hex(16)
    try:
        with open_session(
            f"flymq {spec.parent.absolute().name}",
            master=master,
            warehouse=state / "warehouse",
            settings=_settings(state),
            java_log=state / "java.log",
        ) as session:
            yield session
    finally:
        del os.environ[_TOKEN]
        lock.release()


def _settings(state: Path) -> dict[str, str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={state / 'catalog'};create=true",
        "spark.driver.extraJavaOptions": f"-Dderby.stream.error.file={state / 'derby.log'}",
        # The pipeline's definitions are sent by a separate process, through Spark Connect.
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }


def run_project(session: SparkSession, spec: Path, *arguments: str) -> None:
    """Run `spark-pipelines` with these arguments in a project's session; its output goes to stderr."""
    port = session.conf.get("spark.connect.grpc.binding.port")
    command = [sys.executable, "-m", "pyspark.pipelines.cli", *arguments, "--spec", str(spec)]
    # The client sends its token without TLS only to a host of this name.
    environ: Mapping[str, str] = {**os.environ, "SPARK_REMOTE": f"sc://localhost:{port}"}
    ended = subprocess.run(command, env=environ, stdout=_STDERR, stderr=subprocess.PIPE, text=True)
    if ended.returncode:
        log = spec.parent / _STATE / "error.log"
        log.write_text(ended.stderr, encoding="utf-8")
        raise PipelineFailed(last_reason(ended.stderr), hint=f"See {log} for the details.")


def last_reason(traceback: str) -> str:
    """Return the first line of the last exception, without Spark's error class."""
    reasons: list[str] = _RAISED.findall(traceback)
    return reasons[-1].rstrip(".") if reasons else "the project failed"


def table_sizes(session: SparkSession) -> dict[str, int]:
    """Return the tables of a project and the number of rows of each."""
    return {table.name: session.table(table.name).count() for table in session.catalog.listTables()}
