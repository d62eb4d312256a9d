"""Coverage-guided fuzzing of one target with atheris, in a process of its own, which ends at the first failure.

python -m tests.campaigns.fuzz.guided TARGET [options of libFuzzer] [folders]
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["flymq"], enable_loader_override=False):
    from tests.campaigns.fuzz.targets import TARGETS


def main() -> None:
    target = TARGETS[sys.argv[1]]
    atheris.Setup([sys.argv[0], *sys.argv[2:]], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
