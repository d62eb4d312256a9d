"""A broker's process is tuned; one that runs a broker beside other code is not."""

from __future__ import annotations

import subprocess
import sys

IN_A_PROCESS = """
import gc, sys
from flymq.host.interpreter import GrowingHeap, tune_interpreter
tune_interpreter()
kept = [[] for _ in range(100)]
heap = GrowingHeap(1000)
first = gc.get_freeze_count()
print(sys.getswitchinterval() < 0.001, gc.get_threshold()[0] > 10_000, first > 100)
for count in (1001, 1749, 1750, 2600, 2700):
    before = gc.get_freeze_count()
    kept += [[] for _ in range(100)]
    heap.grown(count)
    print(count, gc.get_freeze_count() > before)
"""

BESIDE_OTHERS = """
import gc, sys
before = sys.getswitchinterval(), gc.get_threshold()
from flymq.testing import running_broker
with running_broker():
    print((sys.getswitchinterval(), gc.get_threshold()) == before, gc.get_freeze_count())
"""


def output(program: str) -> list[str]:
    return subprocess.check_output([sys.executable, "-c", program], text=True).splitlines()


def test_a_tuned_interpreter_switches_threads_fast_and_collects_rarely_what_lives_for_ever() -> None:
    tuned, *grown = output(IN_A_PROCESS)
    assert tuned == "True True True"
    assert grown == ["1001 False", "1749 False", "1750 True", "2600 False", "2700 True"]


def test_a_broker_in_somebody_elses_process_leaves_the_interpreter_alone() -> None:
    assert output(BESIDE_OTHERS) == ["True 0"]
