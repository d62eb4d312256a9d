"""The sticky assignor of streams groups: tasks stay where they are, and every member has about the same number.

A process has one member per thread. All of them share its state directory, so a process has a task at most once, active
or standby. Standby tasks are for subtopologies with state, and go to other processes than the active task. An active
task that must move goes to a process that has it as standby, if one has room: the state is there already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heapreplace

from flymq.coordination.entries import StreamsMemberValue, TaskId, TasksValue


@dataclass(slots=True)
class _Load:
    """What a member gets."""

    process: str
    active: list[TaskId] = field(default_factory=list)
    standby: list[TaskId] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.active) + len(self.standby)


def assign_tasks(
    members: Mapping[str, StreamsMemberValue],
    tasks: Iterable[TaskId],
    *,
    stateful: Iterable[str] = (),
    standbys: int = 0,
) -> dict[str, TasksValue]:
    """Return the target assignment of each member. Deterministic."""
    work = _Work(members)
    ordered = sorted(tasks, key=lambda task: (task.partition, task.subtopology))
    if members:
        work.assign_active(ordered)
        with_state = set(stateful)
        for _ in range(min(standbys, work.process_count - 1)):  # a process has a task at most once
            work.assign_standby([task for task in ordered if task.subtopology in with_state])
    return {
        name: TasksValue(tuple(sorted(load.active)), tuple(sorted(load.standby))) for name, load in work.loads.items()
    }


class _Work:
    def __init__(self, members: Mapping[str, StreamsMemberValue]) -> None:
        self.loads = {name: _Load(members[name].process_id or name) for name in sorted(members)}
        self._active: dict[TaskId, str] = {}
        self._standby: dict[TaskId, list[str]] = {}
        for name in self.loads:
            self._active.update(dict.fromkeys(members[name].target.active, name))
            for task in members[name].target.standby:
                self._standby.setdefault(task, []).append(name)
        self._full = 0  # members that have as many active tasks as the quota
        self._has: dict[str, set[TaskId]] = {load.process: set() for load in self.loads.values()}

    @property
    def process_count(self) -> int:
        return len(self._has)

    def assign_active(self, tasks: list[TaskId]) -> None:
        quota = -(-len(tasks) // len(self.loads))
        # With fewer tasks than quotas, only some members have as many as the quota.
        full_max = len(tasks) - (quota - 1) * len(self.loads)
        left = tasks
        for keepers in ({task: [name] for task, name in self._active.items()}, self._standby):
            tasks, left = left, []
            for task in tasks:
                keeper = next((name for name in keepers.get(task, ()) if self._takes(name, quota, full_max)), None)
                if keeper is None:
                    left.append(task)
                else:
                    self._add(keeper, task, is_active=True)
        self._spread(sorted(left))

    def _spread(self, tasks: list[TaskId]) -> None:
        """Give each task to a thread with the fewest; among those, in the process with the fewest per thread."""
        threads: dict[str, list[tuple[int, str]]] = {}
        for name, load in self.loads.items():
            threads.setdefault(load.process, []).append((load.size, name))
        for each in threads.values():
            heapify(each)
        processes = [
            (each[0][0], sum(size for size, _ in each) / len(each), process) for process, each in threads.items()
        ]
        heapify(processes)
        for task in tasks:
            _, share, process = processes[0]
            size, name = threads[process][0]
            self._add(name, task, is_active=True)
            heapreplace(threads[process], (size + 1, name))
            heapreplace(processes, (threads[process][0][0], share + 1 / len(threads[process]), process))

    def assign_standby(self, tasks: list[TaskId]) -> None:
        """Give every task one more standby, if there is another process for it."""
        quota = -(-(sum(load.size for load in self.loads.values()) + len(tasks)) // len(self.loads))
        left = []
        for task in tasks:
            keepers = [self._active[task]] if task in self._active else []
            keepers += self._standby.get(task, [])
            fitting = [name for name in keepers if self._is_free(name, task) and self.loads[name].size < quota]
            if fitting:
                self._add(fitting[0], task, is_active=False)
            else:
                left.append(task)
        for task in sorted(left):
            free = [name for name in self.loads if self._is_free(name, task)]
            if free:
                self._add(self._lightest(free), task, is_active=False)

    def _takes(self, name: str, quota: int, full_max: int) -> bool:
        size = len(self.loads[name].active)
        if size + 1 < quota:
            return True
        if size + 1 > quota or self._full >= full_max:
            return False
        self._full += 1  # it takes the task
        return True

    def _is_free(self, name: str, task: TaskId) -> bool:
        return task not in self._has[self.loads[name].process]

    def _lightest(self, names: Iterable[str]) -> str:
        """Return the member of the process with the fewest tasks per thread, and there the one with the fewest."""
        threads: dict[str, int] = {}
        sizes: dict[str, int] = {}
        for load in self.loads.values():
            threads[load.process] = threads.get(load.process, 0) + 1
            sizes[load.process] = sizes.get(load.process, 0) + load.size
        return min(names, key=lambda name: (_share(self.loads[name], sizes, threads), self.loads[name].size, name))

    def _add(self, name: str, task: TaskId, *, is_active: bool) -> None:
        load = self.loads[name]
        (load.active if is_active else load.standby).append(task)
        self._has[load.process].add(task)


def _share(load: _Load, sizes: Mapping[str, int], threads: Mapping[str, int]) -> float:
    return sizes[load.process] / threads[load.process]
