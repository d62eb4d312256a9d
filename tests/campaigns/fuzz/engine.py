"""Run one target on many inputs. A failure is anything but a declared error: an exception, much memory, much time."""

from __future__ import annotations

import resource
import signal
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from types import FrameType

from tests.campaigns.fuzz.targets import Target
from tests.property.record.test_record_fuzz import mutate

INPUT_BYTES_MAX = 64 << 10
MEMORY_BYTES_MAX = 1 << 30
"""Address space beyond what the process has at the start."""
SECONDS_MAX = 2.0
MINIMIZE_S = 20


class TooSlow(BaseException):
    """An input takes longer than any of its size may."""


@dataclass
class Failure:
    """An input that breaks a parser, as small as it could be made."""

    data: bytes
    error: BaseException

    @property
    def kind(self) -> tuple[str, str]:
        """The same for inputs that break the same line in the same way."""
        frames = traceback.extract_tb(self.error.__traceback__)
        ours = [frame for frame in frames if "flymq" in frame.filename] or frames
        return type(self.error).__name__, f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"


def try_input(target: Target, data: bytes) -> BaseException | None:
    """Return what is wrong with what the target does with this input."""
    signal.setitimer(signal.ITIMER_REAL, SECONDS_MAX)
    try:
        target(data)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return None


@contextmanager
def limits() -> Iterator[None]:
    """Within, an input that takes too much time or memory raises."""

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise TooSlow(f"more than {SECONDS_MAX} s")

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    old = signal.signal(signal.SIGALRM, ring)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES_MAX, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.signal(signal.SIGALRM, old)


def mutations(corpus: Sequence[bytes], chance: Random) -> Iterator[bytes]:
    """Yield inputs for ever: one of the corpus, changed in a few places, sometimes joined with another."""
    while True:
        data = chance.choice(corpus)
        if chance.random() < 0.1:
            other = chance.choice(corpus)
            data = data[: chance.randrange(len(data) + 1)] + other[chance.randrange(len(other) + 1) :]
        for _ in range(chance.randint(1, 3)):
            data = mutate(data, chance)
        yield data[:INPUT_BYTES_MAX]


def fuzz(
    target: Target, corpus: Sequence[bytes], seed: int, seconds: float, inputs_max: int | None = None
) -> tuple[int, list[Failure]]:
    """Mutate the corpus for so long; return the number of inputs, and one failure of each kind."""
    found: dict[tuple[str, str], Failure] = {}
    count, deadline = 0, time.monotonic() + seconds
    with limits():
        for data in islice(mutations(corpus, Random(seed)), inputs_max):
            if count % 64 == 0 and time.monotonic() > deadline:
                break
            count += 1
            if (error := try_input(target, data)) is not None:
                failure = Failure(data, error)
                if failure.kind not in found:
                    found[failure.kind] = minimize(target, failure)
    return count, list(found.values())


def minimize(target: Target, failure: Failure) -> Failure:
    """Take out pieces as long as the same line breaks in the same way."""
    best, deadline = failure, time.monotonic() + MINIMIZE_S
    size = max(1, len(best.data) // 2)
    while size:
        at = 0
        while at < len(best.data) and time.monotonic() < deadline:
            shorter = best.data[:at] + best.data[at + size :]
            error = try_input(target, shorter)
            if error is not None and Failure(shorter, error).kind == failure.kind:
                best = Failure(shorter, error)
            else:
                at += size
        size //= 2
    return best
