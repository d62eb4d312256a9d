"""Topics read in Spark: planned as ranges of offsets, fetched and decoded to Arrow in the tasks."""
