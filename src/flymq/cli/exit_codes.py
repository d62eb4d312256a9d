"""Run a command and map its outcome to an exit code; an error is two lines: what is wrong and what to try."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from enum import IntEnum

import click

from flymq.model.errors import BrokerUnavailable, ConnectionLost, FlyMQError, InvalidSetting


class ExitCode(IntEnum):
    """Exit codes, for scripts."""

    OK = 0
    FAILED = 1
    WRONG_USAGE = 2
    UNREACHABLE = 3
    INTERRUPTED = 130
    TERMINATED = 143


MEANINGS = {
    ExitCode.OK: "Success; also when the reader of the output closes it early, such as `head`.",
    ExitCode.FAILED: "The operation failed, or `flymq doctor` or `flymq cluster status` found a problem.",
    ExitCode.WRONG_USAGE: "Usage error: unknown command or option, or an invalid value.",
    ExitCode.UNREACHABLE: "No broker answered, or the connection was lost.",
    ExitCode.INTERRUPTED: "Ctrl-C.",
    ExitCode.TERMINATED: "SIGTERM. A broker exits with 0 after Ctrl-C or SIGTERM.",
}


def run(command: click.Command, arguments: Sequence[str]) -> ExitCode:
    """Run a command and report errors. A traceback means a bug: no expected error causes one.

    Replaces click's own `main`, which uses other exit codes and error messages.
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
            click.echo(err=True)  # start the shell's prompt on a new line after ^C
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
    """Redirect stdout to /dev/null, so that the flush at interpreter exit does not fail on the broken pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
