"""StreamsGroupHeartbeat (88), v0: join a group of the streams protocol, stay in it, leave it.

The first request of a member has the topology of its application (KIP-1071); the response has
tasks, or says what the topics lack. Internal topics that are missing are created in the background,
with the member's right to create them: tasks follow with a later heartbeat.
"""

import asyncio
from collections.abc import Iterable

from odradek_broker.group.streams.topics import TopicsStatus, summary
from odradek_broker.group.streams.topology import TopicInfo
from odradek_broker.handlers import create_topics
from odradek_broker.handlers.authorization import Check
from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_broker.handlers.streams_support import check_enabled, check_topics
from odradek_protocol.acl_codes import AclOperation, AclResource
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 88
VERSIONS = range(0, 1)
CREATE_TIMEOUT_MS = 5_000
CLUSTER_NAME = "kafka-cluster"


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    try:
        check_enabled(ctx)
        check_topics(request.topology)
        response, missing = await ctx.broker.streams_groups.heartbeat(
            request, ctx.client_id or "", f"/{ctx.client_host}"
        )
    except KafkaError as error:
        return refusal(error.code, error.message or None)
    if missing:
        _create(ctx, response, missing)
    return response


def refusal(code: ErrorCode, message: str | None) -> Struct:
    return Struct(
        error_code=code,
        error_message=message,
        member_id="",
        member_epoch=0,
        status=[],
        active_tasks=None,
        standby_tasks=None,
        warmup_tasks=None,
        partitions_by_user_endpoint=None,
    )


def _create(ctx: RequestContext, response: Struct, missing: tuple[TopicInfo, ...]) -> None:
    """Starts the creation; the reasons against it are added to the status."""
    groups, now_ms = ctx.broker.streams_groups, ctx.broker.clock.monotonic_ms()
    status = next(
        s for s in response.status if s.status_code == TopicsStatus.MISSING_INTERNAL_TOPICS
    )
    names = [topic.name for topic in missing]
    refused = _refused(ctx, names)
    if refused:
        status.status_detail += f"; Unauthorized to CREATE on topics {', '.join(refused)}."
        return
    failures = {name: why for name in names if (why := groups.failure_of(name, now_ms))}
    if failures:
        shown = summary([f"{name} ({why})" for name, why in failures.items()])
        status.status_detail += f"; Creation failed: {shown}."
    wanted = [t for t in missing if t.name not in failures and t.name not in groups.creating]
    if wanted:
        retry_ms = 2 * response.heartbeat_interval
        groups.creating.update(topic.name for topic in wanted)
        task = asyncio.ensure_future(_create_topics(ctx, wanted, retry_ms))
        groups.keep(task)


def _refused(ctx: RequestContext, names: Iterable[str]) -> list[str]:
    if ctx.broker.authorizer is None:
        return []
    check = Check(ctx)
    if check.allows(AclOperation.CREATE, AclResource.CLUSTER, CLUSTER_NAME, log_denied=False):
        return []
    return [n for n in names if not check.allows(AclOperation.CREATE, AclResource.TOPIC, n)]


async def _create_topics(ctx: RequestContext, topics: list[TopicInfo], retry_ms: int) -> None:
    groups = ctx.broker.streams_groups
    request = Struct(
        topics=[_as_request(topic) for topic in topics],
        timeout=CREATE_TIMEOUT_MS,
        validate_only=False,
    )
    failures: dict[str, str] = {}
    try:
        answer = await to_controller(
            ctx,
            request,
            ctx.broker.controller.create_topics,
            api_key=create_topics.API_KEY,
            version=create_topics.VERSIONS[-1],
            as_broker=True,
        )
        for one in answer.topics:
            if one.error_code not in (ErrorCode.none, ErrorCode.topic_already_exists):
                failures[one.name] = one.error_message or ErrorCode(one.error_code).name
    except KafkaError as error:
        failures = dict.fromkeys((t.name for t in topics), error.message or error.code.name)
    finally:
        groups.creating.difference_update(topic.name for topic in topics)
    until_ms = ctx.broker.clock.monotonic_ms() + retry_ms
    for name, reason in failures.items():
        groups.failed(name, reason, until_ms)


def _as_request(topic: TopicInfo) -> Struct:
    return Struct(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor or -1,
        assignments=[],
        configs=[Struct(name=name, value=value) for name, value in topic.configs],
    )
