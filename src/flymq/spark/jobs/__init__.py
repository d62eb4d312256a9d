"""Ready-made pipelines, each one command: archive, restore, aggregate, transform, compact, replay, mirror.

A job is a struct of its options with a method `run`. `all_jobs` lists them, `execution` runs them and stores their
state. Importing a job does not import Spark; running it does.
"""
