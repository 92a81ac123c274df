"""Clients that announce large requests and send little of them, or slowly, do not block others.

Finding A2: three connections that sent nothing but a length prefix of 100, 100 and 56 MB stopped
a broker for all clients.
"""

from __future__ import annotations

import re
import socket
import struct
import time
import urllib.request
from contextlib import ExitStack

import pytest

from broker_tests.conftest import StartBroker
from odradek_testkit import raw_requests as raw
from odradek_testkit.clients import create_topic, wait_until
from odradek_testkit.engines import RunningBroker, Server, on_apache

pytestmark = pytest.mark.skipif(on_apache(), reason="about our own request memory")

MB = 1024 * 1024
CLAIMS = (100 * MB, 100 * MB, 56 * MB)
# Far less than a client's request timeout; before, there was no answer at all.
ANSWER_S = 10.0


def open_socket(broker: Server, stack: ExitStack) -> socket.socket:
    host, _, port = broker.bootstrap.rpartition(":")
    sock = stack.enter_context(socket.create_connection((host, int(port)), timeout=ANSWER_S))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def claim(sock: socket.socket, size: int, sent: bytes = b"") -> None:
    sock.sendall(struct.pack(">i", size) + sent)


def metric(broker: Server, name: str) -> float:
    assert isinstance(broker, RunningBroker)
    with urllib.request.urlopen(f"http://{broker.admin}/metrics", timeout=ANSWER_S) as answer:
        text = answer.read().decode()
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    assert found, f"{name} is not among the metrics"
    return float(found[1])


def produce_and_fetch(broker: Server, topic: str, value: bytes) -> None:
    """A new client is served: ApiVersions, metadata, produce and fetch."""
    with raw.connect(broker, ANSWER_S) as client:
        client.ask(raw.api_versions_request())
        client.ask(raw.metadata_request(topic))
        answer = client.ask(raw.produce_request(topic, raw.batch(value)))
        error, offset = raw.produced(answer)
        assert error == 0
        answer = client.ask(raw.fetch_request(topic, offset, max_wait_ms=5_000, min_bytes=1))
        assert value in raw.fetched(answer)[2]


def hung_up(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except (ConnectionResetError, BrokenPipeError):
        return True


def test_three_silent_length_prefixes(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    with ExitStack() as stack:
        for size in CLAIMS:
            claim(open_socket(broker, stack), size)
        for number in range(5):
            produce_and_fetch(broker, topic, b"record %d" % number)
        produce_and_fetch(broker, topic, b"large " * 100_000)
        wait_until(lambda: metric(broker, "odradek_request_memory_used_bytes") < MB)
        assert metric(broker, "odradek_request_memory_waits_total") == 0


def test_a_byte_now_and_then_is_no_progress_and_slow_is_not_silent(
    start_broker: StartBroker, topic: str
) -> None:
    broker = start_broker({"odradek.request.receive.timeout.ms": "1500"})
    create_topic(broker, topic)
    request = raw.produce_request(topic, raw.batch(b"x" * 600_000))
    with ExitStack() as stack:
        dripping, slow = open_socket(broker, stack), open_socket(broker, stack)
        claim(dripping, MB, b"x" * 100)
        slow.sendall(struct.pack(">i", len(request)))
        dripping.settimeout(0.0)
        closed, at = False, 0
        give_up = time.monotonic() + 30
        while not closed or at < len(request):
            assert time.monotonic() < give_up, (closed, at)
            try:
                if not closed:
                    closed = dripping.recv(1) == b""
            except BlockingIOError:
                dripping.send(b"x")
            except ConnectionResetError:
                closed = True
            slow.sendall(request[at : at + 20_000])  # 200 KB/s
            at += 20_000
            time.sleep(0.1)
        assert closed
        answer = raw.RawConnection(slow).receive()
        assert raw.produced(answer)[0] == 0
    assert metric(broker, 'odradek_requests_dropped_total{reason="slow"}') == 1
    assert "a request arrived too slowly" in broker.log()


def test_half_sent_batches_are_dropped_when_memory_is_short(
    start_broker: StartBroker, topic: str
) -> None:
    """150 senders stop in the middle of 1 MB; there is room for 56 of them."""
    broker = start_broker(
        {"queued.max.request.bytes": str(64 * MB), "socket.request.max.bytes": str(8 * MB)}
    )
    create_topic(broker, topic)
    half = raw.header(raw.PRODUCE, 3, 1, "half-sender") + b"x" * (MB // 2)
    with ExitStack() as stack:
        for _ in range(150):
            sock = open_socket(broker, stack)
            sock.setblocking(False)
            rest = struct.pack(">i", MB) + half
            try:
                while rest:
                    rest = rest[sock.send(rest) :]
            except BlockingIOError:
                pass  # the broker reads no more of this one for now
        large = b"large " * 150_000
        for number in range(4):
            produce_and_fetch(broker, topic, b"record %d" % number)
            produce_and_fetch(broker, topic, large)
        used = metric(broker, "odradek_request_memory_used_bytes")
        assert used <= 64 * MB + 150 * 64 * 1024
        assert metric(broker, 'odradek_requests_dropped_total{reason="memory"}') > 0
    wait_until(lambda: metric(broker, "odradek_request_memory_used_bytes") < MB)
    wait_until(lambda: "request memory is free again" in broker.log())
    log = broker.log()
    assert "(client id half-sender) holds the most" in log
    assert log.count("request memory is used up") <= 4, log
    assert len(log) < 100_000


def test_requests_that_do_not_decode_release_their_memory(broker: Server, topic: str) -> None:
    """Each closes its connection; 30 of 10 MB are more than there is."""
    create_topic(broker, topic)
    for _ in range(30):
        with raw.connect(broker, ANSWER_S) as client:
            client.send(raw.header(raw.METADATA, 1) + b"\x7f" * (10 * MB))
            assert client.hung_up()
    produce_and_fetch(broker, topic, b"large " * 100_000)
    wait_until(lambda: metric(broker, "odradek_request_memory_used_bytes") < MB)
