"""The command line: one module for each command, in `commands/`.

Data goes to stdout, everything else to stderr. A command's module is imported when the command is used, so that
`flymq --help` is quick and a broker does not wait for the SDK to load.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

from click.shell_completion import shell_complete

from flymq.cli.app import app
from flymq.cli.exit_codes import ExitCode, run

COMPLETION_VARIABLE = "_FLYMQ_COMPLETE"
"""Set by the script of `flymq completion` when the shell requests completions."""


def main() -> NoReturn:
    """Run one command and exit with its code."""
    if (instruction := os.environ.get(COMPLETION_VARIABLE)) is not None:
        sys.exit(shell_complete(app, {}, "flymq", COMPLETION_VARIABLE, instruction))
    # Exit cleanly instead of being killed: leave consumer groups, close connections.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(ExitCode.TERMINATED))
    sys.exit(run(app, sys.argv[1:]))
