"""Rules of requests about share groups; `access_rules.py` has the table."""

from collections.abc import Callable

from odradek_broker.handlers.access_groups import GROUP_DENIED
from odradek_broker.handlers.access_topics import (
    CLUSTER,
    CLUSTER_ACTION,
    DELETE,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    TOPIC_DENIED,
)
from odradek_broker.handlers.authorization import MESSAGES, Call, Check, denied, without
from odradek_protocol.messages.struct import Struct


async def share_member(check: Check, request: Struct, call: Call) -> Struct:
    """ShareFetch and ShareAcknowledge: READ of the group; the handlers check READ of topics."""
    if request.group_id is None or check.allows(READ, GROUP, request.group_id):
        return await call(request)
    return Struct(error_code=GROUP_DENIED, error_message=None, responses=[], node_endpoints=[])


async def state(check: Check, request: Struct, call: Call) -> Struct:
    """Requests of brokers to the share coordinator: CLUSTER_ACTION, refused per partition."""
    if check.allows(CLUSTER_ACTION, CLUSTER):
        return await call(request)
    error = denied(CLUSTER)
    return Struct(
        results=[
            Struct(
                topic_id=topic.topic_id,
                partitions=[
                    Struct(
                        partition=one.partition, error_code=error.code, error_message=error.message
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def describe_offsets(check: Check, request: Struct, call: Call) -> Struct:
    """DESCRIBE of the groups; topics that may not be described are refused, or hidden."""
    asked, refused = check.split(DESCRIBE, GROUP, request.groups, lambda one: one.group_id)
    hidden: list[list[Struct]] = []  # of each entry: a group may be named twice
    groups = []
    for one in asked:
        topics = one.topics
        others: list[Struct] = []
        if topics is not None:
            topics, others = check.split(DESCRIBE, TOPIC, topics, lambda t: t.topic_name)
        hidden.append([_undescribed(topic) for topic in others])
        groups.append(without(one, topics=topics))
    response = await call(without(request, groups=groups))
    for answer, one, refusals in zip(response.groups, asked, hidden, strict=True):
        if one.topics is None:
            answer.topics, _ = check.split(DESCRIBE, TOPIC, answer.topics, lambda t: t.topic_name)
        elif not answer.error_code:
            answer.topics = [*answer.topics, *refusals]
    message = MESSAGES[GROUP_DENIED]
    response.groups = [
        *response.groups,
        *(
            Struct(group_id=one.group_id, topics=[], error_code=GROUP_DENIED, error_message=message)
            for one in refused
        ),
    ]
    return response


def _undescribed(topic: Struct) -> Struct:
    return Struct(
        topic_name=topic.topic_name,
        topic_id=None,
        partitions=[
            Struct(
                partition_index=number,
                start_offset=-1,
                leader_epoch=0,
                lag=-1,
                error_code=TOPIC_DENIED,
                error_message=MESSAGES[TOPIC_DENIED],
            )
            for number in topic.partitions
        ],
    )


async def alter_offsets(check: Check, request: Struct, call: Call) -> Struct:
    """READ of the group and of each topic."""

    def refusal(topic: Struct) -> Struct:
        partitions = [_denied(partition_index=one.partition_index) for one in topic.partitions]
        return Struct(topic_name=topic.topic_name, topic_id=None, partitions=partitions)

    if not check.allows(READ, GROUP, request.group_id):
        return _group_refused()
    return await _change_offsets(check, request, call, refusal)


async def delete_offsets(check: Check, request: Struct, call: Call) -> Struct:
    """DELETE of the group, READ of each topic."""
    if not check.allows(DELETE, GROUP, request.group_id):
        return _group_refused()
    return await _change_offsets(
        check,
        request,
        call,
        lambda topic: _denied(topic_name=topic.topic_name, topic_id=None),
    )


async def _change_offsets(
    check: Check, request: Struct, call: Call, refusal: Callable[[Struct], Struct]
) -> Struct:
    """Passes on the topics that the client may read; the refusals come first in the answer."""
    rest, refused = check.split(READ, TOPIC, request.topics, lambda topic: topic.topic_name)
    response = await call(without(request, topics=rest))
    if not response.error_code:
        response.responses = [*map(refusal, refused), *response.responses]
    return response


def _denied(**fields: object) -> Struct:
    return Struct(**fields, error_code=TOPIC_DENIED, error_message=MESSAGES[TOPIC_DENIED])


def _group_refused() -> Struct:
    return Struct(error_code=GROUP_DENIED, error_message=MESSAGES[GROUP_DENIED], responses=[])
