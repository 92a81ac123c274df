"""One question to one broker over a socket of its own: what clients hide behind their retries.

    ask("127.0.0.1:9092", METADATA, 12, Struct(topics=None)).brokers

The codec is the broker's own (wire/), which is held equal to kio's by tests of its own.
"""

from __future__ import annotations

import socket
import struct

from odradek_broker.wire.api import decode_response, encode_request
from odradek_broker.wire.headers import request_header, response_header
from odradek_broker.wire.struct import Struct

METADATA, DESCRIBE_QUORUM = 3, 55
TIMEOUT_S = 2.0


def ask(
    address: str, api_key: int, version: int, request: Struct, timeout_s: float = TIMEOUT_S
) -> Struct:
    """The answer; OSError when there is none in time."""
    host, _, port = address.rpartition(":")
    frame = request_header(api_key, version, 1, "cluster-tests")
    frame += encode_request(api_key, version, request)
    with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        answer = _exactly(connection, size)
    return decode_response(api_key, version, answer, len(response_header(api_key, version, 1)))


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("the broker closed the connection")
        data += part
    return bytes(data)
