"""Spark: the data source and sink "flymq", without a jar, and the pipelines built on them."""
