"""Finds the handler of a request, calls it, sends its response, and handles failures:

an unknown API, an API that this listener does  the connection is closed (as Kafka does); an
not serve, an unsupported version               unsupported version of ApiVersions is answered
                                                with UNSUPPORTED_VERSION in a v0 response
bytes that do not decode                        the connection is closed
the handler raises KafkaError                   answered with its error code
the handler raises anything else                a bug of ours: logged with its traceback, answered
                                                with UNKNOWN_SERVER_ERROR
"""

import asyncio
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from odradek_broker.handlers import (
    add_partitions_to_txn,
    api_versions,
    sasl_authenticate,
    sasl_handshake,
    write_txn_markers,
)
from odradek_broker.handlers.broker_context import BrokerContext
from odradek_broker.handlers.handler import Handler
from odradek_broker.handlers.throttling import throttle_request
from odradek_broker.network.exchange import Exchange
from odradek_broker.network.slow_handlers import SLOW_NS, SlowHandlers, Watched
from odradek_broker.runtime import clock
from odradek_broker.security.sasl.mechanism import SaslError
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.errors import DecodeError
from odradek_protocol.messages import api
from odradek_protocol.messages.headers import RequestHeader, parse_request_header
from odradek_protocol.messages.struct import Struct

if TYPE_CHECKING:
    from odradek_broker.network.connection import Connection

logger = logging.getLogger(__name__)

RAW_TOKEN: Final = -1  # stands for the version of a token without headers


