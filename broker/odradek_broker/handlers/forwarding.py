"""Requests that only the active controller can decide, accepted by every broker.

A handler of such an API calls

    return await to_controller(ctx, request, ctx.broker.controller.create_topics)

On the active controller that is a plain call. Other brokers send the request to it in an Envelope
(58) over the inter-broker listener and return its response; while another controller is elected,
they retry. A client never sees NOT_CONTROLLER.
"""

import ipaddress
from collections.abc import Awaitable, Callable

from odradek_broker.handlers.context import RequestContext
from odradek_broker.runtime.peer import PeerUnavailable
from odradek_broker.security.principal_data import encode_principal
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.errors import DecodeError
from odradek_protocol.messages import api
from odradek_protocol.messages.struct import Struct

ENVELOPE = 58
# Shorter than the 30 s that clients wait by default, so that they get the reason of the failure.
TIMEOUT_MS = 25_000.0

Decide = Callable[[Struct], Awaitable[Struct]]


class ControllerMovedError(Exception):
    """This node lost the controllership while it handled a forwarded request.

    Not a KafkaError, so that no handler turns it into a response for the client.
    """


async def to_controller(
    ctx: RequestContext,
    request: Struct,
    decide: Decide,
    *,
    api_key: int | None = None,
    version: int | None = None,
    as_broker: bool = False,
) -> Struct:
    """The controller's response to `request`, of the API and version of `ctx` unless given. It is
    authorised as the client, or as this broker itself.

    Raises KafkaError if the controller refused it as a whole, or could not be reached.
    """
    if ctx.is_forwarded:
        return await _decide_here(request, decide)
    api_key = ctx.api_key if api_key is None else api_key
    version = ctx.api_version if version is None else version
    answered_here: list[Struct] = []

    async def here() -> Struct:
        answered_here.append(await decide(request))
        return Struct(error_code=ErrorCode.none)

    envelope = Struct(
        request_data=api.request_header(api_key, version, 0, ctx.client_id)
        + api.encode_request(api_key, version, request),
        request_principal=None if as_broker else encode_principal(ctx.principal),
        client_host_address=_packed(ctx.client_host),
    )
    try:
        answer = await ctx.broker.forwarder.run(here, (ENVELOPE, 0, envelope), TIMEOUT_MS)
    except PeerUnavailable as error:
        raise KafkaError(ErrorCode.request_timed_out, str(error)) from error
    code = ErrorCode(answer.error_code)
    if code is not ErrorCode.none:
        raise KafkaError(code, getattr(answer, "error_message", None) or "")
    if answered_here:
        return answered_here[-1]
    at = len(api.response_header(api_key, version, 0))
    try:
        return api.decode_response(api_key, version, answer.response_data, at)
    except DecodeError as error:
        raise KafkaError(ErrorCode.unknown_server_error, str(error)) from error


async def _decide_here(request: Struct, decide: Decide) -> Struct:
    try:
        return await decide(request)
    except KafkaError as error:
        if error.code is ErrorCode.not_controller:
            raise ControllerMovedError from error
        raise


def _packed(host: str) -> bytes:
    return ipaddress.ip_address(host).packed
