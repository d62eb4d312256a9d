"""Spark: invalid options, columns and offsets."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError
from flymq.model.errors.requests import InvalidSetting


class InvalidOption(InvalidSetting):
    """An option of the Spark format "flymq" is unknown, or its value is not valid."""

    code = "INVALID_OPTION"
    hint = "docs/reference/spark-options.md lists the options and their values."


class InvalidColumns(FlyMQError):
    """The columns of the DataFrame do not match those of a topic."""

    code = "INVALID_COLUMNS"
    hint = "docs/how-to/spark.md lists the columns and their types; select or cast to them."


class DataLost(FlyMQError):
    """Records were deleted before the Spark query read them."""

    code = "DATA_LOST"
    hint = "Set failOnDataLoss to false to continue with the remaining records, or restart with a new checkpoint."
