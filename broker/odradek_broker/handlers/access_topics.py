"""Rules of requests about topics, partitions and transactions; `access_rules.py` has the table."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from odradek_broker.controller.topic_names import INTERNAL_TOPICS, NOT_HOSTED, validate_topic_name
from odradek_broker.handlers.add_partitions_to_txn import (
    Results,
    by_topic,
    if_refused,
    partitions_of,
)
from odradek_broker.handlers.authorization import MESSAGES, Call, Check, Rule, denied, without
from odradek_protocol.acl_codes import AclOperation, AclResource
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

TOPIC, GROUP, CLUSTER = AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER
TRANSACTIONAL_ID = AclResource.TRANSACTIONAL_ID
READ, WRITE, CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
DELETE, DESCRIBE, ALTER = AclOperation.DELETE, AclOperation.DESCRIBE, AclOperation.ALTER
CLUSTER_ACTION = AclOperation.CLUSTER_ACTION
TOPIC_DENIED = ErrorCode.topic_authorization_failed
TRANSACTIONAL_ID_DENIED = ErrorCode.transactional_id_authorization_failed

BATCHED_SINCE = 4  # AddPartitionsToTxn between brokers


def per_topic(
    operation: AclOperation,
    refuse: Callable[[Struct], Struct],
    *,
    also: AclOperation | None = None,
    field: str = "topics",
    results: str = "topics",
    name: str = "name",
    name_of: Callable[[Struct, str], str | None] = getattr,
) -> Rule:
    """Topics without the right are refused one by one; a right `also` on the cluster covers all."""

    async def rule(check: Check, request: Struct, call: Call) -> Struct:
        if also is not None and check.allows(also, CLUSTER, log_denied=False):
            return await call(request)
        asked = getattr(request, field)
        rest, refused = check.split(operation, TOPIC, asked, lambda topic: name_of(topic, name))
        answers = [refuse(topic) for topic in refused]
        return await check_rest(check, request, call, Parts(field, rest, results, answers))

    return rule


def valid_name(topic: Struct, field: str) -> str | None:
    """None for a name that no topic can have: the handler refuses it."""
    name: str = getattr(topic, field)
    try:
        validate_topic_name(name)
    except KafkaError:
        return None
    return name


class Parts(NamedTuple):
    """A request that is refused in part."""

    field: str  # of the request
    rest: Sequence[Any]  # its items that are allowed
    results: str  # the field of the response
    refused: list[Struct]  # its answers about the others


async def check_rest(check: Check, request: Struct, call: Call, parts: Parts) -> Struct:
    """The response about the rest of the request, with the refused items added."""
    if not parts.refused:
        return await call(request)
    if not parts.rest:
        return check.answer(**{"error_code": ErrorCode.none, parts.results: parts.refused})
    response = await call(without(request, **{parts.field: parts.rest}))
    setattr(response, parts.results, [*getattr(response, parts.results), *parts.refused])
    return response


def offsets_refused(topic: Struct) -> Struct:
    return Struct(
        name=topic.name,
        partitions=[
            Struct(
                partition_index=one.partition_index,
                error_code=TOPIC_DENIED,
                timestamp=-1,
                offset=-1,
                leader_epoch=-1,
            )
            for one in topic.partitions
        ],
    )


def epochs_refused(topic: Struct) -> Struct:
    return Struct(
        topic=topic.topic,
        partitions=[
            Struct(partition=one.partition, error_code=TOPIC_DENIED, leader_epoch=-1, end_offset=-1)
            for one in topic.partitions
        ],
    )


def deletions_refused(topic: Struct) -> Struct:
    return Struct(
        name=topic.name,
        partitions=[
            Struct(partition_index=one.partition_index, low_watermark=-1, error_code=TOPIC_DENIED)
            for one in topic.partitions
        ],
    )


def producers_refused(topic: Struct) -> Struct:
    return Struct(
        name=topic.name,
        partitions=[
            Struct(
                partition_index=index,
                error_code=TOPIC_DENIED,
                error_message=MESSAGES[TOPIC_DENIED],
                active_producers=[],
            )
            for index in topic.partition_indexes
        ],
    )


def partitions_refused(topic: Struct) -> Struct:
    return Struct(name=topic.name, error_code=TOPIC_DENIED, error_message=None)


async def create_topics(check: Check, request: Struct, call: Call) -> Struct:
    """CREATE on the cluster or on the topic; DESCRIBE_CONFIGS to see what it was created with."""
    rest: list[Struct] = list(request.topics)
    refused: list[Struct] = []
    if not check.allows(CREATE, CLUSTER, log_denied=False):
        rest, refused = check.split(CREATE, TOPIC, rest, lambda topic: topic.name)
    answers = [_not_created(topic) for topic in refused]
    response = await check_rest(check, request, call, Parts("topics", rest, "topics", answers))
    for topic in response.topics:
        shown = not topic.error_code and check.allows(
            AclOperation.DESCRIBE_CONFIGS, TOPIC, topic.name, log_denied=False
        )
        if not shown and not topic.error_code:
            topic.topic_config_error_code = TOPIC_DENIED
            topic.num_partitions = topic.replication_factor = -1
            topic.configs = []
    return response


def _not_created(topic: Struct) -> Struct:
    return Struct(
        name=topic.name, error_code=TOPIC_DENIED, error_message="Authorization failed.", configs=[]
    )


async def delete_topics(check: Check, request: Struct, call: Call) -> Struct:
    """DELETE on the cluster or on the topic. Ids are not secret, names are."""
    if check.allows(DELETE, CLUSTER, log_denied=False):
        return await call(request)
    names = []
    topics = []
    refused = []
    for name in request.topic_names:
        if not check.allows(DESCRIBE, TOPIC, name) or not check.allows(DELETE, TOPIC, name):
            refused.append(_not_deleted(check, name, None))
        else:
            names.append(name)
    for topic in request.topics:
        known = check.topic_name(topic)
        if known is None or (topic.name is not None and topic.topic_id is not None):
            topics.append(topic)  # an unknown id, or both: not deleted in any case
        elif topic.topic_id is None:
            if check.allows(DESCRIBE, TOPIC, known) and check.allows(DELETE, TOPIC, known):
                topics.append(topic)
            else:
                refused.append(_not_deleted(check, known, None))
        elif check.allows(DELETE, TOPIC, known):
            topics.append(topic)
        else:
            shown = known if check.allows(DESCRIBE, TOPIC, known) else None
            refused.append(_not_deleted(check, shown, topic.topic_id))
    if refused and not names and not topics:
        return Struct(responses=refused)
    response = await call(without(request, topic_names=names, topics=topics))
    response.responses = [*response.responses, *refused]
    return response


def _not_deleted(check: Check, name: str | None, topic_id: object) -> Struct:
    """Clients that may describe a topic learn that it does not exist."""
    code, message = TOPIC_DENIED, MESSAGES[TOPIC_DENIED]
    if topic_id is None and name is not None:
        missing = name not in check.ctx.broker.controller.image.topics
        if missing and check.allows(DESCRIBE, TOPIC, name, log_denied=False):
            code, message = ErrorCode.unknown_topic_or_partition, NOT_HOSTED
    return Struct(name=name, topic_id=topic_id, error_code=code, error_message=message)


# -- transactions ---------------------------------------------------------------------------------


async def init_producer_id(check: Check, request: Struct, call: Call) -> Struct:
    """Without a transactional id, one right to write to some topic is enough."""
    refusal = ErrorCode.none
    if request.transactional_id is not None:
        if not check.allows(WRITE, TRANSACTIONAL_ID, request.transactional_id):
            refusal = TRANSACTIONAL_ID_DENIED
    elif not check.allows(
        AclOperation.IDEMPOTENT_WRITE, CLUSTER, log_denied=False
    ) and not check.allows_any(WRITE, TOPIC):
        refusal = ErrorCode.cluster_authorization_failed
    if refusal:
        return Struct(error_code=refusal, producer_id=-1, producer_epoch=-1)
    return await call(request)


async def end_txn(check: Check, request: Struct, call: Call) -> Struct:
    if not check.allows(WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return Struct(error_code=TRANSACTIONAL_ID_DENIED, producer_id=-1, producer_epoch=-1)
    return await call(request)


async def add_offsets_to_txn(check: Check, request: Struct, call: Call) -> Struct:
    check.require(WRITE, TRANSACTIONAL_ID, request.transactional_id)
    check.require(READ, GROUP, request.group_id)
    return await call(request)


async def add_partitions_to_txn(check: Check, request: Struct, call: Call) -> Struct:
    if check.ctx.api_version >= BATCHED_SINCE:
        check.require(CLUSTER_ACTION, CLUSTER)
        return await call(request)
    topics = request.v3_and_below_topics
    partitions = partitions_of(topics)
    if not check.allows(WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        return _none_added(dict.fromkeys(partitions, TRANSACTIONAL_ID_DENIED))
    _, refused = check.split(WRITE, TOPIC, topics, lambda topic: topic.name)
    if refused:
        names = {topic.name for topic in refused}
        results = if_refused(check.ctx.broker.metadata, partitions, names | INTERNAL_TOPICS)
        return _none_added(results or {})
    return await call(request)


def _none_added(results: Results) -> Struct:
    return Struct(results_by_topic_v3_and_below=by_topic(results))


async def write_txn_markers(check: Check, request: Struct, call: Call) -> Struct:
    """Brokers, and operators who abort a hanging transaction."""
    if check.allows(ALTER, CLUSTER, log_denied=False) or check.allows(CLUSTER_ACTION, CLUSTER):
        return await call(request)
    code = denied(CLUSTER).code
    return Struct(
        markers=[
            Struct(
                producer_id=marker.producer_id,
                topics=[
                    Struct(
                        name=topic.name,
                        partitions=[
                            Struct(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


async def list_transactions(check: Check, request: Struct, call: Call) -> Struct:
    response = await call(request)
    response.transaction_states = [
        one
        for one in response.transaction_states
        if check.allows(DESCRIBE, TRANSACTIONAL_ID, one.transactional_id)
    ]
    return response


async def describe_transactions(check: Check, request: Struct, call: Call) -> Struct:
    rest, refused = check.split(
        DESCRIBE, TRANSACTIONAL_ID, request.transactional_ids, lambda one: one
    )
    response = await call(without(request, transactional_ids=rest))
    for one in response.transaction_states:
        one.topics, _ = check.split(DESCRIBE, TOPIC, one.topics, lambda topic: topic.topic)
    response.transaction_states += [
        Struct(error_code=TRANSACTIONAL_ID_DENIED, transactional_id=one, transaction_state="")
        for one in refused
    ]
    return response
