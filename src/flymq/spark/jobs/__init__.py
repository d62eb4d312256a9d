"""Ready pipelines, each one command: archive, restore, aggregate, transform, compact, replay, mirror.

A job is a value (what is asked for) with a `run` (how it is done). `folder` keeps it, `running` runs it, `table` lists
all of them. Importing a job does not import Spark; running it does.
"""
