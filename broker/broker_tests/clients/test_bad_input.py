"""Bytes of a broken or hostile peer on a real socket: answered by an error or a closed connection.

Another client works at the same time, and the broker has not grown by 64 MB afterwards.
"""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from broker_tests.conftest import StartBroker
from odradek_testkit import raw_requests as raw
from odradek_testkit.clients import create_topic
from odradek_testkit.connecting import client_config
from odradek_testkit.engines import Server, on_apache

GROWTH_LIMIT_BYTES = 64 * 1024 * 1024
CORRUPT_MESSAGE, UNSUPPORTED_VERSION, INVALID_RECORD = 2, 35, 87


@pytest.fixture
def served(broker: Server, topic: str) -> Iterator[str]:
    """A topic that another client produces to and reads from all the time; it must never fail."""
    create_topic(broker, topic)
    stop, rounds, failures = threading.Event(), [0], []

    def work() -> None:
        try:
            with raw.connect(broker) as client:
                while not stop.is_set():
                    answer = client.ask(raw.produce_request(topic, raw.batch(b"served")))
                    error, offset = raw.produced(answer)
                    assert error == 0
                    answer = client.ask(
                        raw.fetch_request(topic, offset, max_wait_ms=1_000, min_bytes=1)
                    )
                    assert b"served" in raw.fetched(answer)[2]
                    rounds[0] += 1
        except Exception as error:
            failures.append(error)

    # The first request of a kind loads its code: that is not growth caused by bad input.
    with raw.connect(broker) as client:
        client.ask(raw.produce_request(topic, raw.batch(b"first")))
    before_bytes = 0 if on_apache() else broker.rss_bytes()
    worker = threading.Thread(target=work)
    worker.start()
    yield topic
    # A few more rounds after the last piece of bad input.
    reached = rounds[0]
    for _ in range(200):
        if failures or rounds[0] >= reached + 5:
            break
        worker.join(0.05)
    stop.set()
    worker.join(raw.TIMEOUT_S)
    assert not failures, failures
    assert rounds[0] >= reached + 5, "the well-behaved client was no longer served"
    if not on_apache():  # a JVM grows into its heap whatever it is sent
        assert broker.rss_bytes() - before_bytes < GROWTH_LIMIT_BYTES


def int32(number: int) -> bytes:
    return struct.pack(">i", number)


def framed(frame: bytes) -> bytes:
    return int32(len(frame)) + frame


FETCH_HEAD = raw.header(raw.FETCH, 4) + struct.pack(">iiiib", -1, 100, 1, 1000, 0)
METADATA_V1, METADATA_V9 = raw.header(raw.METADATA, 1), raw.header(raw.METADATA, 9)
HOPELESS = {
    "a web browser": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a TLS client": bytes.fromhex("16030100a5010000a10303") + bytes(160),
    "negative length": int32(-1),
    "most negative length": int32(-(2**31)),
    "length just over the limit": int32(104_857_601) + raw.api_versions_request(),
    "largest length": int32(2**31 - 1),
    "empty frame": framed(b""),
    "frame too short for a header": framed(b"\x00\x12\x00"),
    "client id longer than the frame": framed(struct.pack(">hhih", 18, 0, 1, 32_000)),
    "unknown API": framed(raw.header(999, 0) + b"\x00\x00"),
    "negative API": framed(raw.header(-5, 0) + b"\x00\x00"),
    "unknown version": framed(raw.header(raw.METADATA, 99) + int32(0)),
    "negative version": framed(raw.header(raw.METADATA, -1) + int32(0)),
    "more topics than bytes": framed(METADATA_V1 + int32(2**31 - 1)),
    "more partitions than bytes": framed(
        FETCH_HEAD + int32(1) + raw.string("t") + int32(10**9) + bytes(30)
    ),
    "string longer than the frame": framed(METADATA_V1 + int32(1) + b"\x7f\xff"),
    "huge compact array": framed(METADATA_V9 + b"\x00\xff\xff\xff\xff\x0f"),
    "endless varint": framed(METADATA_V9 + b"\x00" + b"\xff" * 9),
}


