"""The sink: rows are encoded and written in the tasks, in attempts that the driver commits together."""
