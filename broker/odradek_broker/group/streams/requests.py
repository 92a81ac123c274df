"""Streams groups in the group shard: their requests, records and timers. Does no I/O.

`STREAMS` is what a shard needs to know of this kind of group (see group/kinds.py).
"""

from odradek_broker.coordinator.result import CoordinatorRecord, CoordinatorResult, Moment
from odradek_broker.group.classic_group import ClassicGroup
from odradek_broker.group.shard import GroupKind, GroupShard
from odradek_broker.group.streams import heartbeat as beat
from odradek_broker.group.streams import records as rec
from odradek_broker.group.streams.context import Context, Decision, StreamsDraft, TimerKind
from odradek_broker.group.streams.describe import describe as described
from odradek_broker.group.streams.describe import unknown
from odradek_broker.group.streams.group import StreamsGroup
from odradek_broker.group.streams.member import MemberState
from odradek_broker.group.streams.validation import validate
from odradek_broker.group.turn import TimerKey, Turn
from odradek_broker.metadata.records import ResourceType
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import Offset, ProducerId
from odradek_protocol.messages.struct import Struct

TIMER_NAMES = {kind: f"streams-{kind.value}" for kind in TimerKind}


def context(shard: GroupShard, turn: Turn, group_id: str) -> Context:
    config = turn.config.streams.of_group(shard.image.config(ResourceType.GROUP, group_id))
    delayed = _timer(TimerKind.INITIAL, group_id) in turn.timers
    return Context(shard.image, config, turn.now.wall_ms, delayed)


def _timer(kind: TimerKind, group_id: str, member_id: str = "") -> TimerKey:
    return (TIMER_NAMES[kind], group_id, member_id)


def streams_group(shard: GroupShard, group_id: str, name: str = "Group") -> StreamsGroup:
    group = shard.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.group_id_not_found, f"{name} {group_id} not found.")
    if not isinstance(group, StreamsGroup):
        reason = f"Group {group_id} is not a streams group."
        raise KafkaError(ErrorCode.group_id_not_found, reason)
    return group


def group_heartbeat(
    shard: GroupShard, now: Moment, request: Struct, client_id: str, host: str
) -> CoordinatorResult[Decision]:
    """The response is in the decision, with the internal topics to create."""
    validate(request)
    turn = shard.turn(now)
    group_id = request.group_id
    if request.member_epoch in beat.LEAVING:
        group = streams_group(shard, group_id)
        decision = beat.leave(group, request)
        _take_up(turn, group, decision)
        return turn.result(decision, volatile=True)
    existing = shard.groups.get(group_id)
    ctx = context(shard, turn, group_id)
    if request.member_epoch == 0 and (existing is None or _may_convert(existing)):
        group = StreamsGroup(group_id)
        if isinstance(existing, ClassicGroup):
            turn.records.extend(existing.tombstones())
    else:
        group = streams_group(shard, group_id, "Streams group")
    decision = beat.heartbeat(StreamsDraft(group), request, client_id, host, ctx)
    _take_up(turn, group, decision)
    if existing is None or existing is not group:
        # Kafka names the epoch of endpoints only once the group exists.
        decision.response.endpoint_information_epoch = 0
    return turn.result(decision, volatile=False)


def _may_convert(group: object) -> bool:
    """An application that used the classic protocol, stopped, and starts with this one."""
    return isinstance(group, ClassicGroup) and group.is_empty and not group.pending


def _take_up(turn: Turn, group: StreamsGroup, decision: Decision) -> None:
    """Adds the records and timers of a decision to the turn."""
    turn.records.extend(rec.encode(record) for record in decision.records)
    for timer in decision.timers:
        key = _timer(timer.kind, group.group_id, timer.member_id)
        if timer.delay_ms is None:
            turn.timers.cancel(key)
        elif timer.kind is not TimerKind.INITIAL or key not in turn.timers:
            turn.set_timer(key, timer.delay_ms)
    if decision.shutdown_requested_by is not None and group.shutdown_requested_by is None:
        group.shutdown_requested_by = decision.shutdown_requested_by
    group.endpoint_epoch += decision.endpoints_changed


def describe(shard: GroupShard, group_id: str) -> Struct:
    try:
        return described(streams_group(shard, group_id), shard.image)
    except KafkaError as error:
        return unknown(group_id, error.message, error.code)


# --- records and timers -----------------------------------------------------------------------


def replay(
    shard: GroupShard, _offset: Offset, _producer_id: ProducerId, record: CoordinatorRecord
) -> None:
    read = rec.decode(record)
    gone = read.value is None
    ends = gone and read.kind == rec.GROUP
    group = shard.group_to_replay(StreamsGroup, read.group_id, ends=ends, is_tombstone=gone)
    if group is not None:
        group.replay(read)


def due(shard: GroupShard, turn: Turn, key: TimerKey) -> None:
    name, group_id, member_id = key
    group = shard.groups.get(group_id)
    if not isinstance(group, StreamsGroup):
        return
    if name == TIMER_NAMES[TimerKind.INITIAL]:
        _assign_first(shard, turn, group)
        return
    member = group.members.get(member_id)
    if member is None:
        return
    if name == TIMER_NAMES[TimerKind.REBALANCE] and member.state is not MemberState.UNREVOKED_TASKS:
        return
    _take_up(turn, group, beat.fence(group, member_id))


def _assign_first(shard: GroupShard, turn: Turn, group: StreamsGroup) -> None:
    """The initial rebalance delay is over: one assignment for all members that have come."""
    if not group.members or group.topology is None or group.group_epoch <= group.target_epoch:
        return
    draft, ctx = StreamsDraft(group), context(shard, turn, group.group_id)
    beat.assign_tasks(draft, group.configured(group.topology, shard.image), ctx)
    _take_up(turn, group, Decision(None, draft.records))


STREAMS = GroupKind(
    replayers=dict.fromkeys(rec.KEYS, replay),
    timers=dict.fromkeys(TIMER_NAMES.values(), due),
)
