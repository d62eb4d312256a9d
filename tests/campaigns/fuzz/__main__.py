"""Fuzz every parser: coverage-guided with atheris where it is installed, else by mutating the corpus.

    make fuzz ARGS="--minutes 5 --target kafka"
    python -m tests.campaigns.fuzz --replay FILE --target kafka

Inputs that break a parser are made small and kept; add them to tests/campaigns/corpus/<target> as found-<name> with the
fix, so that they are tried for ever.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.campaigns.fuzz import corpus
from tests.campaigns.fuzz.engine import INPUT_BYTES_MAX, Failure, fuzz, limits, minimize, try_input
from tests.campaigns.fuzz.targets import TARGETS

WITHOUT_ATHERIS = (
    "atheris is not installed: mutating the corpus instead of following coverage. "
    "Install it with: .venv/bin/python -m pip install -e '.[fuzz]'"
)


def main() -> int:
    given = _options()
    if given.replay is not None:
        return _replay(given.target, given.replay)
    folder: Path = given.folder or Path(tempfile.mkdtemp(prefix="flymq-fuzz-"))
    folder.mkdir(parents=True, exist_ok=True)
    guided = given.engine == "atheris"
    if guided and importlib.util.find_spec("atheris") is None:
        print(WITHOUT_ATHERIS)
        guided = False
    names = [given.target] if given.target else list(TARGETS)
    seconds = given.minutes * 60 / len(names)
    print(f"{'target':24}{'engine':12}{'seconds':>9}{'inputs':>12}   failures")
    failed = 0
    for name in names:
        started = time.monotonic()
        run = _guided if guided else _mutating
        count, failures = run(name, given.seed, seconds, folder)
        spent = time.monotonic() - started
        print(f"{name:24}{'atheris' if guided else 'mutation':12}{spent:9.1f}{count:12}   {len(failures)}", flush=True)
        for failure in failures:
            _explain(name, failure, folder)
        failed += len(failures)
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5, help="for all targets together (default: 5)")
    parser.add_argument("--target", choices=list(TARGETS), help="one parser (default: all)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=["atheris", "mutation"], default="atheris")
    parser.add_argument("--folder", type=Path, help="where inputs are kept (default: a temporary folder)")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="try one input of --target and show what happens")
    given = parser.parse_args()
    if given.replay is not None and given.target is None:
        parser.error("--replay needs --target")
    return given


def _replay(name: str, path: Path) -> int:
    with limits():
        error = try_input(TARGETS[name], path.read_bytes())
    if error is None:
        print("nothing is wrong with it")
        return 0
    raise error


def _mutating(name: str, seed: int, seconds: float, _folder: Path) -> tuple[int, list[Failure]]:
    return fuzz(TARGETS[name], corpus.read(name), seed, seconds)


def _guided(name: str, seed: int, seconds: float, folder: Path) -> tuple[int, list[Failure]]:
    """Let atheris work; what it finds beside the corpus is kept in the folder, for the next time."""
    own, broken = folder / name, folder / f"{name}-broken"
    own.mkdir(parents=True, exist_ok=True)
    broken.mkdir(parents=True, exist_ok=True)
    limits_of_run = [f"-max_total_time={max(1, int(seconds))}", f"-seed={seed}", f"-max_len={INPUT_BYTES_MAX}"]
    limits_of_input = ["-timeout=10", "-rss_limit_mb=2048", f"-artifact_prefix={broken}/"]
    command = [sys.executable, "-m", "tests.campaigns.fuzz.guided", name, *limits_of_run, *limits_of_input]
    command += ["-print_final_stats=1", str(own), str(corpus.FOLDER / name)]
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        code = subprocess.run(command, stdout=output, stderr=output, check=False).returncode
    lines = log.read_text(errors="replace").splitlines()
    counts = [line.split()[-1] for line in lines if line.startswith("stat::number_of_executed_units")]
    failures = []
    with limits():
        for path in sorted(broken.iterdir()):
            error = try_input(TARGETS[name], path.read_bytes())
            failure = Failure(path.read_bytes(), error or RuntimeError(f"{path.name}: only within atheris, see {log}"))
            failures.append(failure if error is None else minimize(TARGETS[name], failure))
    if code and not failures:
        failures.append(Failure(b"", RuntimeError(f"atheris ended with {code}, see {log}")))
    return int(counts[-1]) if counts else 0, failures


def _explain(name: str, failure: Failure, folder: Path) -> None:
    kind, place = failure.kind
    path = folder / f"{name}-{kind}-{place.replace(':', '-')}"
    path.write_bytes(failure.data)
    print(f"    {kind} at {place}: {failure.error!s:.150}")
    print(f"    {len(failure.data)} bytes: {failure.data[:60].hex(' ')}")
    print(f"    repeat with: python -m tests.campaigns.fuzz --target {name} --replay {path}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
