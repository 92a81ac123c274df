"""The inputs of a decision about a streams group besides the group, and its result.

A decision changes nothing: it returns records to write, the response, timers to set, and the
internal topics that are missing. `heartbeat.py` decides; the group shard writes, replays and keeps
the timers; the handler creates the topics.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from odradek_broker.group.draft import Draft
from odradek_broker.group.member_records import MemberRecord
from odradek_broker.group.streams.config import StreamsGroupConfig
from odradek_broker.group.streams.group import StreamsGroup
from odradek_broker.group.streams.topology import TopicInfo
from odradek_broker.metadata.image import MetadataImage


@dataclass(frozen=True, slots=True)
class Context:
    image: MetadataImage
    config: StreamsGroupConfig
    now_ms: int  # wall clock: written to records, and compared with theirs
    delayed: bool = False  # the first assignment of the group waits for more members


class TimerKind(Enum):
    SESSION = "session"  # no heartbeat: the member is fenced
    REBALANCE = "rebalance"  # tasks were not given back in time: the member is fenced
    INITIAL = "initial"  # of the group: the first assignment


@dataclass(frozen=True, slots=True)
class Timer:
    """Sets a timer, or cancels it if `delay_ms` is None. Replaces one with the same key."""

    kind: TimerKind
    member_id: str = ""
    delay_ms: int | None = None


@dataclass(slots=True)
class Decision:
    response: Any
    records: list[MemberRecord] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)
    missing: tuple[TopicInfo, ...] = ()  # internal topics to create
    # Changes of state that is not in records, made when the decision is carried out.
    shutdown_requested_by: str | None = None
    endpoints_changed: bool = False


StreamsDraft = Draft[StreamsGroup, MemberRecord]