@pytest.mark.parametrize("what", HOPELESS)
def test_invalid_frames_close_the_connection(broker: Server, served: str, what: str) -> None:
    with raw.connect(broker) as connection:
        connection.socket.sendall(HOPELESS[what])
        assert connection.hung_up()


@pytest.mark.parametrize("cut", [2, 4, 5, 12, 30])
def test_frame_that_ends_too_early(broker: Server, served: str, cut: int) -> None:
    """The peer closes the connection in the middle of a frame."""
    frame = raw.fetch_request(served, 0, max_wait_ms=100, min_bytes=1)
    with raw.connect(broker) as connection:
        connection.socket.sendall(framed(frame)[:cut])
        connection.send_no_more()
        assert connection.hung_up()


def test_an_unsupported_version_of_api_versions_is_answered_in_version_0(
    broker: Server, served: str
) -> None:
    """So that a newer client finds out which versions it may send (KIP-511)."""
    with raw.connect(broker) as connection:
        answer = connection.ask(raw.header(raw.API_VERSIONS, 99, correlation_id=5) + b"\x00" * 20)
        correlation_id, error, count = struct.unpack_from(">ihi", answer)
        assert (correlation_id, error) == (5, UNSUPPORTED_VERSION)
        keys = {key: low for key, low, _ in struct.iter_unpack(">hhh", answer[10 : 10 + 6 * count])}
        assert keys[raw.API_VERSIONS] == 0
        assert connection.ask(raw.api_versions_request())[4:6] == b"\x00\x00"  # and is used on


def test_every_version_in_api_versions_is_accepted(broker: Server, served: str) -> None:
    with raw.connect(broker) as connection:
        answer = connection.ask(raw.api_versions_request())
    (count,) = struct.unpack_from(">i", answer, 6)
    assert 10 + 6 * count == len(answer)
    versions = {k: (lo, hi) for k, lo, hi in struct.iter_unpack(">hhh", answer[10:])}
    assert versions[raw.FETCH] == (4, 18)
    assert versions[raw.METADATA][0] == 0
    for key, (low, high) in versions.items():
        assert 0 <= low <= high, key


BAD_BATCHES = {
    "wrong checksum": (raw.batch(b"x", crc=1), {CORRUPT_MESSAGE}),
    "too many records": (raw.batch(b"x", count=9, last_offset_delta=8), {INVALID_RECORD}),
    "a billion records": (
        raw.batch(b"x", count=10**9, last_offset_delta=10**9 - 1),
        {INVALID_RECORD},
    ),
    "count against last offset": (raw.batch(b"x", last_offset_delta=5), {INVALID_RECORD}),
    "control batch": (raw.batch(b"x", attributes=0x20), {INVALID_RECORD}),
    "two batches": (raw.batch(b"x") * 2, {INVALID_RECORD}),
    "no batch": (b"", {INVALID_RECORD}),
    "magic 1": (raw.batch(b"x", magic=1), {INVALID_RECORD, CORRUPT_MESSAGE}),
    "length beyond the frame": (raw.batch(b"x", length=10**6), {CORRUPT_MESSAGE, INVALID_RECORD}),
    "negative length": (raw.batch(b"x", length=-7), {CORRUPT_MESSAGE, INVALID_RECORD}),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_BATCHES)
def test_bad_batches_are_refused_with_kafkas_error_code(
    broker: Server, served: str, what: str
) -> None:
    records, codes = BAD_BATCHES[what]
    with raw.connect(broker) as connection:
        error, base_offset = raw.produced(connection.ask(raw.produce_request(served, records)))
        assert error in codes
        assert base_offset == -1
        # The connection and the partition can still be used.
        answer = connection.ask(raw.produce_request(served, raw.batch(b"good")))
        assert raw.produced(answer)[0] == 0


def test_invalid_acks_are_refused(broker: Server, served: str) -> None:
    with raw.connect(broker) as connection:
        answer = connection.ask(raw.produce_request(served, raw.batch(b"x"), acks=7))
        assert raw.produced(answer)[0] == 21  # INVALID_REQUIRED_ACKS


