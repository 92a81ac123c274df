"""Envelope (58), v0: another broker forwards the request of a client to the active controller.

The request is answered as if the client had sent it to this broker, by the same handler. Only APIs
that the controller decides are accepted. NOT_CONTROLLER makes the sender look for the active
controller. The sending broker needs CLUSTER_ACTION; then the request inside is authorised as the
client whose principal the envelope carries. Without one, the broker itself asks.
"""

import ipaddress
from collections.abc import Awaitable
from typing import cast

from odradek_broker.handlers.context import Chunks, RequestContext
from odradek_broker.handlers.forwarding import ControllerMovedError
from odradek_broker.handlers.handler import Handler
from odradek_broker.handlers.quorum_calls import check_sender
from odradek_broker.model.hosts import canonical_host
from odradek_broker.model.principal import Principal
from odradek_broker.security.principal_data import decode_principal
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.errors import DecodeError
from odradek_protocol.messages import api
from odradek_protocol.messages.struct import Struct

API_KEY = 58
VERSIONS = range(0, 1)


class Forwarded(RequestContext):
    """The context of the client's request, for its handler."""

    __slots__ = ("_principal",)

    def __init__(self, of: RequestContext, principal: Principal, host: str, data: bytes) -> None:
        header = api.parse_request_header(data)
        super().__init__(
            of.broker,
            header.api_key,
            header.api_version,
            header.correlation_id,
            header.client_id,
            of.listener,
            host,
        )
        self._principal = principal

    @property
    def principal(self) -> Principal:
        return self._principal

    @property
    def is_forwarded(self) -> bool:
        return True

    def respond(self, chunks: Chunks, size: int) -> None:
        raise AssertionError(
            f"a forwarded request answered with {len(chunks)} chunks ({size} bytes)"
        )

    def disconnect(self, reason: str) -> None:
        raise AssertionError(reason)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    check_sender(ctx, None)
    if not ctx.broker.controller.is_active:
        return Struct(error_code=ErrorCode.not_controller)
    try:
        inner = _open(ctx, request)
        handler = ctx.broker.apis.forwardable(inner.api_key, inner.api_version)
        if handler is None:
            return Struct(error_code=ErrorCode.invalid_request)
        header = api.parse_request_header(request.request_data)
        asked = api.decode_request(
            inner.api_key, inner.api_version, request.request_data, header.body_at
        )
    except DecodeError:
        return Struct(error_code=ErrorCode.invalid_request)
    except KafkaError as error:
        return Struct(error_code=error.code)
    try:
        answer = await _answer(handler, inner, asked)
    except ControllerMovedError:
        return Struct(error_code=ErrorCode.not_controller)
    except KafkaError as error:
        answer = Struct(error_code=error.code, error_message=error.message)
    data = api.response_header(inner.api_key, inner.api_version, inner.correlation_id)
    data += api.encode_response(inner.api_key, inner.api_version, answer)
    return Struct(error_code=ErrorCode.none, response_data=data)


async def _answer(handler: Handler, ctx: Forwarded, request: Struct) -> Struct:
    assert handler.handle is not None, "the hot path is not forwarded"
    outcome = handler.handle(ctx, request)
    if isinstance(outcome, Struct):
        return outcome
    # mypy keeps Struct in the union: any attribute of a SimpleNamespace could be __await__.
    return await cast(Awaitable[Struct], outcome)


def _open(ctx: RequestContext, request: Struct) -> Forwarded:
    try:
        host = canonical_host(str(ipaddress.ip_address(bytes(request.client_host_address))))
    except ValueError:
        raise KafkaError(ErrorCode.invalid_request) from None
    principal = ctx.principal
    if request.request_principal is not None:
        try:
            principal = decode_principal(bytes(request.request_principal))
        except DecodeError:
            raise KafkaError(ErrorCode.principal_deserialization_failure) from None
    return Forwarded(ctx, principal, host, request.request_data)
