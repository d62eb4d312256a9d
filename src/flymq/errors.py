"""Every failure FlyMQ expects, for `except`: all are `FlyMQError`s with a code, a hint and whether to try again."""

from flymq.model.errors import *  # noqa: F403  # this is the public name of that module
