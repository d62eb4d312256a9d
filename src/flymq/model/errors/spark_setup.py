"""What keeps Spark from starting on this machine."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError


class SparkMissing(FlyMQError):
    """PySpark is not installed here."""

    code = "SPARK_MISSING"
    hint = "Install it with pip install 'flymq[spark]'."


class JavaMissing(FlyMQError):
    """No Java that Spark can run on was found."""

    code = "JAVA_MISSING"
    hint = "pip install 'flymq[spark]' brings one; or install Java 17 or 21 and set JAVA_HOME."


class SparkStartFailed(FlyMQError):
    """Spark did not start."""

    code = "SPARK_START_FAILED"
    hint = "Run flymq doctor: it looks at Java, PySpark and bash, and says what to do."
