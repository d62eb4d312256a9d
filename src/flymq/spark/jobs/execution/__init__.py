"""Run pipelines: their state on disk, the Spark session and query of a run, its progress."""
