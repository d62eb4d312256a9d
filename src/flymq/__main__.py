"""`flymq` and `python -m flymq`: the command line, if it is installed."""

from __future__ import annotations

import sys


def main() -> None:
    try:
        from flymq.cli import main as run
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.exit("flymq: the command line is not installed.\nTry: pip install 'flymq[cli,server]'")
    run()


if __name__ == "__main__":
    main()
