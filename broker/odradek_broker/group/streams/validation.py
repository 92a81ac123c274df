"""Checks of a StreamsGroupHeartbeat independent of the group, in Kafka's order.

What Kafka 4.3 does not support is refused here too: static members, warm-up tasks and offsets of
tasks, source topics by expression.
"""

from odradek_broker.group.streams.member import LEAVE_GROUP_STATIC_MEMBER_EPOCH
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

TOGETHER = "If one task-type is non-null, all must be non-null."


def validate(request: Struct) -> None:
    reason = _unsupported(request) or _blank(request)
    if reason is None and request.member_epoch == 0:
        reason = _joining(request)
        if reason is None:
            _check_changelogs(request.topology)
    elif reason is None:
        reason = _epoch(request)
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if reason is None and None in tasks and any(one is not None for one in tasks):
        reason = TOGETHER
    if reason is None and request.member_epoch != 0 and request.topology is not None:
        reason = "Topology can only be provided when (re-)joining."
    if reason is not None:
        raise KafkaError(ErrorCode.invalid_request, reason)


def _unsupported(request: Struct) -> str | None:
    topology = request.topology
    for refused, reason in (
        (request.instance_id is not None, "Static membership is not yet supported."),
        (request.task_offsets is not None, "TaskOffsets are not supported yet."),
        (request.task_end_offsets is not None, "TaskEndOffsets are not supported yet."),
        (bool(request.warmup_tasks), "WarmupTasks are not supported yet."),
        (
            topology is not None and any(one.source_topic_regex for one in topology.subtopologies),
            "Regular expressions for source topics are not supported yet.",
        ),
    ):
        if refused:
            return reason
    return None


def _blank(request: Struct) -> str | None:
    for value, name in (
        (request.member_id, "MemberId"),
        (request.group_id, "GroupId"),
        (request.rack_id, "RackId"),
    ):
        if value is not None and not value.strip():
            return f"{name} can't be empty."
    return None


def _joining(request: Struct) -> str | None:
    if request.rebalance_timeout == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    for tasks, name in (
        (request.active_tasks, "ActiveTasks"),
        (request.standby_tasks, "StandbyTasks"),
        (request.warmup_tasks, "WarmupTasks"),
    ):
        if tasks is None or tasks:
            return f"{name} must be empty when (re-)joining."
    if request.topology is None:
        return "Topology must be non-null when (re-)joining."
    return None


def _epoch(request: Struct) -> str | None:
    epoch = request.member_epoch
    if epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        return "InstanceId can't be null."  # static members are refused above
    if epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        return f"MemberEpoch is {epoch}, but must be greater than or equal to -2."
    return None


def _check_changelogs(topology: Struct) -> None:
    for one in topology.subtopologies:
        for topic in one.state_changelog_topics:
            if topic.partitions != 0:
                raise KafkaError(
                    ErrorCode.streams_invalid_topology,
                    f"Changelog topic {topic.name} must have an undefined partition count, but it "
                    f"is set to {topic.partitions}.",
                )
