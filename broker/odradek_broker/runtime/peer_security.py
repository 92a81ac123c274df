"""How this broker connects to others: TLS and SASL, before the first request of a connection.

`transport.py` runs it on its new socket. The steps of a login that are slow (PBKDF2 of SCRAM, a
token from an identity provider) run in a thread.
"""

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from odradek_broker.runtime.byte_stream import ByteStream
from odradek_broker.runtime.tls_socket import TlsSocket, client_side, shared_buffer
from odradek_protocol.errors import DecodeError
from odradek_protocol.messages import api
from odradek_protocol.messages.struct import Struct
from odradek_protocol.primitives import skip_tagged_fields
from odradek_protocol.security.errors import SecurityError
from odradek_protocol.security.sasl_client import Login, advance

CONNECT_SECONDS_MAX = 10.0  # TCP is connected: TLS and SASL
ANSWER_BYTES_MAX = 1024 * 1024
SASL_HANDSHAKE = 17
SASL_AUTHENTICATE = 36

_SIZE = struct.Struct(">i")


@dataclass
class PeerSecurity:
    """`tls` is replaced when the files change; connections that exist keep theirs."""

    tls: ssl.SSLContext | None
    login: Login | None = field(repr=False)
    fingerprint: str = ""
    client_id: str = "odradek"  # of the requests of the login
    buffer: memoryview = field(default_factory=shared_buffer, repr=False)  # of its TLS sockets

    async def secure(
        self, sock: socket.socket, host: str, loop: asyncio.AbstractEventLoop
    ) -> tuple[ByteStream, int]:
        """The stream to use and the session's lifetime in ms (0: no end). Raises OSError."""
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            stream: ByteStream = sock
            if self.tls is not None:
                stream = await _tls(client_side(self.tls, sock, host, self.buffer), loop)
            if self.login is None:
                return stream, 0
            try:
                channel = Channel(stream, loop, self.client_id)
                return stream, await _authenticate(self.login, channel)
            except (SecurityError, DecodeError) as error:
                raise ConnectionError(0, f"authentication failed: {error}") from None


async def _tls(secured: TlsSocket, loop: asyncio.AbstractEventLoop) -> TlsSocket:
    try:
        while wants := secured.handshake():
            await _until_ready(secured, loop, write=wants == "write")
    except ssl.SSLError as error:
        secured.close()
        reason = getattr(error, "verify_message", "") or error.reason or str(error)
        raise ConnectionError(0, f"TLS: {reason}") from None
    except BaseException:
        secured.close()
        raise
    return secured


def _until_ready(
    sock: ByteStream, loop: asyncio.AbstractEventLoop, *, write: bool
) -> Awaitable[None]:
    ready: asyncio.Future[None] = loop.create_future()
    fd = sock.fileno()
    add: Callable[..., None] = loop.add_writer if write else loop.add_reader
    remove = loop.remove_writer if write else loop.remove_reader

    def now() -> None:
        if not ready.done():
            ready.set_result(None)

    add(fd, now)
    ready.add_done_callback(lambda _: remove(fd))
    return ready


class Channel:
    """Requests one after the other on a socket that has no reader yet."""

    def __init__(self, sock: ByteStream, loop: asyncio.AbstractEventLoop, client_id: str) -> None:
        self._sock = sock
        self._client_id = client_id
        self._loop = loop

    async def call(self, api_key: int, version: int, request: Struct) -> Struct:
        header = api.request_header(api_key, version, version, self._client_id)
        frame = header + api.encode_request(api_key, version, request)
        await self._send(_SIZE.pack(len(frame)) + frame)
        (size,) = _SIZE.unpack(await self._receive(4))
        if not 4 <= size <= ANSWER_BYTES_MAX:
            raise ConnectionError(0, f"a response of {size} bytes to the login")
        answer = await self._receive(size)
        at = 4
        if len(api.response_header(api_key, version, version)) > at:
            at = skip_tagged_fields(bytearray(answer), at)
        return api.decode_response(api_key, version, answer[at:])

    async def _send(self, data: bytes) -> None:
        while data:
            try:
                data = data[self._sock.send(data) :]
            except BlockingIOError:
                await _until_ready(self._sock, self._loop, write=True)

    async def _receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                part = self._sock.recv(count - len(data))
            except BlockingIOError:
                await _until_ready(self._sock, self._loop, write=False)
                continue
            if not part:
                raise ConnectionError(0, "closed by the other side during authentication")
            data += part
        return data


async def _authenticate(login: Login, channel: Channel) -> int:
    answer = await channel.call(SASL_HANDSHAKE, 1, Struct(mechanism=login.mechanism))
    if answer.error_code != 0:
        raise SecurityError(f"the other broker does not offer {login.mechanism}")
    exchange = login.exchange()
    token: bytes | None = await asyncio.to_thread(next, exchange) if login.slow else next(exchange)
    while token is not None:
        answer = await channel.call(SASL_AUTHENTICATE, 2, Struct(auth_bytes=token))
        if answer.error_code != 0:
            raise SecurityError(answer.error_message or "refused by the other broker")
        if login.slow:
            token = await asyncio.to_thread(advance, exchange, answer.auth_bytes)
        else:
            token = advance(exchange, answer.auth_bytes)
    return int(answer.session_lifetime)
