"""Spark finds this package by its name and registers the format "flymq" from it."""

from flymq.spark.data_source import FlyMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
