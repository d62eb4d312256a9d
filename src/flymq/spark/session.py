"""A Spark session that is ready for topics, on this machine or on a cluster, with no jar and no set-up by hand.

Everything that a session leaves on the disk is in one scratch folder, which goes when the session does.
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
"""For sessions of seconds: Java's quick compiler alone, which halves the CPU time up to the first result. Where work
takes minutes, the other one pays off, which takes its time."""

VERSIONS = ((4, 2), (4, 4))
"""The first release of Spark whose Python sources can be throttled, and the first one nobody has tried."""

_COMPANIONS = ("pyarrow", "numpy", "pandas", "grpc", "yaml", "zstandard")
"""What PySpark does not insist on, and sources, Connect and Declarative Pipelines cannot do without."""

_LOOPBACK = "127.0.0.1"
_STDERR = 2
_HOSTS_HERE = ("//localhost:", f"//{_LOOPBACK}:")

# Read before the first line could be logged, unlike spark.log.level. A gateway without a level of its own would set
# the root's to WARN, and say so.
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
    """Return the installed version of PySpark, or raise SparkMissing if it or what it needs is not there.

    Looks at what is installed without importing it: that takes a second.
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
    """Return the variables for a process of Spark: a driver, `spark-pipelines`, or a daemon of a standalone cluster."""
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
    """Return Spark's settings for work on topics; what Spark writes for itself goes below `scratch`."""
    settings = {
        "spark.master": master,
        "spark.driver.memory": driver_memory,
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(warehouse or scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.redaction.options.regex": "(?i)url|cryptionkey",  # Spark hides passwords by itself
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if _is_here(master):
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = _LOOPBACK
        # Spark's 200 are meant for a cluster: on one machine each is a task that does next to nothing.
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
    """Start a session of this process, and stop it at the end of the block. `settings` are Spark's own, and win.

    The first session of a process starts a Java process, which takes some seconds and ends with this one. Whatever
    that one has to say goes to `java_log`, or else to stderr. A session that is active already is used as it is, and
    stays.
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
            raise SparkStartFailed(f"Spark did not start: {said or error}") from error
        try:
            yield session
        finally:
            session.stop()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _stderr_to(file: Path) -> Iterator[None]:
    """Let a process that is started in this block write its stderr to a file, all its life."""
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
    """Whether all of Spark runs on this machine, so that nobody else needs to reach the driver."""
    return master.startswith("local") or any(host in master for host in _HOSTS_HERE)