class Dispatcher:
    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._handlers: dict[int, Handler] = broker.apis.handlers
        self.served = broker.apis.served_on(broker.settings.listeners)  # listener → handlers
        self._tasks: set[asyncio.Task[None]] = set()
        self.slow = SlowHandlers()

    def open(self, connection: "Connection", frame: bytes) -> Exchange | None:
        """The exchange of the request in this frame; None if the connection was closed instead."""
        received_ns = clock.now_ns()
        if connection.authentication is not None and connection.authentication.raw_tokens:
            return self._open_raw(connection, frame, received_ns)
        try:
            header = parse_request_header(frame)
        except DecodeError as error:
            connection.close(f"malformed request: header: {error}")
            return None
        authentication = connection.authentication
        if authentication is not None:
            refusal = authentication.refuses(header.api_key, self._broker.clock.monotonic_ms)
            if refusal is not None:
                connection.close(refusal)
                return None
        handler = connection.handlers.get(header.api_key)
        if handler is None:
            connection.close(f"unknown api key: {header.api_key}")
            return None
        version = header.api_version
        if not handler.offers(version) and handler.api_key != api_versions.API_KEY:
            connection.close(
                f"unsupported version: {handler.name} version {version}; supported are "
                f"{handler.versions.start}–{handler.versions.stop - 1}"
            )
            return None
        if not self._broker.serves_clients and not handler.access.early:
            connection.close("the broker is starting")
            return None
        return Exchange(self._broker, header, connection, handler, len(frame), received_ns)

    def _open_raw(self, connection: "Connection", frame: bytes, received_ns: int) -> Exchange:
        """After SaslHandshake v0 a frame is a token without headers."""
        handler = self._handlers[sasl_authenticate.API_KEY]
        header = RequestHeader(handler.api_key, RAW_TOKEN, 0, None, 0)
        return Exchange(self._broker, header, connection, handler, len(frame), received_ns)

    async def _raw_token(self, exchange: Exchange, token: bytes) -> None:
        authentication = exchange.connection.authentication
        assert authentication is not None
        try:
            answer = await sasl_authenticate.authenticate(exchange, authentication, token)
            exchange.respond([answer.token], len(answer.token))
        except SaslError as error:
            await sasl_authenticate.close_later(exchange, authentication, str(error))
            exchange.respond([], 0)
        except Exception:
            logger.exception(
                "a login from %s failed; this is a bug in Odradek", exchange.client_host
            )
            _close(exchange, "failed login")
        exchange.connection.unmute()

    def start(self, exchange: Exchange, frame: bytes) -> None:
        handler = exchange.handler
        # Both: a client may send any version of ApiVersions, this one too.
        if exchange.api_version == RAW_TOKEN and exchange.api_key == sasl_authenticate.API_KEY:
            exchange.connection.mute()
            self._keep(asyncio.ensure_future(self._raw_token(exchange, frame)))
            return
        handler.metrics.count(exchange.api_version)
        try:
            if handler.serve is not None:
                handler.serve(exchange, frame, exchange.body_at)
            elif not handler.offers(exchange.api_version):
                self._answer(exchange, api_versions.unsupported(exchange), version=0)
            else:
                assert handler.handle is not None
                request = api.decode_request(
                    exchange.api_key, exchange.api_version, frame, exchange.body_at
                )
                outcome = handler.handle(exchange, request)
                if isinstance(outcome, Struct):
                    self._answer(exchange, outcome)
                else:
                    self._await(exchange, outcome)
        except DecodeError as error:
            _close(exchange, f"malformed request: {handler.name} v{exchange.api_version}: {error}")
        except Exception as error:
            self._failed(exchange, error)
        exchange.local_ns = clock.now_ns()
        if exchange.local_ns - exchange.received_ns > SLOW_NS:
            self.slow.blocked(exchange, handler.name, exchange.local_ns - exchange.received_ns)

    def _await(self, exchange: Exchange, outcome: Awaitable[Struct]) -> None:
        exchange.connection.mute()
        watched = Watched(outcome, self.slow, exchange, exchange.handler.name)
        self._keep(asyncio.ensure_future(self._finish(exchange, watched)))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, exchange: Exchange, outcome: Awaitable[Struct]) -> None:
        try:
            answer = await outcome
            # Not before: a client that may not send such a request must not get ahead of others.
            if exchange.handler.access.urgent and not getattr(answer, "error_code", 0):
                exchange.is_of_broker()
            self._answer(exchange, answer)
        except Exception as error:
            self._failed(exchange, error)
        exchange.connection.unmute()

    def _answer(self, exchange: Exchange, answer: Struct, version: int | None = None) -> None:
        if version is None:
            version = exchange.api_version
        if self._broker.quotas.limited and not self._exempt(exchange, answer):
            throttle_ms = throttle_request(exchange, getattr(answer, "throttle_time", 0))
            if "throttle_time" in api.response_fields(exchange.api_key, version):
                answer.throttle_time = throttle_ms
        header = api.response_header(exchange.api_key, version, exchange.correlation_id)
        response = header + api.encode_response(exchange.api_key, version, answer)
        exchange.respond([response], len(response))

    def _exempt(self, exchange: Exchange, answer: Struct) -> bool:
        """Requests between brokers are never throttled by client quotas, nor are logins: their
        responses have no throttle time. Those of a client that may not send them are."""
        if getattr(answer, "error_code", 0) == ErrorCode.cluster_authorization_failed:
            return False
        return (
            exchange.handler.internal
            or exchange.api_key in (sasl_handshake.API_KEY, sasl_authenticate.API_KEY)
            or exchange.api_key == write_txn_markers.API_KEY
            or (
                exchange.api_key == add_partitions_to_txn.API_KEY
                and exchange.api_version >= add_partitions_to_txn.BATCHED_SINCE
            )
        )

    def _failed(self, exchange: Exchange, error: Exception) -> None:
        handler = exchange.handler
        code = error.code if isinstance(error, KafkaError) else ErrorCode.unknown_server_error
        if not isinstance(error, KafkaError):
            logger.error(
                "%s v%d from %s failed; this is a bug in Odradek",
                handler.name,
                exchange.api_version,
                exchange.client_host,
                exc_info=error,
            )
        fields = api.response_fields(exchange.api_key, exchange.api_version)
        if "error_code" not in fields:
            _close(exchange, f"failed request: {handler.name}: {code.name}")
            return
        answer = Struct(error_code=code)
        if "error_message" in fields:
            answer.error_message = error.message if isinstance(error, KafkaError) else None
        self._answer(exchange, answer)


def _close(exchange: Exchange, reason: str) -> None:
    """Closes the connection; the empty response is not sent, it releases the request's memory."""
    exchange.connection.close(reason)
    exchange.respond([], 0)
