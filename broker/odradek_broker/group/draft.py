"""A group with the records of a decision applied, while the group itself stays unchanged.

    draft = ShareDraft(group)
    draft.add(record)         # draft.group is a copy with the record replayed; group is as before
    Decision(response, draft.records)

Decisions of the consumer, share and streams protocols work on one. When its records are committed,
the shard replays them to the group itself.
"""

from typing import Any, Generic, Protocol, Self, TypeVar


class ReplayingGroup(Protocol):
    def copy(self) -> Self: ...

    def replay(self, record: Any) -> None: ...


GroupT = TypeVar("GroupT", bound=ReplayingGroup)
RecordT = TypeVar("RecordT")


class Draft(Generic[GroupT, RecordT]):
    """The copy is made with the first record: most heartbeats write none."""

    def __init__(self, group: GroupT) -> None:
        self.original = group
        self.group = group
        self.records: list[RecordT] = []

    def add(self, *records: RecordT) -> None:
        if self.group is self.original:
            self.group = self.original.copy()
        for record in records:
            self.records.append(record)
            self.group.replay(record)
