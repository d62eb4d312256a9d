"""The errors of FlyMQ: subclasses of `FlyMQError`, with a code, a hint and whether a retry can help."""

from flymq.model.errors import *  # noqa: F403  # this is the public name of that module
