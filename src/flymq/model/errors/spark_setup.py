"""Spark cannot start on this machine."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError


class SparkMissing(FlyMQError):
    """PySpark is not installed."""

    code = "SPARK_MISSING"
    hint = "Install it with pip install 'flymq[spark]'."


class JavaMissing(FlyMQError):
    """No Java that Spark supports was found."""

    code = "JAVA_MISSING"
    hint = "pip install 'flymq[spark]' includes one; or install Java 17 or 21 and set JAVA_HOME."


class SparkStartFailed(FlyMQError):
    """Spark failed to start."""

    code = "SPARK_START_FAILED"
    hint = "Run `flymq doctor`: it checks Java, PySpark and bash, and says how to fix them."
