"""Pipelines: jobs that run on and on."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError


class PipelineNotFound(FlyMQError):
    """There is no pipeline with this name."""

    code = "PIPELINE_NOT_FOUND"
    hint = "`flymq pipeline list` lists the pipelines; --state-dir or FLYMQ_PIPELINES sets where their state is stored."


class PipelineRunning(FlyMQError):
    """The pipeline is already running."""

    code = "PIPELINE_RUNNING"
    hint = "Stop it with `flymq pipeline stop NAME`, or start another pipeline with another --name."


class PipelineNotRunning(FlyMQError):
    """The pipeline is not running."""

    code = "PIPELINE_NOT_RUNNING"
    hint = "`flymq pipeline resume NAME` continues where it stopped."


class PipelineDiffers(FlyMQError):
    """A pipeline with this name exists and has other options."""

    code = "PIPELINE_DIFFERS"
    hint = "Use another --name, or remove the old pipeline with `flymq pipeline remove NAME`."


class PipelineFailed(FlyMQError):
    """The pipeline failed."""

    code = "PIPELINE_FAILED"
    hint = "`flymq pipeline logs NAME` has the details; `flymq pipeline resume NAME` continues where it stopped."


class InvalidPipeline(FlyMQError):
    """The pipeline's options are not valid."""

    code = "INVALID_PIPELINE"
    hint = "Correct the option named in the message; `flymq pipeline JOB --help` lists the options."
