"""What a decision about a consumer group may look at besides the group, and what it says.

A decision changes nothing: it gives the records to write, the answer, timers to set, and the
expressions to resolve. `heartbeat.py`, `classic.py` and `convert.py` decide; the group shard
writes, replays and keeps the timers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from odradek_broker.group.consumer.config import ConsumerGroupConfig
from odradek_broker.group.consumer.group import ConsumerGroup
from odradek_broker.group.consumer.records import ConsumerGroupRecord
from odradek_broker.metadata.image import MetadataImage, TopicImage


@dataclass(frozen=True, slots=True)
class Context:
    image: MetadataImage
    config: ConsumerGroupConfig
    now_ms: int  # wall clock: it goes into records, and is compared with what is in them
    new_id: Callable[[], str]


class TimerKind(Enum):
    SESSION = "session"  # no heartbeat: the member is fenced
    REBALANCE = "rebalance"  # partitions were not given back: the member is fenced
    JOIN = "join"  # a classic member was told to rejoin and did not
    SYNC = "sync"  # a classic member has joined and not synced
    ASSIGNMENT = "assignment"  # of the group: a target assignment is due


@dataclass(frozen=True, slots=True)
class Timer:
    """Set, or with `delay_ms` None taken back. A set one replaces that of the same key."""

    kind: TimerKind
    member_id: str = ""
    delay_ms: int | None = None
    member_epoch: int = -1  # of a rebalance timer: it concerns this epoch only
    if_absent: bool = False  # let one that is set already go on


@dataclass(slots=True)
class Decision:
    response: Any
    records: list[ConsumerGroupRecord] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)
    resolve: frozenset[str] = frozenset()  # expressions to match against the topics


class Draft:
    """A group as it will be when `records` are replayed; what records say stays untouched.

    The copy is made with the first record: most heartbeats write none.
    """

    def __init__(self, group: ConsumerGroup) -> None:
        self._original = group
        self.group = group
        self.records: list[ConsumerGroupRecord] = []

    def add(self, *records: ConsumerGroupRecord) -> None:
        if self.group is self._original:
            self.group = self._original.copy()
        for record in records:
            self.records.append(record)
            self.group.replay(record)

    @property
    def seen_topics(self) -> Mapping[str, TopicImage] | None:
        return self._original.seen_topics

    @seen_topics.setter
    def seen_topics(self, topics: Mapping[str, TopicImage]) -> None:
        self._original.seen_topics = topics


def cancel_timers(member_id: str) -> list[Timer]:
    kinds = (TimerKind.SESSION, TimerKind.REBALANCE, TimerKind.JOIN, TimerKind.SYNC)
    return [Timer(kind, member_id) for kind in kinds]
