"""The machine that a broker or a client runs on: all they know of the outside world.

What is handed this one value runs anywhere it is made of: on the operating system, or in a simulation with virtual
time, a disk that loses power and a network that fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flymq.host.clock import Clock, SystemClock
from flymq.host.disk import Disk, SystemDisk
from flymq.host.entropy import Entropy, system_entropy
from flymq.host.network import Network, SystemNetwork
from flymq.host.tasks import SystemThreads, Threads


@dataclass(frozen=True, slots=True)
class Host:
    clock: Clock
    disk: Disk
    network: Network
    entropy: Entropy
    new_threads: Callable[[str, int], Threads]
    """Makes a pool of so many threads, under a name."""


def system_host() -> Host:
    return Host(SystemClock(), SystemDisk(), SystemNetwork(), system_entropy(), SystemThreads)
