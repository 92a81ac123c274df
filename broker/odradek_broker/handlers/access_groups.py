"""Rules of requests about groups and their offsets; `access_rules.py` has the table."""

from odradek_broker.group.describing import undescribed
from odradek_broker.handlers.access_topics import (
    CLUSTER,
    CLUSTER_ACTION,
    DELETE,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    TOPIC_DENIED,
    TRANSACTIONAL_ID,
    TRANSACTIONAL_ID_DENIED,
    WRITE,
    Parts,
    check_rest,
)
from odradek_broker.handlers.authorization import MESSAGES, Call, Check, denied, without
from odradek_protocol.acl_codes import AclResource
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

GROUP_DENIED = ErrorCode.group_authorization_failed
OF_GROUP, OF_TRANSACTION = 0, 1
COORDINATORS_SINCE = 4
SYNC, PROTOCOL_SINCE = 14, 5
NULLABLE_PROTOCOL_SINCE = 7  # JoinGroup
SHARE_SINCE = 6
OF_SHARE_GROUP = 2
GROUPS_SINCE = 8  # OffsetFetch of several groups


async def member(check: Check, request: Struct, call: Call) -> Struct:
    """JoinGroup, SyncGroup, Heartbeat, LeaveGroup of a classic member."""
    protocol = getattr(request, "protocol_type", ""), getattr(request, "protocol_name", "")
    if check.ctx.api_key == SYNC and check.ctx.api_version >= PROTOCOL_SINCE and None in protocol:
        return await call(request)  # the handler refuses it before the right is checked
    if not check.allows(READ, GROUP, request.group_id):
        nullable_since = 0 if check.ctx.api_key == SYNC else NULLABLE_PROTOCOL_SINCE
        return check.answer(
            error_code=GROUP_DENIED,
            member_id="",
            generation_id=-1,
            protocol_name=None if check.ctx.api_version >= nullable_since else "",
            leader="",
            members=[],
            assignment=b"",
        )
    return await call(request)


async def consumer_member(check: Check, request: Struct, call: Call) -> Struct:
    """READ of the group, and DESCRIBE of every topic that the member names."""
    names = request.subscribed_topic_names or ()
    if not check.allows(READ, GROUP, request.group_id):
        code = GROUP_DENIED
    elif check.split(DESCRIBE, TOPIC, names, lambda name: name)[1]:
        code = TOPIC_DENIED
    else:
        return await call(request)
    return Struct(error_code=code, error_message=None, member_id=None, assignment=None)


async def describe_groups(check: Check, request: Struct, call: Call) -> Struct:
    rest, refused = check.split(DESCRIBE, GROUP, request.groups, lambda name: name)
    answers = [
        Struct(
            error_code=GROUP_DENIED,
            error_message=None,
            group_id=name,
            group_state="",
            protocol_type="",
            protocol_data="",
            members=[],
        )
        for name in refused
    ]
    return await check_rest(check, request, call, Parts("groups", rest, "groups", answers))


async def describe_modern_groups(check: Check, request: Struct, call: Call) -> Struct:
    """ConsumerGroupDescribe and ShareGroupDescribe."""
    rest, refused = check.split(DESCRIBE, GROUP, request.group_ids, lambda name: name)
    answers = [undescribed(name, None, GROUP_DENIED) for name in refused]
    response = await check_rest(check, request, call, Parts("group_ids", rest, "groups", answers))
    response.groups = [
        group if _sees_topics(check, group) else undescribed(group.group_id, HIDDEN, TOPIC_DENIED)
        for group in response.groups
    ]
    return response


HIDDEN = "The group has described topic(s) that the client is not authorized to describe."


def _sees_topics(check: Check, group: Struct) -> bool:
    names = {
        topic.topic_name
        for one in group.members
        for assignment in (one.assignment, getattr(one, "target_assignment", None))
        if assignment is not None
        for topic in assignment.topic_partitions
    }
    names.update(name for one in group.members for name in one.subscribed_topic_names)
    return all(check.allows(DESCRIBE, TOPIC, name) for name in sorted(names))


async def delete_groups(check: Check, request: Struct, call: Call) -> Struct:
    names = list(dict.fromkeys(request.groups_names))
    rest, refused = check.split(DELETE, GROUP, names, lambda name: name)
    answers = [Struct(group_id=name, error_code=GROUP_DENIED) for name in refused]
    return await check_rest(check, request, call, Parts("groups_names", rest, "results", answers))


async def list_groups(check: Check, request: Struct, call: Call) -> Struct:
    """DESCRIBE of the cluster shows all groups, otherwise those that the client may describe."""
    response = await call(request)
    if not check.allows(DESCRIBE, CLUSTER, log_denied=False):
        response.groups = [
            one
            for one in response.groups
            if check.allows(DESCRIBE, GROUP, one.group_id, log_denied=False)
        ]
    return response


async def offset_commit(check: Check, request: Struct, call: Call) -> Struct:
    if not check.allows(READ, GROUP, request.group_id):
        return Struct(topics=[_uncommitted(topic, GROUP_DENIED) for topic in request.topics])
    return await _readable_topics(check, request, call)


