"""A connection that sends whatever a test wants, with or without TLS; for attacks on a broker."""

from __future__ import annotations

import socket
import ssl
import struct
from pathlib import Path
from types import TracebackType
from typing import Self

from odradek_protocol.messages.api import decode_response, encode_request
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.headers import request_header, response_header
from odradek_protocol.messages.struct import Struct

TIMEOUT_S = 20.0


class StrangerConnection:
    """Answers are None if the broker closed the connection instead."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._id = 0

    @classmethod
    def plain(cls, port: int) -> StrangerConnection:
        return cls(socket.create_connection(("127.0.0.1", port), TIMEOUT_S))

    @classmethod
    def tls(cls, port: int, trusted: Path) -> StrangerConnection:
        context = ssl.create_default_context(cafile=str(trusted))
        connected = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        return cls(context.wrap_socket(connected, server_hostname="localhost"))

    def call(self, api: ApiKey, version: int, request: Struct) -> Struct | None:
        self._id += 1
        frame = request_header(api, version, self._id, "raw") + encode_request(
            api, version, request
        )
        answer = self.frame(frame)
        if answer is None:
            return None
        return decode_response(api, version, answer[len(response_header(api, version, 1)) :])

    def frame(self, frame: bytes) -> bytes | None:
        return self.send(struct.pack(">i", len(frame)) + frame)

    def send(self, data: bytes) -> bytes | None:
        """Sends bytes as they are; the frame that comes back."""
        try:
            self._socket.sendall(data)
            head = self._receive(4)
            return self._receive(struct.unpack(">i", head)[0]) if head else None
        except ConnectionError:
            return None

    def _receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            if not part:
                return b""
            data += part
        return data

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
