"""A Peer and a server, which decodes requests and encodes responses with the same adapter."""

import asyncio
import struct
from collections.abc import Awaitable, Callable

import pytest

from odradek_broker.runtime.peer import Peer, PeerUnavailable
from odradek_protocol.messages import api
from odradek_protocol.messages.headers import RequestHeader
from odradek_protocol.messages.struct import Struct

Respond = Callable[[RequestHeader, Struct], bytes]


async def serve_once(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, respond: Respond
) -> None:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    frame = await reader.readexactly(size)
    header = api.parse_request_header(frame)
    request = api.decode_request(header.api_key, header.api_version, frame, header.body_at)
    body = respond(header, request)
    answer = api.response_header(header.api_key, header.api_version, header.correlation_id) + body
    writer.write(struct.pack(">i", len(answer)) + answer)


def run(story: Callable[[Peer], Awaitable[None]], respond: Respond) -> None:
    async def main() -> None:
        tasks: list[asyncio.Task[None]] = []

        async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.append(task)
            try:
                while True:
                    await serve_once(reader, writer, respond)
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()
                await writer.wait_closed()

        server = await asyncio.start_server(on_connect, "127.0.0.1", 0)
        peer = Peer("127.0.0.1", server.sockets[0].getsockname()[1], client_id="broker-1")
        try:
            await asyncio.wait_for(story(peer), 10)
        finally:
            peer.close()
            server.close()
            await asyncio.gather(*tasks)

    asyncio.run(main())


@pytest.mark.parametrize(("api_key", "version"), [(3, 12), (3, 1), (18, 3)])
def test_typed_calls_in_flexible_and_older_versions(api_key: int, version: int) -> None:
    def respond(header: RequestHeader, request: Struct) -> bytes:
        assert header.client_id == "broker-1"
        if header.api_key == 18:
            return api.encode_response(18, header.api_version, Struct(api_keys=[]))
        answer = Struct(brokers=[], topics=[], controller_id=7)
        return api.encode_response(3, header.api_version, answer)

    async def story(peer: Peer) -> None:
        requests = {3: Struct(topics=[]), 18: Struct()}
        for _ in range(3):
            answer = await peer.call(api_key, version, requests[api_key], 5000)
        if api_key == 3:
            assert answer.controller_id == 7
        else:
            assert answer.api_keys == []

    run(story, respond)


def test_raw_answers_are_not_copied_and_may_be_written_to() -> None:
    def respond(header: RequestHeader, request: Struct) -> bytes:
        return b"records"

    async def story(peer: Peer) -> None:
        answer = await peer.call_raw(3, 12, (b"\x01\x00\x00\x00",), 5000)
        assert bytes(answer) == b"records"
        assert not answer.readonly

    run(story, respond)


def test_an_undecodable_answer_is_peer_unavailable() -> None:
    async def story(peer: Peer) -> None:
        with pytest.raises(PeerUnavailable, match="invalid response"):
            await peer.call(3, 12, Struct(topics=[]), 5000)

    run(story, lambda header, request: b"\xff\xff")
