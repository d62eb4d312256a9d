"""How a command ends: an exit code, and for a failure two lines that say what is wrong and what to do."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from enum import IntEnum

import click

from flymq.model.errors import BrokerUnavailable, ConnectionLost, FlyMQError, InvalidSetting


class ExitCode(IntEnum):
    """What a script can tell from the end of a command."""

    OK = 0
    FAILED = 1
    WRONG_USAGE = 2
    UNREACHABLE = 3
    INTERRUPTED = 130
    TERMINATED = 143


MEANINGS = {
    ExitCode.OK: "It is done; or whoever reads the output has left early, such as `head`.",
    ExitCode.FAILED: "The operation failed, or `flymq doctor` found a fault.",
    ExitCode.WRONG_USAGE: "There is no such command or option, or a value is not allowed.",
    ExitCode.UNREACHABLE: "No broker answered, or the connection was lost.",
    ExitCode.INTERRUPTED: "Ctrl-C.",
    ExitCode.TERMINATED: "SIGTERM. A broker ends with 0 after either of these two.",
}


def run(command: click.Command, arguments: Sequence[str]) -> ExitCode:
    """Run a command; report what went wrong. A traceback means a bug: nothing expected causes one.

    Does the work of click's own `main`, which has other opinions about exit codes and error messages.
    """
    try:
        with command.make_context("flymq", list(arguments)) as context:
            command.invoke(context)
        sys.stdout.flush()
        return ExitCode.OK
    except click.exceptions.Exit as end:
        return ExitCode(end.exit_code)
    except click.exceptions.NoArgsIsHelpError as request:
        click.echo(request.format_message())
        return ExitCode.OK
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "flymq"
        return _report(error.format_message(), f"{path} --help", ExitCode.WRONG_USAGE)
    except (click.Abort, KeyboardInterrupt):
        if sys.stderr.isatty():
            click.echo(err=True)  # the shell's prompt shall not follow the terminal's ^C
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return ExitCode.OK
    except FlyMQError as error:
        return _report(error.message, error.hint, _code_of(error))
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        return _report(f"{name}{error.strerror or error}", "", ExitCode.FAILED)


def _code_of(error: FlyMQError) -> ExitCode:
    if isinstance(error, BrokerUnavailable | ConnectionLost):
        return ExitCode.UNREACHABLE
    return ExitCode.WRONG_USAGE if isinstance(error, InvalidSetting) else ExitCode.FAILED


def _report(problem: str, hint: str, code: ExitCode) -> ExitCode:
    click.secho(f"flymq: {problem}", err=True, fg="red")
    if hint:
        click.echo(f"Try: {hint}", err=True)
    return code


def _discard_output() -> None:
    """Nobody reads: let the interpreter flush into nothing at its end instead of complaining."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
