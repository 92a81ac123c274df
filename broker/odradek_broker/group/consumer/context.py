"""The inputs of a decision about a consumer group besides the group, and its result.

A decision changes nothing: it returns records to write, the response, timers to set, and regular
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
from odradek_broker.group.draft import Draft
from odradek_broker.metadata.image import MetadataImage, TopicImage


@dataclass(frozen=True, slots=True)
class Context:
    image: MetadataImage
    config: ConsumerGroupConfig
    now_ms: int  # wall clock: written to records, and compared with theirs
    new_id: Callable[[], str]


class TimerKind(Enum):
    SESSION = "session"  # no heartbeat: the member is fenced
    REBALANCE = "rebalance"  # partitions were not revoked in time: the member is fenced
    JOIN = "join"  # a classic member had to rejoin and did not
    SYNC = "sync"  # a classic member joined but did not sync
    ASSIGNMENT = "assignment"  # of the group: compute a target assignment


@dataclass(frozen=True, slots=True)
class Timer:
    """Sets a timer, or cancels it if `delay_ms` is None. Replaces one with the same key."""

    kind: TimerKind
    member_id: str = ""
    delay_ms: int | None = None
    member_epoch: int = -1  # of a rebalance timer: valid for this epoch only
    if_absent: bool = False  # keep a timer that is set already


@dataclass(slots=True)
class Decision:
    response: Any
    records: list[ConsumerGroupRecord] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)
    resolve: frozenset[str] = frozenset()  # expressions to match against the topics


class ConsumerDraft(Draft[ConsumerGroup, ConsumerGroupRecord]):
    @property
    def seen_topics(self) -> Mapping[str, TopicImage] | None:
        return self.original.seen_topics

    @seen_topics.setter
    def seen_topics(self, topics: Mapping[str, TopicImage]) -> None:
        self.original.seen_topics = topics


def cancel_timers(member_id: str) -> list[Timer]:
    kinds = (TimerKind.SESSION, TimerKind.REBALANCE, TimerKind.JOIN, TimerKind.SYNC)
    return [Timer(kind, member_id) for kind in kinds]
