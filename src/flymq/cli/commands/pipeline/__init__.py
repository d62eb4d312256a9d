"""`flymq pipeline`: run data pipelines on Spark, and look after them."""

from flymq.cli.commands.pipeline.command import pipeline as pipeline
