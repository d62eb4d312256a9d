"""`flymq pipeline`: run and manage Spark pipelines."""

from flymq.cli.commands.pipeline.command import pipeline as pipeline
