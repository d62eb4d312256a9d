"""Pipelines: jobs that run on and on."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError


class PipelineNotFound(FlyMQError):
    """There is no pipeline of this name."""

    code = "PIPELINE_NOT_FOUND"
    hint = "`flymq pipeline list` names those there are; --state-dir or FLYMQ_PIPELINES says where they are kept."


class PipelineRunning(FlyMQError):
    """The pipeline runs already."""

    code = "PIPELINE_RUNNING"
    hint = "`flymq pipeline stop NAME` stops it; another --name makes another pipeline."


class PipelineNotRunning(FlyMQError):
    """The pipeline does not run."""

    code = "PIPELINE_NOT_RUNNING"
    hint = "`flymq pipeline resume NAME` lets it go on where it stopped."


class PipelineDiffers(FlyMQError):
    """A pipeline of this name exists and does something else."""

    code = "PIPELINE_DIFFERS"
    hint = "Give this one another --name, or forget the old one with `flymq pipeline remove NAME`."


class PipelineFailed(FlyMQError):
    """The pipeline ended with an error."""

    code = "PIPELINE_FAILED"
    hint = "`flymq pipeline logs NAME` has the details; `flymq pipeline resume NAME` goes on where it stopped."


class InvalidPipeline(FlyMQError):
    """The pipeline asks for something that cannot be done."""

    code = "INVALID_PIPELINE"
    hint = "Correct what the message names; `flymq pipeline JOB --help` lists the options."
