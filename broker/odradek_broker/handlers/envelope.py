"""Envelope (58), v0: another broker hands over the request of a client; this is the controller.

The request is answered as if the client had sent it here, by the same handler. Only APIs that
are decided by the controller are accepted. NOT_CONTROLLER makes the sender look for the one
that is. The principal of the client comes with it and will count once there are principals.
"""

import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from odradek_broker.handlers.context import Chunks, RequestContext
from odradek_broker.handlers.forwarding import ControllerMovedError
from odradek_broker.handlers.quorum_calls import check_sender
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.errors import DecodeError
from odradek_protocol.messages import api
from odradek_protocol.messages.struct import Struct

API_KEY = 58
VERSIONS = range(0, 1)

Handle = Callable[[RequestContext, Any], Awaitable[Struct]]

_forwarded: dict[int, tuple[range, Handle]] = {}


def accept(handlers: Mapping[int, tuple[range, Handle]]) -> None:
    """Called once by the registry: the APIs that may come in an envelope."""
    _forwarded.clear()
    _forwarded.update(handlers)


class Forwarded(RequestContext):
    """The client's request, as far as its handler wants to know."""

    __slots__ = ()

    @property
    def is_forwarded(self) -> bool:
        return True

    def respond(self, chunks: Chunks, size: int) -> None:
        raise AssertionError(f"{len(chunks)} chunks ({size} bytes) past the envelope")

    def disconnect(self, reason: str) -> None:
        raise AssertionError(reason)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    check_sender(ctx, None)
    if not ctx.broker.controller.is_active:
        return Struct(error_code=ErrorCode.not_controller)
    try:
        inner = _open(ctx, request)
        versions, handler = _forwarded.get(inner.api_key, (range(0), None))
        if handler is None or inner.api_version not in versions:
            return Struct(error_code=ErrorCode.invalid_request)
        header = api.parse_request_header(request.request_data)
        asked = api.decode_request(
            inner.api_key, inner.api_version, request.request_data, header.body_at
        )
    except (DecodeError, ValueError):
        return Struct(error_code=ErrorCode.invalid_request)
    try:
        answer = await handler(inner, asked)
    except ControllerMovedError:
        return Struct(error_code=ErrorCode.not_controller)
    except KafkaError as error:
        answer = Struct(error_code=error.code, error_message=error.message)
    data = api.response_header(inner.api_key, inner.api_version, inner.correlation_id)
    data += api.encode_response(inner.api_key, inner.api_version, answer)
    return Struct(error_code=ErrorCode.none, response_data=data)


def _open(ctx: RequestContext, request: Struct) -> Forwarded:
    header = api.parse_request_header(request.request_data)
    host = str(ipaddress.ip_address(bytes(request.client_host_address)))
    return Forwarded(
        ctx.broker,
        header.api_key,
        header.api_version,
        header.correlation_id,
        header.client_id,
        ctx.listener,
        host,
    )
