"""Faults of requests: a request is held back, delayed or failed before its handler sees it.

A rule says which requests it is for (API, client) and what happens to them; the newest rule that
matches decides. A client id like `broker-1-…` means that a broker sent the request. Requests that
are held back are handled when the rule is withdrawn: late, as after a network that lost packets.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

from odradek_broker.handlers.api_table import ApiTable
from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.handler import Handle, Handler, Serve
from odradek_broker.testing import answers
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages import api
from odradek_protocol.messages.struct import Struct

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class FaultRule:
    """A fault of some requests; at least one of `error`, `delay_ms` and `hold` is set."""

    api_keys: frozenset[int] | None = None  # None: all
    brokers: bool = False  # requests of brokers …
    clients: bool = True  # … and of all others
    of_brokers: frozenset[int] | None = None  # only requests of these brokers
    error: ErrorCode | None = None
    delay_ms: int = 0
    hold: bool = False
    times: int | None = None  # None: until it is withdrawn
    withdrawn: asyncio.Event = field(default_factory=asyncio.Event)

    def matches(self, api_key: int, client_id: str) -> bool:
        if self.api_keys is not None and api_key not in self.api_keys:
            return False
        if not client_id.startswith("broker-"):
            return self.clients
        if self.of_brokers is not None:
            return client_id.split("-")[1] in map(str, self.of_brokers)
        return self.brokers

    async def wait(self) -> None:
        if self.hold:
            await self.withdrawn.wait()
        elif self.delay_ms:
            await asyncio.sleep(self.delay_ms / 1000)


class Faults:
    def __init__(self) -> None:
        self.rules: list[FaultRule] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, rule: FaultRule) -> None:
        unable = [key for key in rule.api_keys or () if rule.error and not answers.can_fail(key)]
        if unable or (rule.error and rule.api_keys is None):
            raise ValueError("the responses of this API have no error code that could be set")
        self.rules.append(rule)

    def heal(self) -> None:
        """Withdraws all rules; requests that were held back are handled now."""
        rules, self.rules = self.rules, []
        for rule in rules:
            rule.withdrawn.set()

    def wrap(self, apis: ApiTable) -> None:
        """Puts the rules in front of every handler."""
        for handler in apis.handlers.values():
            if handler.serve is not None:
                handler.serve = self._wrapped_serve(handler, handler.serve)
            else:
                assert handler.handle is not None
                handler.handle = self._wrapped_handle(handler, handler.handle)

    def _take(self, ctx: RequestContext) -> FaultRule | None:
        if ctx.is_forwarded:  # the rules of the broker that forwarded it applied already
            return None
        for rule in reversed(self.rules):
            if rule.matches(ctx.api_key, ctx.client_id or ""):
                if rule.times is not None:
                    rule.times -= 1
                    if rule.times <= 0:
                        self.rules.remove(rule)
                return rule
        return None

    # -- handlers that return their response -------------------------------------------------------

    def _wrapped_handle(self, handler: Handler, inner: Handle) -> Handle:
        def handle(ctx: RequestContext, request: Any) -> Struct | Awaitable[Struct]:
            rule = self._take(ctx)
            return inner(ctx, request) if rule is None else late(rule, ctx, request)

        async def late(rule: FaultRule, ctx: RequestContext, request: Any) -> Struct:
            await rule.wait()
            if rule.error is None:
                return await _outcome(inner(ctx, request))
            if handler.api_key in answers.MIRRORS:
                return answers.mirrored(handler.api_key, request, rule.error.value)
            if handler.api_key in answers.READS:
                answer = await _outcome(inner(ctx, request))
                return answers.overwrite(answer, rule.error.value)
            raise KafkaError(rule.error, "a fault that a test asked for")

        return handle

    # -- handlers that respond themselves: Produce and Fetch ---------------------------------------

    def _wrapped_serve(self, handler: Handler, inner: Serve) -> Serve:
        def serve(ctx: RequestContext, frame: bytes, body_at: int) -> None:
            rule = self._take(ctx)
            if rule is None:
                inner(ctx, frame, body_at)
            elif rule.error is None:
                self._later(ctx, rule, lambda: inner(ctx, frame, body_at))
            else:
                code = rule.error.value
                self._later(ctx, rule, lambda: _respond(handler.api_key, ctx, frame, body_at, code))

        return serve

    def _later(self, ctx: RequestContext, rule: FaultRule, act: Callable[[], None]) -> None:
        """After the rule's pause; later requests of the connection wait, so they stay in order."""
        connection = getattr(ctx, "connection", None)

        async def run() -> None:
            await rule.wait()
            try:
                act()
            except Exception:
                logger.exception("a delayed request failed")
                ctx.disconnect("a delayed request failed")
            if connection is not None:
                connection.unmute()

        if connection is not None:
            connection.mute()
        task = asyncio.ensure_future(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _outcome(returned: Struct | Awaitable[Struct]) -> Struct:
    return returned if isinstance(returned, Struct) else await cast("Awaitable[Struct]", returned)


def _respond(api_key: int, ctx: RequestContext, frame: bytes, body_at: int, code: int) -> None:
    request = api.decode_request(api_key, ctx.api_version, frame, body_at)
    if vars(request).get("acks") == 0:
        ctx.disconnect("a fault that a test asked for")
        ctx.respond([], 0)
        return
    answer = answers.mirrored(api_key, request, code)
    header = api.response_header(api_key, ctx.api_version, ctx.correlation_id)
    response = header + api.encode_response(api_key, ctx.api_version, answer)
    ctx.respond([response], len(response))
