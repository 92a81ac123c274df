"""StreamsGroupHeartbeat: a member joins (epoch 0), stays, or leaves (epoch -1).

One pass: find or create the member → write what changed about it → the topology, if it is the first
one → check the topics → a new group epoch if anything of this changed → a new target if the epoch
is ahead of it → bring this member one step closer to its target → respond.
"""

from dataclasses import replace
from typing import Any

from odradek_broker.group.member_epochs import check_epoch
from odradek_broker.group.streams import records as rec
from odradek_broker.group.streams.assignor import MemberSpec, assign
from odradek_broker.group.streams.config import NUM_STANDBY_REPLICAS
from odradek_broker.group.streams.context import Context, Decision, StreamsDraft, Timer, TimerKind
from odradek_broker.group.streams.endpoints import partitions_by_endpoint
from odradek_broker.group.streams.group import NOT_VALIDATED, StreamsGroup
from odradek_broker.group.streams.member import (
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    NO_TAGS,
    MemberState,
    StreamsMember,
    UserEndpoint,
)
from odradek_broker.group.streams.reconcile import reconcile
from odradek_broker.group.streams.tasks import NO_TASKS, Tasks, of_structs, structs_of
from odradek_broker.group.streams.topics import Configured, TopicsStatus
from odradek_broker.group.streams.topology import Topology
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

DELAYED_AT_FIRST = "Assignment delayed due to the configured initial rebalance delay."
DELAYED = "Assignment delayed due to the configured assignment interval."


def owned_in(request: Struct) -> Tasks | None:
    """The tasks in a heartbeat; None if it has none."""
    if request.active_tasks is None:
        return None
    return Tasks(
        of_structs(request.active_tasks),
        of_structs(request.standby_tasks or ()),
        of_structs(request.warmup_tasks or ()),
    )


def heartbeat(
    draft: StreamsDraft, request: Struct, client_id: str, client_host: str, ctx: Context
) -> Decision:
    """The heartbeat of a member that joins or stays; see `leave` for the others."""
    was_empty, group_id = draft.group.is_empty, draft.group.group_id
    owned = owned_in(request)
    member = _member(draft.group, request, owned, ctx)
    updated = _updated(member, request, client_id, client_host)
    is_new = member.member_id not in draft.group.members
    changed = is_new or updated != member
    if changed:
        draft.add(rec.member(group_id, updated))
    topology = _topology(draft, request.topology)
    statuses = _stale(updated, topology)
    configured = draft.group.configured(topology, ctx.image)
    if configured.is_ready and owned is not None:
        _check_tasks(configured, owned)
    bump_if_changed(draft, changed, topology, configured, ctx)

    delay_ms = ctx.config.initial_rebalance_delay_ms
    timers = []
    delayed = ctx.delayed
    if was_empty and delay_ms > 0:
        delayed = True
        timers.append(Timer(TimerKind.INITIAL, delay_ms=delay_ms))
    target = draft.group.target_of(member.member_id)
    if delayed:
        target = NO_TASKS
        statuses.append(_status(TopicsStatus.ASSIGNMENT_DELAYED, DELAYED_AT_FIRST))
    elif draft.group.group_epoch > draft.group.target_epoch:
        if _may_assign(draft.group, ctx):
            assign_tasks(draft, configured, ctx)
            target = draft.group.target_of(member.member_id)
        else:
            statuses.append(_status(TopicsStatus.ASSIGNMENT_DELAYED, DELAYED))
    after = reconcile(draft.group, updated, target, owned)
    if is_new or after != updated:
        draft.add(rec.current_member(group_id, after))
    timers += [
        Timer(TimerKind.SESSION, after.member_id, ctx.config.session_timeout_ms),
        *rebalance_timers(member, after),
    ]
    decision = Decision(None, draft.records, timers, configured.missing)
    if request.shutdown_application:
        decision.shutdown_requested_by = after.member_id
    decision.response = _response(draft.group, member, after, owned, request, ctx)
    decision.endpoints_changed = (
        decision.response.active_tasks is not None and after.user_endpoint is not None
    )
    _with_endpoints(decision, draft.group, after, request, ctx)
    if configured.problem is not None:
        statuses.append(_status(*configured.problem))
    stopper = draft.group.shutdown_requested_by or decision.shutdown_requested_by
    if stopper is not None:
        statuses.append(
            _status(
                TopicsStatus.SHUTDOWN_APPLICATION,
                f"Streams group member {stopper} encountered a fatal error and requested a "
                "shutdown for the entire application.",
            )
        )
    decision.response.status = statuses
    return decision


