"""Share groups in the group shard: their requests, records and timers. Does no I/O.

`SHARE` is what a shard needs to know of this kind of group (see group/kinds.py).
"""

from odradek_broker.coordinator.result import CoordinatorRecord, CoordinatorResult, Moment
from odradek_broker.group.describing import NOT_ASKED_FOR, assignment, undescribed
from odradek_broker.group.shard import GroupKind, GroupShard
from odradek_broker.group.share import heartbeat as beat
from odradek_broker.group.share import offsets
from odradek_broker.group.share import records as rec
from odradek_broker.group.share.group import SESSION_TIMER, ShareGroup
from odradek_broker.group.share.heartbeat import Context, Decision, ShareDraft
from odradek_broker.group.turn import TimerKey, Turn
from odradek_broker.metadata.records import ResourceType
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import Offset, ProducerId
from odradek_protocol.messages.struct import Struct

ASSIGNMENT_TIMER = "share-assignment"
ASSIGNOR = "simple"


def context(shard: GroupShard, turn: Turn, group_id: str) -> Context:
    config = turn.config.share.of_group(shard.image.config(ResourceType.GROUP, group_id))
    return Context(shard.image, config, turn.now.wall_ms)


def share_group(shard: GroupShard, group_id: str) -> ShareGroup:
    group = shard.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        kind = "not found" if group is None else "is not a share group"
        raise KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} {kind}.")
    return group


def group_heartbeat(
    shard: GroupShard, now: Moment, request: Struct, client_id: str, host: str
) -> CoordinatorResult[Decision]:
    """The response is in the decision, with the partitions whose state is to be initialized."""
    beat.validate(request)
    turn = shard.turn(now)
    group_id, member_id = request.group_id, request.member_id
    ctx = context(shard, turn, group_id)
    session = (SESSION_TIMER, group_id, member_id)
    if request.member_epoch < 0:
        decision = beat.leave(share_group(shard, group_id), member_id, ctx)
        _take_up(turn, group_id, decision)
        turn.timers.cancel(session)
        return turn.result(decision, volatile=True)
    existing = shard.groups.get(group_id)
    if existing is None and request.member_epoch > 0:
        raise KafkaError(ErrorCode.group_id_not_found, f"Share group {group_id} not found.")
    group = share_group(shard, group_id) if existing is not None else ShareGroup(group_id)
    decision = beat.heartbeat(ShareDraft(group), request, client_id, host, ctx)
    _take_up(turn, group_id, decision)
    turn.set_timer(session, ctx.config.session_timeout_ms)
    return turn.result(decision, volatile=False)


def _take_up(turn: Turn, group_id: str, decision: Decision) -> None:
    turn.records.extend(rec.encode(record) for record in decision.records)
    key = (ASSIGNMENT_TIMER, group_id)
    if decision.assign_in_ms is not None and key not in turn.timers:
        turn.set_timer(key, decision.assign_in_ms)


def describe(shard: GroupShard, group_id: str) -> Struct:
    try:
        group = share_group(shard, group_id)
    except KafkaError as error:
        return undescribed(group_id, error.message, error.code)
    return Struct(
        error_code=ErrorCode.none,
        error_message=None,
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=ASSIGNOR,
        members=[
            Struct(
                member_id=member.member_id,
                rack_id=member.rack_id,
                member_epoch=member.member_epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.topics),
                assignment=assignment(member.assigned, shard.image),
            )
            for member in group.members.values()
        ],
        authorized_operations=NOT_ASKED_FOR,
    )


def initialized(
    shard: GroupShard, now: Moment, group_id: str, done: offsets.Topics
) -> CoordinatorResult[None]:
    """The share coordinator has state of these partitions now: they can be assigned."""
    turn = shard.turn(now)
    group = shard.groups.get(group_id)
    if isinstance(group, ShareGroup):
        records = offsets.initialized(group, done)
        turn.records.extend(rec.encode(record) for record in records)
    return turn.result(None, volatile=False)


def alter_offsets(
    shard: GroupShard, now: Moment, group_id: str, topics: offsets.Topics
) -> CoordinatorResult[int]:
    """The state epoch for the new state of these partitions. Creates a group that is missing."""
    turn = shard.turn(now)
    existing = shard.groups.get(group_id)
    group = share_group(shard, group_id) if existing is not None else ShareGroup(group_id)
    records, epoch = offsets.altering(group, topics)
    turn.records.extend(rec.encode(record) for record in records)
    return turn.result(epoch, volatile=False)


def delete_offsets(
    shard: GroupShard, now: Moment, group_id: str, topics: offsets.Topics
) -> CoordinatorResult[None]:
    """The share coordinator has deleted the state of these topics."""
    turn = shard.turn(now)
    records = offsets.deleted(share_group(shard, group_id), topics)
    turn.records.extend(rec.encode(record) for record in records)
    return turn.result(None, volatile=False)


# --- records and timers -----------------------------------------------------------------------


def replay(
    shard: GroupShard, _offset: Offset, _producer_id: ProducerId, record: CoordinatorRecord
) -> None:
    read = rec.decode(record)
    gone = read.value is None
    ends = gone and read.kind == rec.GROUP_EPOCH
    group = shard.group_to_replay(ShareGroup, read.group_id, ends=ends, is_tombstone=gone)
    if group is not None:
        group.replay(read)


def due(shard: GroupShard, turn: Turn, key: TimerKey) -> None:
    name, group_id = key[0], key[1]
    group = shard.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        return
    ctx = context(shard, turn, group_id)
    if name == ASSIGNMENT_TIMER:
        draft = ShareDraft(group)
        delay_ms = beat.maybe_assign(draft, ctx)
        _take_up(turn, group_id, Decision(None, draft.records, assign_in_ms=delay_ms))
    elif key[2] in group.members:
        _take_up(turn, group_id, beat.fence(group, key[2], ctx))


SHARE = GroupKind(
    replayers=dict.fromkeys(rec.KEYS, replay),
    timers=dict.fromkeys((SESSION_TIMER, ASSIGNMENT_TIMER), due),
)