async def txn_offset_commit(check: Check, request: Struct, call: Call) -> Struct:
    code = ErrorCode.none
    if not check.allows(WRITE, TRANSACTIONAL_ID, request.transactional_id):
        code = TRANSACTIONAL_ID_DENIED
    elif not check.allows(READ, GROUP, request.group_id):
        code = GROUP_DENIED
    if code:
        return Struct(topics=[_uncommitted(topic, code) for topic in request.topics])
    return await _readable_topics(check, request, call)


async def offset_delete(check: Check, request: Struct, call: Call) -> Struct:
    if not check.allows(DELETE, GROUP, request.group_id):
        return Struct(error_code=GROUP_DENIED, topics=[])
    rest, refused = check.split(READ, TOPIC, request.topics, check.topic_name)
    response = await call(without(request, topics=rest))  # the handler looks for the group first
    if not response.error_code:
        response.topics += [_uncommitted(topic, TOPIC_DENIED) for topic in refused]
    return response


async def _readable_topics(check: Check, request: Struct, call: Call) -> Struct:
    rest, refused = check.split(READ, TOPIC, request.topics, check.topic_name)
    answers = [_uncommitted(topic, TOPIC_DENIED) for topic in refused]
    return await check_rest(check, request, call, Parts("topics", rest, "topics", answers))


def _uncommitted(topic: Struct, code: ErrorCode) -> Struct:
    return Struct(
        **_identity(topic),
        partitions=[
            Struct(partition_index=one.partition_index, error_code=code) for one in topic.partitions
        ],
    )


def _identity(topic: Struct) -> dict[str, object]:
    return {name: value for name, value in topic.__dict__.items() if name in ("name", "topic_id")}


async def offset_fetch(check: Check, request: Struct, call: Call) -> Struct:
    """DESCRIBE of the group, and of each topic; a request for all topics gets those it may see."""
    if check.ctx.api_version < GROUPS_SINCE:
        if not check.allows(DESCRIBE, GROUP, request.group_id):
            topics = [_unfetched(topic, GROUP_DENIED) for topic in request.topics or ()]
            shown = topics if check.ctx.api_version < 2 else []
            return Struct(topics=shown, error_code=GROUP_DENIED)
        rest, refused = _describable(check, request.topics)
        response = await call(without(request, topics=rest))
        response.topics = _shown(check, response.topics, refused, request.topics is None)
        return response
    asked, denied_groups = check.split(DESCRIBE, GROUP, request.groups, lambda one: one.group_id)
    split = [_describable(check, one.topics) for one in asked]  # a group may be named twice
    groups = [without(one, topics=rest) for one, (rest, _) in zip(asked, split, strict=True)]
    response = await call(without(request, groups=groups))
    for answer, one, (_, refused) in zip(response.groups, asked, split, strict=True):
        if not answer.error_code:
            answer.topics = _shown(check, answer.topics, refused, one.topics is None)
    response.groups = [
        *response.groups,
        *(
            Struct(group_id=one.group_id, topics=[], error_code=GROUP_DENIED)
            for one in denied_groups
        ),
    ]
    return response


def _describable(
    check: Check, topics: list[Struct] | None
) -> tuple[list[Struct] | None, list[Struct]]:
    if topics is None:
        return None, []
    return check.split(DESCRIBE, TOPIC, topics, check.topic_name)


def _shown(check: Check, topics: list[Struct], refused: list[Struct], all_: bool) -> list[Struct]:
    if all_:
        topics, _ = check.split(DESCRIBE, TOPIC, topics, lambda topic: topic.name)
    return [*topics, *(_unfetched(topic, TOPIC_DENIED) for topic in refused)]


def _unfetched(topic: Struct, code: ErrorCode) -> Struct:
    return Struct(
        **_identity(topic),
        partitions=[
            Struct(
                partition_index=index,
                committed_offset=-1,
                committed_leader_epoch=-1,
                metadata="",
                error_code=code,
            )
            for index in topic.partition_indexes
        ],
    )


async def find_coordinator(check: Check, request: Struct, call: Call) -> Struct:
    kind = {OF_GROUP: GROUP, OF_TRANSACTION: TRANSACTIONAL_ID}.get(request.key_type)
    if kind is None:
        shares = request.key_type == OF_SHARE_GROUP and check.ctx.api_version >= SHARE_SINCE
        if not shares or check.allows(CLUSTER_ACTION, CLUSTER):
            return await call(request)
        found = [_no_coordinator(CLUSTER, message=True, key=k) for k in request.coordinator_keys]
        return Struct(coordinators=found)
    if check.ctx.api_version < COORDINATORS_SINCE:
        if check.allows(DESCRIBE, kind, request.key):
            return await call(request)
        return _no_coordinator(kind, message=True)
    rest, refused = check.split(DESCRIBE, kind, request.coordinator_keys, lambda key: key)
    answers = [_no_coordinator(kind, message=False, key=key) for key in refused]
    return await check_rest(
        check, request, call, Parts("coordinator_keys", rest, "coordinators", answers)
    )


def _no_coordinator(kind: AclResource, *, message: bool, **key: str) -> Struct:
    error = denied(kind)
    text = MESSAGES[error.code] if message else ""
    return Struct(node_id=-1, host="", port=-1, error_code=error.code, error_message=text, **key)
