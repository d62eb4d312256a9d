"""The host of a broker or a client: its only access to the outside world.

Code that gets this value runs on the operating system, or in a simulation with virtual time, a disk that loses power
and a network that fails.
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
    """Makes a pool of threads, by name and size."""


def system_host() -> Host:
    return Host(SystemClock(), SystemDisk(), SystemNetwork(), system_entropy(), SystemThreads)
