"""CreateTopics (19), v2–7: decided by the controller; answered when the new topics are usable.

From version 5 on the response has the effective configuration.
"""

import asyncio
from collections.abc import Sequence

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_broker.handlers.messages import refused
from odradek_broker.handlers.mutations import limited
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 19
VERSIONS = range(2, 8)
# Clients know THROTTLING_QUOTA_EXCEEDED from this version on.
STRICT_FROM = 6

KNOWN_TIMEOUT_MS = 1000
# Thousands of partitions may take longer to open; until they are, clients get retriable errors.
OPEN_TIMEOUT_SECONDS = 5.0
OPEN_CHECK_SECONDS = 0.01


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    try:
        answer = await to_controller(
            ctx, request, limited(ctx, ctx.broker.controller.create_topics, STRICT_FROM)
        )
        created = [t.name for t in answer.topics if t.error_code is ErrorCode.none]
        if not request.validate_only:
            await until_known(ctx, created)
        return answer
    except KafkaError as error:
        return Struct(topics=[refused(error, name=topic.name) for topic in request.topics])


async def until_known(ctx: RequestContext, names: Sequence[str]) -> None:
    """Waits shortly until this broker knows the topics: the client may ask it about them next."""
    known = ctx.broker.metadata
    await known.wait_until(lambda image: all(n in image.topics for n in names), KNOWN_TIMEOUT_MS)
    partitions = ctx.broker.partitions
    tries = int(OPEN_TIMEOUT_SECONDS / OPEN_CHECK_SECONDS)
    waiting = [name for name in names if partitions.is_opening(name)]
    while tries and waiting:
        await asyncio.sleep(OPEN_CHECK_SECONDS)
        tries -= 1
        waiting = [name for name in waiting if partitions.is_opening(name)]
