"""A client for another broker: typed requests and responses over one connection.

    peer = Peer("10.0.0.7", 9092, loop, client_id="broker-1")
    answer = await peer.call(52, 2, Struct(cluster_id=…, topics=[…]), timeout_ms=1000)   # Vote

Used by `raft`, `controller` and `replication`. One Peer is one connection, opened by the first
request and again after a failure. Responses come in the order of the requests, so a fetch that
waits delays the requests after it: use one Peer per kind of work.

Raises PeerUnavailable if no valid response came; the request may have been carried out.
"""

import asyncio
from collections.abc import Sequence

from odradek_broker.runtime.peer_security import PeerSecurity
from odradek_broker.runtime.transport import FrameConnection, PeerRefused, PeerUnavailable
from odradek_protocol.errors import DecodeError
from odradek_protocol.messages import api
from odradek_protocol.messages.struct import Struct
from odradek_protocol.primitives import skip_tagged_fields

__all__ = ["Peer", "PeerRefused", "PeerUnavailable"]

_CORRELATION_ID_MAX = 2**31 - 1


class Peer:
    def __init__(
        self,
        host: str,
        port: int,
        loop: asyncio.AbstractEventLoop | None = None,
        *,
        client_id: str = "odradek",
        security: PeerSecurity | None = None,
    ) -> None:
        loop = loop or asyncio.get_running_loop()
        self._connection = FrameConnection(host, port, loop, security)
        self._client_id = client_id
        self._correlation_id = 0

    def __repr__(self) -> str:
        return f"Peer({self.host}:{self.port})"

    @property
    def host(self) -> str:
        return self._connection.host

    @property
    def port(self) -> int:
        return self._connection.port

    @property
    def connected(self) -> bool:
        return self._connection.connected

    async def call(self, api_key: int, version: int, request: Struct, timeout_ms: float) -> Struct:
        """Encodes, sends, waits, decodes."""
        body = api.encode_request(api_key, version, request)
        answer = await self.call_raw(api_key, version, (body,), timeout_ms)
        try:
            return api.decode_response(api_key, version, answer)
        except DecodeError as error:
            raise PeerUnavailable(f"{self}: invalid response: {error}") from error

    async def call_raw(
        self, api_key: int, version: int, body: Sequence[bytes], timeout_ms: float
    ) -> memoryview:
        """Sends the request's body in parts; the response's body, writable and not copied."""
        self._correlation_id = self._correlation_id % _CORRELATION_ID_MAX + 1
        correlation_id = self._correlation_id
        header = api.request_header(api_key, version, correlation_id, self._client_id)
        frame = await self._connection.call_frame(correlation_id, (header, *body), timeout_ms)
        at = 4
        if len(api.response_header(api_key, version, correlation_id)) > at:
            try:
                at = skip_tagged_fields(frame, at)
            except (DecodeError, IndexError) as error:
                raise PeerUnavailable(f"{self}: invalid response: {error}") from error
        return memoryview(frame)[at:]

    def close(self) -> None:
        self._connection.close()
