"""A Spark session with the data source "flymq", local or on a cluster, without a jar or manual setup.

Everything that a session writes to disk is in one scratch directory, which is deleted with the session.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from flymq.model.errors import SparkMissing, SparkStartFailed
from flymq.spark.java import find_java
from flymq.spark.user_cache import cache_root, keep_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_MASTER = "local[*]"
DRIVER_MEMORY = "1g"
QUICK_START = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
"""For sessions of a few seconds: only the JVM's C1 compiler, which halves the CPU time to the first result. For work of
minutes, the slower C2 compiler pays off."""

VERSIONS = ((4, 2), (4, 4))
"""The first Spark release whose Python sources support rate limits, and the first one that is not tested."""

_COMPANIONS = ("pyarrow", "numpy", "pandas", "grpc", "yaml", "zstandard")
"""Optional dependencies of PySpark that Python sources, Connect and Declarative Pipelines need."""

_LOOPBACK = "127.0.0.1"
_STDERR = 2
_HOSTS_HERE = ("//localhost:", f"//{_LOOPBACK}:")

# Unlike spark.log.level, this applies before the first line is logged. Without its own level, the gateway would set the
# root logger to WARN, and log that.
_LOGGING = """\
rootLogger.level = ${env:FLYMQ_SPARK_LOG_LEVEL:-error}
rootLogger.appenderRef.stderr.ref = stderr
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = ${env:FLYMQ_SPARK_LOG_LEVEL:-error}
appender.console.type = Console
appender.console.name = stderr
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def spark_version() -> str:
    """Return the installed version of PySpark, or raise SparkMissing if it or one of its dependencies is missing.

    Reads the package metadata without importing PySpark, which takes a second.
    """
    try:
        found = version("pyspark")
    except PackageNotFoundError:
        raise SparkMissing from None
    first, untried = VERSIONS
    if not first <= tuple(map(int, found.split(".")[:2])) < untried:
        wanted = f"{'.'.join(map(str, first))} or newer, below {'.'.join(map(str, untried))}"
        raise SparkMissing(f"PySpark {found} is installed; FlyMQ works with {wanted}")
    if absent := [name for name in _COMPANIONS if find_spec(name) is None]:
        raise SparkMissing(f"PySpark {found} is installed without {', '.join(absent)}")
    return found


def spark_environment(master: str = LOCAL_MASTER, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment for a Spark process: a driver, `spark-pipelines`, or a daemon of a standalone cluster."""
    variables = {
        "JAVA_HOME": str(find_java(environ).home),
        "PYSPARK_PYTHON": environ.get("PYSPARK_PYTHON", sys.executable),
        "PYSPARK_DRIVER_PYTHON": environ.get("PYSPARK_DRIVER_PYTHON", sys.executable),
    }
    if _is_here(master):
        variables["SPARK_LOCAL_IP"] = environ.get("SPARK_LOCAL_IP", _LOOPBACK)
    if "SPARK_CONF_DIR" not in environ and "SPARK_HOME" not in environ:
        files = {"log4j2.properties": _LOGGING}
        variables["SPARK_CONF_DIR"] = str(keep_folder("spark-conf", files, root=cache_root(environ)))
    return variables


def session_settings(
    scratch: Path,
    *,
    master: str = LOCAL_MASTER,
    warehouse: Path | None = None,
    driver_memory: str = DRIVER_MEMORY,
) -> dict[str, str]:
    """Return the Spark configuration for topics; Spark's own files go below `scratch`."""
    settings = {
        "spark.master": master,
        "spark.driver.memory": driver_memory,
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(warehouse or scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.redaction.options.regex": "(?i)url|cryptionkey",  # Spark redacts passwords by default
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if _is_here(master):
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = _LOOPBACK
        # Spark's default of 200 is meant for a cluster: on one machine most of those tasks would be nearly empty.
        settings["spark.sql.shuffle.partitions"] = str(max(2, os.cpu_count() or 1))
    return settings


@contextmanager
def open_session(
    app_name: str = "flymq",
    *,
    master: str = LOCAL_MASTER,
    warehouse: Path | None = None,
    driver_memory: str = DRIVER_MEMORY,
    settings: Mapping[str, str] | None = None,
    java_log: Path | None = None,
) -> Iterator[SparkSession]:
    """Start a session, and stop it at the end of the block. `settings` are Spark's own and take precedence.

    The first session of a process starts a JVM, which takes a few seconds and exits with this process. Its output goes
    to `java_log`, or else to stderr. An active session is used as it is, and is not stopped.
    """
    spark_version()
    os.environ.update(spark_environment(master))
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    if (active := SparkSession.getActiveSession()) is not None:
        yield active
        return
    scratch = Path(tempfile.mkdtemp(prefix="flymq-spark-"))
    chosen = session_settings(scratch, master=master, warehouse=warehouse, driver_memory=driver_memory)
    builder = SparkSession.builder.appName(app_name).config(map={**chosen, **(settings or {})})
    try:
        try:
            with _stderr_to(java_log) if java_log else nullcontext():
                session = builder.getOrCreate()
        except PySparkRuntimeError as error:
            said = java_log.read_text(errors="replace").strip() if java_log else ""
            raise SparkStartFailed(f"Spark failed to start: {said or error}") from error
        try:
            yield session
        finally:
            session.stop()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _stderr_to(file: Path) -> Iterator[None]:
    """Redirect the stderr of a process that is started in this block to a file."""
    sys.stderr.flush()
    own = os.dup(_STDERR)
    try:
        with file.open("ab") as log:
            os.dup2(log.fileno(), _STDERR)
        yield
    finally:
        os.dup2(own, _STDERR)
        os.close(own)


def _is_here(master: str) -> bool:
    """Whether Spark runs in local mode, so that no other machine needs to reach the driver."""
    return master.startswith("local") or any(host in master for host in _HOSTS_HERE)
