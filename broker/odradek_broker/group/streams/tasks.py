"""Sets of tasks. A task is a subtopology and a partition: ("0", 3) is shown as 0_3.

A member has tasks of three roles. Active ones process records: one member in the group has each.
Standby and warm-up tasks copy the state: each process has at most one of these roles of a task.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from odradek_protocol.messages.struct import Struct

Partitions: TypeAlias = Mapping[str, frozenset[int]]  # by subtopology
# The member epoch in which each task was assigned.
Epochs: TypeAlias = Mapping[str, Mapping[int, int]]

NONE: Partitions = MappingProxyType({})
NO_EPOCHS: Epochs = MappingProxyType({})


class Task(NamedTuple):
    subtopology: str
    partition: int


class Tasks(NamedTuple):
    """A target, or what a member says it owns."""

    active: Partitions = NONE
    standby: Partitions = NONE
    warmup: Partitions = NONE

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)

    def overlaps(self, other: "OwnedTasks") -> bool:
        return any(
            not partitions.isdisjoint(theirs.get(subtopology, ()))
            for mine, theirs in zip(self, other.plain, strict=True)
            for subtopology, partitions in mine.items()
        )

    def is_within(self, other: "OwnedTasks") -> bool:
        """A subtopology that the other does not have is too much, even without partitions."""
        return all(
            subtopology in theirs and partitions <= theirs[subtopology]
            for mine, theirs in zip(self, other.plain, strict=True)
            for subtopology, partitions in mine.items()
        )


class OwnedTasks(NamedTuple):
    """Tasks that a member has, or has to give back."""

    active: Epochs = NO_EPOCHS
    standby: Partitions = NONE
    warmup: Partitions = NONE

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)

    @property
    def plain(self) -> Tasks:
        active = {name: frozenset(epochs) for name, epochs in self.active.items()}
        return Tasks(active, self.standby, self.warmup)

    def epoch_of(self, task: Task) -> int | None:
        return self.active.get(task.subtopology, {}).get(task.partition)


NO_TASKS = Tasks()
OWNS_NOTHING = OwnedTasks()


def each(partitions: Partitions | Epochs) -> Iterator[Task]:
    for subtopology, numbers in partitions.items():
        for partition in numbers:
            yield Task(subtopology, partition)


def of_structs(found: Iterable[Any]) -> dict[str, frozenset[int]]:
    return {one.subtopology_id: frozenset(one.partitions) for one in found}


def structs_of(partitions: Partitions | Epochs) -> list[Struct]:
    return [
        Struct(subtopology_id=subtopology, partitions=sorted(numbers))
        for subtopology, numbers in sorted(partitions.items())
    ]


def grouped(tasks: Iterable[Task]) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for subtopology, partition in tasks:
        found.setdefault(subtopology, set()).add(partition)
    return {subtopology: frozenset(numbers) for subtopology, numbers in found.items()}