# --- the member ---------------------------------------------------------------------------------


def _member(
    group: StreamsGroup, request: Struct, owned: Tasks | None, ctx: Context
) -> StreamsMember:
    joins = request.member_epoch == 0
    if joins and len(group.members) >= ctx.config.max_size:
        raise KafkaError(
            ErrorCode.group_max_size_reached,
            f"The streams group has reached its maximum capacity of {ctx.config.max_size} members.",
        )
    if joins and request.member_id not in group.members:
        return StreamsMember(request.member_id)
    member = group.member(request.member_id)
    _check_epoch(member, request.member_epoch, owned)
    return member


def _check_epoch(member: StreamsMember, received: int, owned: Tasks | None) -> None:
    def owns_no_more() -> bool:
        return owned is not None and owned.is_within(member.owned)

    check_epoch("streams", member, received, owns_no_more)


def _updated(
    member: StreamsMember, request: Struct, client_id: str, client_host: str
) -> StreamsMember:
    endpoint, tags = request.user_endpoint, request.client_tags
    changes: dict[str, Any] = {
        "rack_id": request.rack_id,
        "topology_epoch": None if request.topology is None else request.topology.epoch,
        "process_id": request.process_id,
        "user_endpoint": None if endpoint is None else UserEndpoint(endpoint.host, endpoint.port),
        "client_tags": None if tags is None else {one.key: one.value for one in tags} or NO_TAGS,
        "rebalance_timeout_ms": (
            None if request.rebalance_timeout == -1 else request.rebalance_timeout
        ),
    }
    given = {name: value for name, value in changes.items() if value is not None}
    return replace(member, client_id=client_id, client_host=client_host, **given)


def rebalance_timers(before: StreamsMember, after: StreamsMember) -> list[Timer]:
    """A member that must give tasks back has its rebalance timeout for it."""
    if after.state is MemberState.UNREVOKED_TASKS:
        if before.state is after.state and before.member_epoch == after.member_epoch:
            return []
        return [Timer(TimerKind.REBALANCE, after.member_id, after.rebalance_timeout_ms)]
    return [Timer(TimerKind.REBALANCE, after.member_id)] if before.state != after.state else []


# --- the topology -------------------------------------------------------------------------------


def _topology(draft: StreamsDraft, sent: Struct | None) -> Topology:
    known = draft.group.topology
    if sent is None:
        if known is None:
            raise KafkaError(ErrorCode.invalid_request, "The group has no topology yet.")
        return known
    topology = Topology.of(sent)
    if known is None:
        draft.add(rec.topology(draft.group.group_id, topology))
        assert draft.group.topology is not None
        return draft.group.topology
    if known.epoch <= topology.epoch and known != topology:
        raise KafkaError(ErrorCode.invalid_request, "Topology updates are not supported yet.")
    return known


def _stale(member: StreamsMember, topology: Topology) -> list[Struct]:
    if member.topology_epoch >= topology.epoch:
        return []
    detail = (
        f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch "
        f"{topology.epoch}."
    )
    return [_status(TopicsStatus.STALE_TOPOLOGY, detail)]


def _check_tasks(configured: Configured, owned: Tasks) -> None:
    assert configured.subtopologies is not None
    for partitions in owned:
        for name, numbers in partitions.items():
            subtopology = configured.subtopologies.get(name)
            if subtopology is None:
                raise KafkaError(
                    ErrorCode.invalid_request, f"Subtopology {name} does not exist in the topology."
                )
            for number in sorted(numbers):
                if not 0 <= number < subtopology.tasks:
                    raise KafkaError(
                        ErrorCode.invalid_request,
                        f"Task {number} for subtopology {name} is invalid. Number of tasks for "
                        f"this subtopology: {subtopology.tasks}",
                    )


# --- epochs and the target ----------------------------------------------------------------------


def bump_if_changed(
    draft: StreamsDraft, changed: bool, topology: Topology, configured: Configured, ctx: Context
) -> None:
    """A new group epoch if a member, the topics or a setting of the assignment have changed."""
    group = draft.group
    metadata_hash = group.hash_of_topics(topology, ctx.image)
    validated = topology.epoch if configured.is_ready else NOT_VALIDATED
    configs = ctx.config.assignment_configs
    if (
        changed
        or metadata_hash != group.metadata_hash
        or validated != group.validated_topology_epoch
        or configs != group.assignment_configs
    ):
        epoch = group.group_epoch + 1
        draft.add(rec.group(group.group_id, epoch, metadata_hash, validated, configs))


