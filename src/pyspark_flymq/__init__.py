"""Spark finds this package by its name and registers the format "flymq" from it."""
