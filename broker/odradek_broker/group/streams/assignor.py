"""The assignor "sticky", the one that Kafka 4.3 has for streams groups. Does no I/O.

Active tasks first: each goes to the member that had it, else to one that had a standby of it, while
that member has less than its share; the rest to the process with the least load (tasks per thread),
and there to the thread with the fewest. Standby tasks of stateful subtopologies follow in the same
way, never to a process that has the task already.

Example: members a and b of two processes, tasks 0_0 … 0_3, a had all: a keeps 0_0 and 0_1 (a share
is 4 / 2), b gets 0_2 and 0_3.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from odradek_broker.group.streams.tasks import Task, Tasks, each, grouped
from odradek_broker.group.streams.topics import ConfiguredSubtopology


class MemberSpec(NamedTuple):
    process_id: str
    target: Tasks  # the last one


@dataclass(slots=True)
class _Process:
    """Invariant: `total` is the sum of `counts`."""

    counts: dict[str, int] = field(default_factory=dict)  # tasks by member
    tasks: set[Task] = field(default_factory=set)
    total: int = 0

    @property
    def load(self) -> float:
        return self.total / len(self.counts)

    def least_loaded(self) -> str:
        return min(self.counts, key=lambda member: (self.counts[member], member))


@dataclass(slots=True)
class _Share:
    """How many tasks a member may have. Members that reached it leave the rest to the others, so
    that the remainder of the division is spread over some members only."""

    tasks: int
    members: int

    @property
    def quota(self) -> int:
        return ceil(self.tasks / self.members) if self.members > 0 else 0

    def reached(self, count: int) -> None:
        if self.members > 0 and count == self.quota:
            self.tasks -= count
            self.members -= 1


def assign(
    members: Mapping[str, MemberSpec],
    subtopologies: Mapping[str, ConfiguredSubtopology],
    num_standby_replicas: int,
) -> dict[str, Tasks]:
    """The target of each member."""
    plan = _Plan(members, subtopologies, num_standby_replicas)
    plan.assign_active()
    if num_standby_replicas > 0:
        plan.assign_standby()
    return {
        member: Tasks(grouped(plan.active[member]), grouped(plan.standby[member]))
        for member in members
    }


class _Plan:
    def __init__(
        self,
        members: Mapping[str, MemberSpec],
        subtopologies: Mapping[str, ConfiguredSubtopology],
        replicas: int,
    ) -> None:
        self._replicas = replicas
        self._all = _tasks(subtopologies, subtopologies)
        stateful = [name for name, one in subtopologies.items() if one.stateful]
        self._stateful = _tasks(subtopologies, stateful)
        self.active: dict[str, list[Task]] = {member: [] for member in members}
        self.standby: dict[str, list[Task]] = {member: [] for member in members}
        self._process_of = {member: spec.process_id for member, spec in members.items()}
        self._processes: dict[str, _Process] = {}
        self._had_active: dict[Task, str] = {}
        self._had_standby: dict[Task, list[str]] = {}
        for member, spec in sorted(members.items()):
            self._processes.setdefault(spec.process_id, _Process()).counts[member] = 0
            self._had_active.update(dict.fromkeys(each(spec.target.active), member))
            for task in each(spec.target.standby):
                self._had_standby.setdefault(task, []).append(member)
        total = len(self._all) + replicas * len(self._stateful)
        self._active_share = _Share(len(self._all), len(members))
        self._total_share = _Share(total, len(members))

    def assign_active(self) -> None:
        rest = sorted(self._all, key=lambda task: (task.partition, task.subtopology))
        rest = [task for task in rest if not self._stays(task, self._had_active.get(task))]
        rest = [task for task in rest if not self._stays(task, self._lightest_standby(task))]
        for task in sorted(rest):
            process = min(self._processes.items(), key=lambda one: (one[1].load, one[0]))[1]
            self._add(process.least_loaded(), task, active=True)

    def _stays(self, task: Task, member: str | None) -> bool:
        if member is None or self._count(member) >= self._active_share.quota:
            return False
        self._add(member, task, active=True)
        return True

    def assign_standby(self) -> None:
        """Each standby where the task was before, if there is room; the rest by load."""
        order = sorted(
            self._stateful, key=lambda task: (task.partition, task.subtopology), reverse=True
        )
        rest: list[tuple[Task, int]] = []
        for task in order:
            placed = 0
            for member in self._former_homes(task):
                if placed == self._replicas:
                    break
                if self._has_room(member) and not self._is_at(task, member):
                    self._add(member, task, active=False)
                    placed += 1
            rest.append((task, self._replicas - placed))
        for task, missing in sorted(rest, reverse=True):
            for _ in range(missing):
                if not self._to_least_loaded(task):
                    break  # fewer processes than copies

    def _former_homes(self, task: Task) -> list[str]:
        before = [self._had_active[task]] if task in self._had_active else []
        return before + sorted(self._had_standby.get(task, ()), key=self._load_of)

    def _to_least_loaded(self, task: Task) -> bool:
        free = [(p.load, name) for name, p in self._processes.items() if task not in p.tasks]
        if not free:
            return False
        self._add(self._processes[min(free)[1]].least_loaded(), task, active=False)
        return True

    def _lightest_standby(self, task: Task) -> str | None:
        return min(self._had_standby.get(task, ()), key=self._load_of, default=None)

    def _load_of(self, member: str) -> tuple[float, int, str]:
        return self._processes[self._process_of[member]].load, self._count(member), member

    def _is_at(self, task: Task, member: str) -> bool:
        return task in self._processes[self._process_of[member]].tasks

    def _has_room(self, member: str) -> bool:
        return self._count(member) < self._total_share.quota

    def _count(self, member: str) -> int:
        return self._processes[self._process_of[member]].counts[member]

    def _add(self, member: str, task: Task, *, active: bool) -> None:
        process = self._processes[self._process_of[member]]
        process.tasks.add(task)
        process.counts[member] += 1
        process.total += 1
        (self.active if active else self.standby)[member].append(task)
        count = process.counts[member]
        if active:
            self._active_share.reached(count)
        self._total_share.reached(count)


def _tasks(subtopologies: Mapping[str, ConfiguredSubtopology], names: Iterable[str]) -> list[Task]:
    return [Task(name, number) for name in names for number in range(subtopologies[name].tasks)]
