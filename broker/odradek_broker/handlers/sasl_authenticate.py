"""SaslAuthenticate (36), v0–2: one message of the client's login, and the answer to it.

A login that fails is answered after `connection.failed.authentication.delay.ms`, and the connection
is closed; the message does not say whether the user exists. `session_lifetime` (ms) says when the
client has to authenticate again (KIP-368).
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from odradek_broker.handlers.context import RequestContext
from odradek_broker.security.authentication import Answer, Authentication, State
from odradek_broker.security.sasl.mechanism import SaslError
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

# Logins that wait for an identity provider. Not the threads of the event loop: clients without a
# login must not hold up the metadata log, whose writes wait there.
SLOW_LOGINS_MAX = 4
_SLOW_LOGINS = ThreadPoolExecutor(SLOW_LOGINS_MAX, "login")

API_KEY = 36
VERSIONS = range(0, 3)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    authentication = ctx.authentication
    if authentication is None or authentication.state is State.COMPLETE:
        return Struct(
            error_code=ErrorCode.illegal_sasl_state,
            error_message="SaslAuthenticate request received after successful authentication",
            auth_bytes=b"",
        )
    try:
        answer = await authenticate(ctx, authentication, request.auth_bytes)
    except SaslError as error:
        await close_later(ctx, authentication, str(error))
        return Struct(
            error_code=ErrorCode.sasl_authentication_failed,
            error_message=str(error),
            auth_bytes=b"",
        )
    return Struct(
        error_code=ErrorCode.none,
        error_message=None,
        auth_bytes=answer.token,
        session_lifetime=answer.session_lifetime_ms,
    )


async def authenticate(ctx: RequestContext, authentication: Authentication, token: bytes) -> Answer:
    clock = ctx.broker.clock
    try:
        if authentication.slow:
            step = partial(authentication.step, token, clock.now_ms())
            outcome = await asyncio.get_running_loop().run_in_executor(_SLOW_LOGINS, step)
        else:
            outcome = authentication.step(token, clock.now_ms())
        return authentication.finish(outcome, clock.now_ms(), clock.monotonic_ms())
    except Exception:
        authentication.fail()  # also after an error of ours: this connection cannot try again
        raise


async def close_later(ctx: RequestContext, authentication: Authentication, reason: str) -> None:
    """Waits for the delay of failed logins; the connection is closed after the answer."""
    authentication.fail()
    await asyncio.sleep(authentication.rules.failed_delay_ms / 1000)
    ctx.close_after_answer(f"authentication failed: {reason}")
