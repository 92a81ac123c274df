"""Requests as bytes, sent over plain sockets (or TLS): the cheapest possible client.

librdkafka and the Java client need more CPU than either broker, so on two cores the client is the
bottleneck. These requests are encoded once and sent repeatedly, which leaves the CPU to the
broker. Produce v7 and Fetch v11 are the newest versions without flexible fields; both engines
serve them. All numbers are big-endian, every message has its length before it:

    produce_request("t", 0, batch([b"a", b"b"]))   57 bytes of frame and header, then the batch
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import crc32c

from odradek_bench.endpoints import connect
from odradek_bench.verify import WrongAnswerError

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
JOIN_GROUP = 11
Bytes = bytes | bytearray | memoryview

CLIENT_ID = b"bench"
CORRELATION_ID = 7
TIMEOUT_MS = 30_000
SOCKET_TIMEOUT_S = 60.0
FIRST_BUFFER_BYTES = 4096  # small, because there may be a thousand connections
BUFFER_BYTES = 1 << 20
LOG_OVERHEAD = 12  # base offset and length of a batch
CRC_FROM = 21  # the CRC32C of a batch covers everything from its attributes on


def string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


def zigzag(value: int) -> bytes:
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def batch(
    values: Sequence[bytes], keys: Sequence[bytes] | None = None, time_ms: int | None = None
) -> bytes:
    """An uncompressed record batch (format v2) without a producer id.

    Its time is now: records of 1970 are older than any retention, and would be deleted before
    they are read back.
    """
    if time_ms is None:
        time_ms = int(time.time() * 1000)
    records = bytearray()
    for delta, value in enumerate(values):
        key = zigzag(-1) if keys is None else zigzag(len(keys[delta])) + keys[delta]
        body = b"\0\0" + zigzag(delta) + key + zigzag(len(value)) + value + b"\0"
        records += zigzag(len(body)) + body
    tail = struct.pack(">hiqqqhii", 0, len(values) - 1, time_ms, time_ms, -1, -1, -1, len(values))
    covered = tail + bytes(records)
    head = struct.pack(">ibI", 0, 2, crc32c.crc32c(covered))
    return struct.pack(">qi", 0, len(head) + len(covered)) + head + covered


def frame(api_key: int, version: int, body: bytes) -> bytes:
    header = struct.pack(">hhi", api_key, version, CORRELATION_ID) + string(CLIENT_ID)
    return struct.pack(">i", len(header) + len(body)) + header + body


def produce_request(topic: str, partition: int, records: bytes, acks: int = 1) -> bytes:
    body = struct.pack(">hhii", -1, acks, TIMEOUT_MS, 1) + string(topic.encode())
    body += struct.pack(">iii", 1, partition, len(records)) + records
    return frame(PRODUCE, 7, body)


def fetch_request(
    topic: str, partition: int, offset: int, *, max_bytes: int, max_wait_ms: int = 500
) -> bytes:
    body = struct.pack(">iiiibii", -1, max_wait_ms, 1, max_bytes, 0, 0, -1)
    body += struct.pack(">i", 1) + string(topic.encode())
    body += struct.pack(">iiiqqi", 1, partition, -1, offset, -1, max_bytes)
    return frame(FETCH, 11, body + struct.pack(">i", 0) + string(b""))


class ProduceAnswer:
    """The positions of the fields in the answer to a produce request of one partition (v7).

    Counted after the frame's length, as Connection.receive returns an answer.
    """

    def __init__(self, topic: str) -> None:
        self.error_at = 4 + 4 + 2 + len(topic.encode()) + 4 + 4
        self.length = self.error_at + 2 + 8 + 8 + 8 + 4
        self._read = struct.Struct(">hq").unpack_from

    def base_offset(self, answer: Bytes, at: int = 0) -> int:
        error, offset = self._read(answer, at + self.error_at)
        if error:
            raise WrongAnswerError(f"a produce request was answered with error {error}")
        return int(offset)


class Fetched(NamedTuple):
    """The answer of a fetch of one partition."""

    high_watermark: int
    records: memoryview


def fetched(answer: Bytes, topic: str) -> Fetched:
    """The one partition of a fetch response (v11), without its frame length."""
    view = memoryview(answer)
    (error,) = struct.unpack_from(">h", view, 8)
    at = 4 + 4 + 2 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4
    partition_error, high_watermark = struct.unpack_from(">hq", view, at)
    if error or partition_error:
        raise WrongAnswerError(f"a fetch was answered with error {error or partition_error}")
    at += 2 + 8 + 8 + 8
    (aborted,) = struct.unpack_from(">i", view, at)
    at += 4 + max(0, aborted) * 16 + 4
    (length,) = struct.unpack_from(">i", view, at)
    return Fetched(high_watermark, view[at + 4 : at + 4 + max(0, length)])


class Batch(NamedTuple):
    """One record batch in an answer."""

    base_offset: int
    last_offset: int
    size: int  # records
    view: memoryview


def batches(records: memoryview, *, check_crc: bool = True) -> Iterator[Batch]:
    """The whole batches of a fetch response; the last one may be cut off."""
    at = 0
    while at + LOG_OVERHEAD <= len(records):
        base, length = struct.unpack_from(">qi", records, at)
        view = records[at : at + LOG_OVERHEAD + length]
        if len(view) < LOG_OVERHEAD + length:
            return
        (crc,) = struct.unpack_from(">I", view, 17)
        (delta,) = struct.unpack_from(">i", view, 23)
        (count,) = struct.unpack_from(">i", view, 57)
        if check_crc and crc32c.crc32c(view[CRC_FROM:]) != crc:
            raise WrongAnswerError(f"the batch at offset {base} has a wrong checksum")
        yield Batch(base, base + delta, count, view)
        at += len(view)


class Connection:
    """A blocking connection: frames out, frames in."""

    def __init__(self, address: str) -> None:
        self.socket = connect(address, SOCKET_TIMEOUT_S)
        self._buffer = bytearray(FIRST_BUFFER_BYTES)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, request: bytes) -> None:
        self.socket.sendall(request)

    def receive(self) -> memoryview:
        """The next answer without its length; valid until the next call."""
        self._fill(4, 0)
        (length,) = struct.unpack_from(">i", self._buffer)
        if length > len(self._buffer):
            self._buffer = bytearray(max(length, BUFFER_BYTES))
        self._fill(length, 0)
        return memoryview(self._buffer)[:length]

    def ask(self, request: bytes) -> memoryview:
        self.send(request)
        return self.receive()

    def _fill(self, wanted: int, at: int) -> None:
        view = memoryview(self._buffer)[:wanted] if wanted <= len(self._buffer) else None
        assert view is not None
        while at < wanted:
            got = self.socket.recv_into(view[at:])
            if not got:
                raise WrongAnswerError("the broker closed the connection")
            at += got


def greeted(address: str) -> Connection:
    """A connection whose ApiVersions was answered, which is how every real client begins.

    Without that wait a client opens a thousand connections faster than a broker accepts them, and
    then waits a second for each one that did not fit into the backlog (50, Kafka's default).
    """
    connection = Connection(address)
    connection.ask(frame(API_VERSIONS, 0, b""))
    return connection


def api_keys(address: str) -> set[int]:
    """The APIs that a broker offers (ApiVersions v0)."""
    with Connection(address) as connection:
        answer = connection.ask(frame(API_VERSIONS, 0, b""))
        _, error, count = struct.unpack_from(">ihi", answer)
        assert error == 0
        return {struct.unpack_from(">h", answer, 10 + 6 * index)[0] for index in range(count)}


def records(found: Batch) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of each record of an uncompressed batch; a null one is empty."""
    view, at = found.view, 61
    for _ in range(found.size):
        length, at = _varint(view, at)
        end = at + length
        _, at = _varint(view, at + 1)  # after the attributes: timestamp delta, offset delta
        _, at = _varint(view, at)
        key_length, at = _varint(view, at)
        key, at = bytes(view[at : at + max(0, key_length)]), at + max(0, key_length)
        value_length, at = _varint(view, at)
        yield key, bytes(view[at : at + max(0, value_length)])
        at = end


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = view[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
