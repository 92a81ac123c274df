"""Consumer groups in the group shard: their requests, records and timers. Does no I/O.

`CONSUMER` is what a shard needs to know of this kind of group (see group/kinds.py).
"""

from odradek_broker.coordinator.result import CoordinatorRecord, CoordinatorResult, Moment
from odradek_broker.group.classic_group import ClassicGroup, join_error
from odradek_broker.group.classic_join import Join
from odradek_broker.group.consumer import classic, convert, heartbeat
from odradek_broker.group.consumer import records as rec
from odradek_broker.group.consumer.context import ConsumerDraft, Context, Decision, TimerKind
from odradek_broker.group.consumer.describe import describe as described
from odradek_broker.group.consumer.group import ConsumerGroup
from odradek_broker.group.consumer.member import LEAVE_GROUP_MEMBER_EPOCH, MemberState
from odradek_broker.group.consumer.subscription import regexes_resolved
from odradek_broker.group.consumer.target import maybe_assign
from odradek_broker.group.describing import undescribed
from odradek_broker.group.shard import GroupKind, GroupShard
from odradek_broker.group.turn import TimerKey, Turn
from odradek_broker.metadata.records import ResourceType
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import Offset, ProducerId
from odradek_protocol.messages.struct import Struct

TIMER_NAMES = {kind: f"consumer-{kind.value}" for kind in TimerKind}
DOWNGRADED_TIMER = "consumer-downgraded"


def context(shard: GroupShard, turn: Turn, group_id: str) -> Context:
    config = turn.config.consumer.of_group(shard.image.config(ResourceType.GROUP, group_id))
    return Context(shard.image, config, turn.now.wall_ms, lambda: str(turn.new_uuid()))


def take_up(turn: Turn, group_id: str, decision: Decision) -> None:
    """Adds the records and timers of a decision to the turn."""
    turn.records.extend(CoordinatorRecord(*rec.encode(record)) for record in decision.records)
    for timer in decision.timers:
        key: TimerKey = (TIMER_NAMES[timer.kind], group_id, timer.member_id)
        if timer.delay_ms is None:
            turn.timers.cancel(key)
        elif not timer.if_absent or key not in turn.timers:
            turn.set_timer(key, timer.delay_ms)


def _consumer_group(shard: GroupShard, group_id: str) -> ConsumerGroup:
    group = shard.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        kind = "not found" if group is None else "is not a consumer group"
        raise KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} {kind}.")
    return group


# --- the consumer protocol --------------------------------------------------------------------


def group_heartbeat(
    shard: GroupShard, now: Moment, request: Struct, version: int, client_id: str, host: str
) -> CoordinatorResult[tuple[Struct, frozenset[str]]]:
    """The response, and the expressions to resolve."""
    turn = shard.turn(now)
    group_id = request.group_id
    ctx = context(shard, turn, group_id)
    heartbeat.validate(request, version, ctx.config.assignors)
    if request.member_epoch < 0:
        group = _consumer_group(shard, group_id)
        decision = heartbeat.leave(group, request, ctx)
        if request.member_epoch == LEAVE_GROUP_MEMBER_EPOCH:
            _remove(turn, group, [decision.response.member_id], decision, ctx)
        else:
            take_up(turn, group_id, decision)
        return turn.result((decision.response, frozenset()), volatile=True)
    existing = shard.groups.get(group_id)
    if isinstance(existing, ConsumerGroup):
        draft = ConsumerDraft(existing)
    elif request.member_epoch > 0:
        reason = (
            f"Consumer group {group_id} not found."
            if existing is None
            else f"Group {group_id} is not a consumer group."
        )
        raise KafkaError(ErrorCode.group_id_not_found, reason)
    elif existing is None:
        draft = ConsumerDraft(ConsumerGroup(group_id))
    elif not isinstance(existing, ClassicGroup):
        reason = f"Group {group_id} is not a consumer group."
        raise KafkaError(ErrorCode.group_id_not_found, reason)
    else:
        draft = convert.upgraded(existing, ctx)
    decision = heartbeat.heartbeat(draft, request, client_id, host, ctx)
    if isinstance(existing, ClassicGroup):
        turn.records.extend(existing.tombstones())
        decision.timers[:0] = convert.part_with_classic(existing, turn)
    take_up(turn, group_id, decision)
    answer = decision.response, decision.resolve
    return turn.result(answer, volatile=isinstance(existing, ClassicGroup))


def resolved(
    shard: GroupShard, now: Moment, group_id: str, matched: dict[str, tuple[str, ...]], at: Offset
) -> CoordinatorResult[None]:
    """A thread has matched expressions against the topics of the metadata at offset `at`."""
    group = shard.groups.get(group_id)
    turn = shard.turn(now)
    if isinstance(group, ConsumerGroup):
        group.resolving -= matched.keys()
        decision = regexes_resolved(group, matched, at, context(shard, turn, group_id))
        take_up(turn, group_id, decision)
    return turn.result(None, volatile=False)


