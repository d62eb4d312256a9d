"""Topics written from Spark: rows encoded in the tasks, in attempts that the driver commits together."""
