"""Spark: options, offsets and rows that cannot be used."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError
from flymq.model.errors.requests import InvalidSetting


class InvalidOption(InvalidSetting):
    """An option of the Spark format "flymq" is unknown, or its value is not allowed."""

    code = "INVALID_OPTION"
    hint = "docs/reference/spark-options.md lists the options and what they take."


class InvalidColumns(FlyMQError):
    """The columns of a data frame are not those that topics are read into or written from."""

    code = "INVALID_COLUMNS"
    hint = "docs/how-to/spark.md lists the columns and their types; select or cast them."


class DataLost(FlyMQError):
    """Records that a Spark query has not read yet are gone."""

    code = "DATA_LOST"
    hint = "Set failOnDataLoss to false to go on with what is left, or start anew with another checkpoint."