def describe(shard: GroupShard, group_id: str, default_assignor: str) -> Struct:
    group = shard.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return described(group, shard.image, default_assignor)
    kind = "not found" if group is None else "is not a consumer group"
    return undescribed(group_id, f"Group {group_id} {kind}.")


def _remove(
    turn: Turn, group: ConsumerGroup, leaving: list[str], decision: Decision, ctx: Context
) -> None:
    """`decision` fences the members; if only classic members are left, downgrades the group."""
    if not convert.may_downgrade(group, leaving, ctx):
        take_up(turn, group.group_id, decision)
        return
    tombstones, classic_group = convert.downgraded(group, leaving, ctx)
    for member_id in group.members:
        for name in TIMER_NAMES.values():
            turn.timers.cancel((name, group.group_id, member_id))
    turn.timers.cancel((TIMER_NAMES[TimerKind.ASSIGNMENT], group.group_id, ""))
    turn.records.extend(CoordinatorRecord(*rec.encode(record)) for record in tombstones)
    turn.records.append(classic_group)
    # Due after the record is replayed: the classic group exists then, and can rebalance.
    turn.set_timer((DOWNGRADED_TIMER, group.group_id), 1)


# --- members that use the classic protocol ----------------------------------------------------


def classic_join(
    shard: GroupShard, now: Moment, group: ConsumerGroup, request: Join
) -> CoordinatorResult[Struct]:
    turn = shard.turn(now)
    try:
        decision = classic.join(group, request, context(shard, turn, group.group_id))
    except KafkaError as error:
        return CoordinatorResult((), join_error(request.member_id, error.code))
    take_up(turn, group.group_id, decision)
    return turn.result(decision.response, volatile=False)


def classic_sync(
    shard: GroupShard, now: Moment, group: ConsumerGroup, request: Struct
) -> CoordinatorResult[Struct]:
    turn = shard.turn(now)
    decision = classic.sync(
        group,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        request.protocol_type,
        request.protocol_name,
        context(shard, turn, group.group_id),
    )
    take_up(turn, group.group_id, decision)
    return turn.result(decision.response, volatile=True)


def classic_heartbeat(
    shard: GroupShard, now: Moment, group: ConsumerGroup, request: Struct
) -> CoordinatorResult[ErrorCode]:
    turn = shard.turn(now)
    decision = classic.heartbeat(
        group, request.member_id, request.group_instance_id, request.generation_id
    )
    take_up(turn, group.group_id, decision)
    return turn.result(decision.response, volatile=True)


def classic_leave(
    shard: GroupShard, now: Moment, group: ConsumerGroup, members: list[tuple[str, str | None]]
) -> CoordinatorResult[list[ErrorCode]]:
    turn = shard.turn(now)
    decision, codes = classic.leave(group, members, context(shard, turn, group.group_id))
    take_up(turn, group.group_id, decision)
    return turn.result(codes, volatile=True)


# --- records and timers -----------------------------------------------------------------------


def replay(
    shard: GroupShard, _offset: Offset, _producer_id: ProducerId, record: CoordinatorRecord
) -> None:
    read = rec.decode(record.key, record.value)
    gone = read.value is None
    ends = gone and read.type == rec.GROUP_EPOCH
    group = shard.group_to_replay(ConsumerGroup, read.group_id, ends=ends, is_tombstone=gone)
    if group is not None:
        group.replay(read)


def due(shard: GroupShard, turn: Turn, key: TimerKey) -> None:
    name, group_id = key[0], key[1]
    group = shard.groups.get(group_id)
    if name == DOWNGRADED_TIMER:
        if isinstance(group, ClassicGroup) and group.members:
            for classic_member in group.members.values():
                group.alive(turn, classic_member)
            group.prepare_rebalance(turn)
        return
    if not isinstance(group, ConsumerGroup):
        return
    ctx = context(shard, turn, group_id)
    if name == TIMER_NAMES[TimerKind.ASSIGNMENT]:
        draft = ConsumerDraft(group)
        timers = maybe_assign(draft, ctx)
        take_up(turn, group_id, Decision(None, draft.records, timers))
        return
    member = group.members.get(key[2])
    if member is None:
        return
    if name == TIMER_NAMES[TimerKind.REBALANCE] and (
        member.state is not MemberState.UNREVOKED_PARTITIONS
    ):
        return
    decision = heartbeat.fence(group, [member.member_id], ctx)
    _remove(turn, group, [member.member_id], decision, ctx)


CONSUMER = GroupKind(
    replayers=dict.fromkeys(rec.TYPES, replay),
    timers=dict.fromkeys((*TIMER_NAMES.values(), DOWNGRADED_TIMER), due),
)
