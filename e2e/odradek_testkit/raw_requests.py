"""A connection that sends arbitrary bytes: for bad input, and for what clients hide (long polls).

Requests are written by hand in old, non-flexible versions, so that these tests depend on no codec
and on no client; only the login, if the server asks for one, is that of our client. A frame is
int32 size, then the header v1 (api key, version, correlation id, nullable client id), then the
body.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import crc32c

from odradek_protocol.client.security import SecuritySettings
from odradek_protocol.messages.api import decode_response, encode_request
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct
from odradek_testkit.connecting import properties_of
from odradek_testkit.engines import Server

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
TIMEOUT_S = 20.0
CLOSED = (ConnectionError, ssl.SSLError)  # TLS: an alert may come before the end
LOGIN_VERSION = 1  # of SaslHandshake and SaslAuthenticate


class RawConnection:
    """One socket to a broker, with Kafka's framing and nothing else."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def send(self, frame: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self) -> bytes:
        """The next response without its size; ConnectionError when the broker hung up."""
        size = self._exactly(4)
        return self._exactly(struct.unpack(">i", size)[0])

    def ask(self, frame: bytes) -> bytes:
        self.send(frame)
        return self.receive()

    def log_in(self, api: ApiKey, request: Struct) -> Struct:
        """One step of a SASL login, in versions that are not flexible."""
        frame = header(api, LOGIN_VERSION) + encode_request(api, LOGIN_VERSION, request)
        return decode_response(api, LOGIN_VERSION, self.ask(frame), 4)

    def send_no_more(self) -> None:
        """Ends the bytes to the broker; its answers still arrive, also those in TLS records."""
        socket.socket.shutdown(self.socket, socket.SHUT_WR)

    def hung_up(self) -> bool:
        """Waits for the broker to close; False when it sent something instead."""
        try:
            return self.socket.recv(1) == b""
        except CLOSED:
            return True

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return bytes(data)


@contextmanager
def connect(broker: Server, timeout_s: float = TIMEOUT_S) -> Iterator[RawConnection]:
    host, _, port = broker.bootstrap.rpartition(":")
    security = SecuritySettings.from_properties(properties_of(broker))
    with ExitStack() as stack:
        connected = socket.create_connection((host, int(port)), timeout=timeout_s)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = RawConnection(stack.enter_context(security.wrap(connected, host)))
        security.authenticate(connection.log_in)
        yield connection


def string(text: str | None) -> bytes:
    if text is None:
        return struct.pack(">h", -1)
    return struct.pack(">h", len(text)) + text.encode()


def header(api_key: int, version: int, correlation_id: int = 1, client_id: str = "raw") -> bytes:
    return struct.pack(">hhi", api_key, version, correlation_id) + string(client_id)


def api_versions_request(version: int = 0, correlation_id: int = 1) -> bytes:
    return header(API_VERSIONS, version, correlation_id)


def metadata_request(*topics: str, correlation_id: int = 1) -> bytes:
    """v1: the topics by name; none means no topics (a null array would mean all)."""
    names = b"".join(string(topic) for topic in topics)
    return header(METADATA, 1, correlation_id) + struct.pack(">i", len(topics)) + names


def fetch_request(
    topic: str,
    offset: int,
    *,
    max_wait_ms: int,
    min_bytes: int,
    correlation_id: int = 1,
    partition: int = 0,
) -> bytes:
    """v4: one partition, at most 1 MB."""
    body = struct.pack(">iiiib", -1, max_wait_ms, min_bytes, 1 << 20, 0)
    body += struct.pack(">i", 1) + string(topic)
    body += struct.pack(">iiqi", 1, partition, offset, 1 << 20)
    return header(FETCH, 4, correlation_id) + body


def fetched(response: bytes) -> tuple[int, int, bytes]:
    """Error code, high watermark and records of a v4 response for one partition."""
    at = 4 + 4 + 4  # correlation id, throttle time, topics
    at += 2 + struct.unpack_from(">h", response, at)[0] + 4 + 4  # name, partitions, index
    error, high_watermark, _, aborted = struct.unpack_from(">hqqi", response, at)
    at += 2 + 8 + 8 + 4 + 16 * max(aborted, 0)
    size = struct.unpack_from(">i", response, at)[0]
    return error, high_watermark, response[at + 4 : at + 4 + max(size, 0)]


def produce_request(
    topic: str, records: bytes, *, acks: int = -1, correlation_id: int = 1, partition: int = 0
) -> bytes:
    """v3: one partition."""
    body = string(None) + struct.pack(">hi", acks, 10_000)
    body += struct.pack(">i", 1) + string(topic)
    body += struct.pack(">ii", 1, partition) + struct.pack(">i", len(records)) + records
    return header(PRODUCE, 3, correlation_id) + body


def produced(response: bytes) -> tuple[int, int]:
    """Error code and base offset of a v3 response for one partition."""
    at = 4 + 4
    at += 2 + struct.unpack_from(">h", response, at)[0] + 4 + 4
    error, base_offset = struct.unpack_from(">hq", response, at)
    return error, base_offset


def batch(value: bytes, *, now_ms: int = 1_700_000_000_000, **changed: int) -> bytes:
    """A record batch of one record without key; `changed` overrides fields of the header.

    batch(b"x", crc=0) is what a broken client would send; batch(b"x", count=9) lies about its
    records under a correct checksum.
    """
    body = struct.pack(">bbb", 0, 0, 0) + _varint(-1) + _varint(len(value)) + value + b"\x00"
    record = _varint(len(body)) + body
    fields = {
        "attributes": 0, "last_offset_delta": 0, "base_timestamp": now_ms,
        "max_timestamp": now_ms, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1,
        "count": 1,
    }  # fmt: skip
    fields.update({name: value for name, value in changed.items() if name in fields})
    checked = struct.pack(">hiqqqhii", *fields.values()) + record
    crc = changed.get("crc", crc32c.crc32c(checked))
    length = changed.get("length", 9 + len(checked))
    head = struct.pack(">qiibI", 0, length, -1, changed.get("magic", 2), crc)
    return head + checked


def _varint(number: int) -> bytes:
    """Zigzag, for numbers of up to 13 bits and more: -1 is 01, 1 is 02, 100 is c8 01."""
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)
