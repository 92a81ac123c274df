"""JoinGroup (11), v0–9: joins a group, or a rebalance of it; answered when all members have joined.

From v4 on a new dynamic member first gets its id with MEMBER_ID_REQUIRED (KIP-394). Static members
(v5+) keep their assignment across restarts (KIP-345). In a new group the first rebalance waits
`group.initial.rebalance.delay.ms` for more members.
"""

from odradek_broker.group.classic_group import join_error
from odradek_broker.group.classic_join import Join
from odradek_broker.group.classic_member import Protocol
from odradek_broker.handlers.context import RequestContext
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 11
VERSIONS = range(0, 10)

NULLABLE_PROTOCOL_SINCE = 7


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    rebalance_timeout_ms = request.rebalance_timeout
    if ctx.api_version == 0:
        rebalance_timeout_ms = request.session_timeout
    try:
        answer = await ctx.broker.groups.join(
            Join(
                group_id=request.group_id,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
                client_id=ctx.client_id or "",
                client_host=f"/{ctx.client_host}",
                session_timeout_ms=request.session_timeout,
                rebalance_timeout_ms=max(rebalance_timeout_ms, 0),
                protocol_type=request.protocol_type,
                protocols=tuple(Protocol(one.name, one.metadata) for one in request.protocols),
                version=ctx.api_version,
            )
        )
    except KafkaError as error:
        answer = join_error(request.member_id, error.code)
    if answer.protocol_name is None and ctx.api_version < NULLABLE_PROTOCOL_SINCE:
        answer = Struct(**{**answer.__dict__, "protocol_name": ""})
    return answer