def test_silent_connections_do_not_stop_others(broker: Server, served: str) -> None:
    """300 peers connect; some send nothing, some stop in the middle of a size, header or body."""
    request = framed(raw.metadata_request(served))
    with ExitStack() as peers:
        for number in range(300):
            silent = peers.enter_context(raw.connect(broker))
            silent.socket.sendall(request[: number % len(request)])
        with raw.connect(broker) as connection:
            assert connection.ask(raw.metadata_request(served))


@pytest.mark.skipif(on_apache(), reason="Apache Kafka allocates what a peer announces, and dies")
def test_a_large_length_prefix_without_its_bytes_takes_no_memory(
    broker: Server, served: str
) -> None:
    """40 peers announce 100 MB each and send 10 bytes: memory grows only with received bytes."""
    with ExitStack() as peers:
        for _ in range(40):
            liar = peers.enter_context(raw.connect(broker))
            liar.socket.sendall(int32(100_000_000) + raw.header(raw.PRODUCE, 3)[:10])
        with raw.connect(broker) as connection:
            assert connection.ask(raw.metadata_request(served))


def test_idle_connections_are_closed(start_broker: StartBroker) -> None:
    broker = start_broker({"connections.max.idle.ms": "500"})
    with raw.connect(broker) as silent, raw.connect(broker) as half:
        half.socket.sendall(int32(100) + b"\x00")
        assert silent.hung_up()
        assert half.hung_up()


FUZZED_FRAMES = 10_000
FUZZED_WITH_LOGIN = 1_000  # a login for each takes Apache Kafka several minutes for 10,000
AT_ONCE = 50  # connections opened together: one frame each, so that every frame is decoded


def test_thousands_of_fuzzed_frames(broker: Server, served: str) -> None:
    """Real requests with bytes changed, cut or added, and random bodies for every API."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # shown by pytest when the test fails
    rng = random.Random(seed)
    with raw.connect(broker) as connection:
        answer = connection.ask(raw.api_versions_request())
    versions = list(struct.iter_unpack(">hhh", answer[10:]))
    count = FUZZED_WITH_LOGIN if client_config(broker) else FUZZED_FRAMES
    for _ in range(count // AT_ONCE):
        frames = [fuzzed(rng, served, versions) for _ in range(AT_ONCE)]
        with ExitStack() as peers:
            connections = [peers.enter_context(raw.connect(broker)) for _ in frames]
            for connection, frame in zip(connections, frames, strict=True):
                with suppress(*raw.CLOSED):  # refused before it was complete is fine too
                    connection.send(frame)
                    connection.send_no_more()
            for connection in connections:
                drain(connection)


def fuzzed(rng: random.Random, topic: str, versions: list[tuple[int, int, int]]) -> bytes:
    if rng.random() < 0.4:
        key, low, high = rng.choice(versions)
        head = raw.header(key, rng.randint(low, high))
        return head + rng.randbytes(rng.choice((0, 1, 4, 10, 50, 200, 1_000)))
    frame = bytearray(
        rng.choice(
            (
                raw.metadata_request(topic, "other"),
                raw.api_versions_request(rng.randint(0, 4)),
                raw.fetch_request(topic, 0, max_wait_ms=5, min_bytes=1),
                raw.produce_request(topic, raw.batch(b"fuzz" * 20)),
            )
        )
    )
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(frame))
        match rng.randrange(4):
            case 0:
                frame[at] = rng.randrange(256)
            case 1:
                frame[at : at + 4] = rng.choice(
                    (b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80" + bytes(3))
                )
            case 2:
                del frame[at : at + rng.randrange(1, 9)]
            case 3:
                frame[at:at] = rng.randbytes(rng.randrange(1, 9))
        if not frame:
            break
    return bytes(frame)


def drain(connection: raw.RawConnection) -> None:
    """Reads to the end, or until it is clear that the broker waits as long as the frame said."""
    connection.socket.settimeout(0.2)
    with suppress(*raw.CLOSED, TimeoutError):
        while connection.socket.recv(65_536):
            pass
