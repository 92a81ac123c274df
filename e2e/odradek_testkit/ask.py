"""Single requests to a chosen broker, without the retries of a client.

    questions = Questions()
    questions.ask("127.0.0.1:9092", METADATA, 12, Struct(topics=None)).brokers

Requests are encoded by odradek_protocol, whose tests hold it equal to kio. One connection per
broker is kept, because tests that wait poll fifty times a second.
"""

from __future__ import annotations

import socket
import struct

from odradek_protocol.messages.api import decode_response, encode_request
from odradek_protocol.messages.headers import request_header, response_header
from odradek_protocol.messages.struct import Struct

METADATA, ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS, DESCRIBE_QUORUM = 3, 34, 35, 55
TIMEOUT_S = 2.0


class Questions:
    """Connections by address; one request at a time."""

    def __init__(self) -> None:
        self._connections: dict[str, socket.socket] = {}

    def ask(self, address: str, api_key: int, version: int, request: Struct) -> Struct:
        """The answer; OSError when the broker does not answer within TIMEOUT_S."""
        frame = request_header(api_key, version, 1, "cluster-tests")
        frame += encode_request(api_key, version, request)
        try:
            connection = self._connection(address)
            connection.sendall(struct.pack(">i", len(frame)) + frame)
            (size,) = struct.unpack(">i", _exactly(connection, 4))
            answer = _exactly(connection, size)
        except OSError:
            self.forget(address)
            raise
        return decode_response(api_key, version, answer, len(response_header(api_key, version, 1)))

    def _connection(self, address: str) -> socket.socket:
        if address not in self._connections:
            host, _, port = address.rpartition(":")
            self._connections[address] = socket.create_connection((host, int(port)), TIMEOUT_S)
        return self._connections[address]

    def forget(self, address: str) -> None:
        if connection := self._connections.pop(address, None):
            connection.close()

    def close(self) -> None:
        for address in tuple(self._connections):
            self.forget(address)


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("the broker closed the connection")
        data += part
    return bytes(data)