def _may_assign(group: StreamsGroup, ctx: Context) -> bool:
    if group.target_timestamp_ms == 0:
        return True
    age_ms = ctx.now_ms - group.target_timestamp_ms
    return not 0 <= age_ms < ctx.config.assignment_interval_ms


def assign_tasks(draft: StreamsDraft, configured: Configured, ctx: Context) -> None:
    """Records for the members whose target changes, then the target's new epoch. Without topics
    there are no tasks."""
    group = draft.group
    targets: dict[str, Tasks] = dict.fromkeys(group.members, NO_TASKS)
    if configured.is_ready:
        assert configured.subtopologies is not None
        members = {
            name: MemberSpec(member.process_id, group.target_of(name))
            for name, member in group.members.items()
        }
        replicas = int(group.assignment_configs.get(NUM_STANDBY_REPLICAS, 0))
        targets = assign(members, configured.subtopologies, replicas)
    for member_id, tasks in targets.items():
        if member_id not in group.target or tasks != group.target[member_id]:
            draft.add(rec.target_member(group.group_id, member_id, tasks))
    draft.add(rec.target(group.group_id, group.group_epoch, ctx.now_ms))


# --- responses ----------------------------------------------------------------------------------


def _status(status: TopicsStatus, detail: str) -> Struct:
    return Struct(status_code=int(status), status_detail=detail)


def _response(
    group: StreamsGroup,
    before: StreamsMember,
    after: StreamsMember,
    owned: Tasks | None,
    request: Struct,
    ctx: Context,
) -> Struct:
    response = Struct(
        throttle_time=0,
        error_code=ErrorCode.none,
        error_message=None,
        member_id=after.member_id,
        member_epoch=after.member_epoch,
        heartbeat_interval=ctx.config.heartbeat_interval_ms,
        acceptable_recovery_lag=0,
        task_offset_interval=0,
        status=[],
        active_tasks=None,
        standby_tasks=None,
        warmup_tasks=None,
        endpoint_information_epoch=group.endpoint_epoch,
        partitions_by_user_endpoint=None,
    )
    missed = owned is not None and _missed(owned, after)
    if request.member_epoch == 0 or before.owned != after.owned or missed:
        response.active_tasks = structs_of(after.owned.active)
        response.standby_tasks = structs_of(after.owned.standby)
        response.warmup_tasks = structs_of(after.owned.warmup)
    return response


def _missed(owned: Tasks, member: StreamsMember) -> bool:
    """The member reports its tasks; it has not got some, or has some to give back: the last answer
    was lost. (Kafka does not send it again: the tasks wait for a rebalance, or a timeout.)"""
    return owned.overlaps(member.revoking) or any(
        not partitions <= mine.get(name, frozenset())
        for mine, theirs in zip(owned, member.owned.plain, strict=True)
        for name, partitions in theirs.items()
    )


def _with_endpoints(
    decision: Decision, group: StreamsGroup, member: StreamsMember, request: Struct, ctx: Context
) -> None:
    epoch = group.endpoint_epoch + decision.endpoints_changed
    if epoch != request.endpoint_information_epoch:
        decision.response.partitions_by_user_endpoint = partitions_by_endpoint(
            group, member, ctx.image
        )
    decision.response.endpoint_information_epoch = epoch


def leave(group: StreamsGroup, request: Struct) -> Decision:
    decision = fence(group, group.member(request.member_id).member_id)
    decision.response = Struct(
        throttle_time=0,
        error_code=ErrorCode.none,
        error_message=None,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        heartbeat_interval=0,
        acceptable_recovery_lag=0,
        task_offset_interval=0,
        status=[],
        active_tasks=None,
        standby_tasks=None,
        warmup_tasks=None,
        endpoint_information_epoch=0,
        partitions_by_user_endpoint=None,
    )
    if request.shutdown_application:
        decision.shutdown_requested_by = request.member_id
    return decision


def fence(group: StreamsGroup, member_id: str) -> Decision:
    """Removes a member; the next heartbeat of another one computes the new target."""
    draft = StreamsDraft(group)
    draft.add(*rec.member_tombstones(group.group_id, member_id))
    draft.add(
        rec.group(
            group.group_id,
            group.group_epoch + 1,
            group.metadata_hash,
            group.validated_topology_epoch,
            group.assignment_configs,
        )
    )
    timers = [Timer(TimerKind.SESSION, member_id), Timer(TimerKind.REBALANCE, member_id)]
    return Decision(None, draft.records, timers)


LEAVING = (LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH)
