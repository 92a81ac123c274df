"""A busy broker keeps serving other clients: during one large request, or a flood of requests.

A probe on a connection of its own asks for ApiVersions all the time; its longest wait is how long
the event loop was blocked. It is printed; `make bench-loop` measures it. What these tests check is
that no broker is fenced: one whose loop is blocked for longer than its session would be.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from odradek_protocol.messages.api import decode_response, encode_request
from odradek_protocol.messages.headers import request_header, response_header
from odradek_protocol.messages.struct import Struct
from odradek_testkit.ask import _exactly
from odradek_testkit.engines import RunningBroker, Server, on_apache
from odradek_testkit.raw_requests import (
    METADATA,
    api_versions_request,
    batch,
    connect,
    header,
    produce_request,
    produced,
)

pytestmark = pytest.mark.skipif(on_apache(), reason="about the event loop, which is ours")

CREATE_TOPICS = 19
DEADLINE_S = 60.0


class Probe:
    """How long an answer to a tiny request took at most."""

    def __init__(self, broker: Server) -> None:
        self._broker = broker
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.waited_s: list[float] = []

    def _run(self) -> None:
        with connect(self._broker, DEADLINE_S) as connection:
            while not self._stop.wait(0.002):
                began = time.monotonic()
                connection.ask(api_versions_request())
                self.waited_s.append(time.monotonic() - began)

    @contextmanager
    def watching(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join(DEADLINE_S)

    def __str__(self) -> str:
        waited = sorted(self.waited_s)
        p99 = waited[int(len(waited) * 0.99)]
        return f"{len(waited)} probes, p99 {p99 * 1000:.0f} ms, longest {waited[-1] * 1000:.0f} ms"


def create(broker: Server, topics: dict[str, int]) -> dict[str, int]:
    """One CreateTopics; the error of each topic."""
    request = Struct(
        topics=[
            Struct(name=n, num_partitions=p, replication_factor=1, assignments=[], configs=[])
            for n, p in topics.items()
        ],
        timeout=int(DEADLINE_S * 1000),
        validate_only=False,
    )
    frame = request_header(CREATE_TOPICS, 7, 1, "busy") + encode_request(CREATE_TOPICS, 7, request)
    host, _, port = broker.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), DEADLINE_S) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        answer = _exactly(connection, size)
    at = len(response_header(CREATE_TOPICS, 7, 1))
    return {t.name: t.error_code for t in decode_response(CREATE_TOPICS, 7, answer, at).topics}


def produce_until_accepted(broker: Server, topic: str, partition: int) -> None:
    """Every error until then is one that clients retry."""
    give_up = time.monotonic() + DEADLINE_S
    with connect(broker, DEADLINE_S) as connection:
        while True:
            request = produce_request(topic, batch(b"x"), partition=partition)
            error, _ = produced(connection.ask(request))
            if error == 0:
                return
            assert error in (3, 6), f"UNKNOWN_TOPIC_OR_PARTITION or NOT_LEADER, not {error}"
            assert time.monotonic() < give_up, f"{topic}-{partition} is not led"
            time.sleep(0.02)


def fenced(broker: Server) -> list[str]:
    """The lines of the log about brokers that were fenced after the start."""
    return [line for line in broker.log().splitlines() if "is fenced: silent" in line]


def many_partitions(before: int, topics: int, partitions: int) -> None:
    with RunningBroker() as broker:
        for number in range(before // 500):
            made = create(broker, {f"before-{number}-{i}": 100 for i in range(5)})
            assert set(made.values()) == {0}
        probe = Probe(broker)
        with probe.watching():
            made = create(broker, {f"large-{i}": partitions for i in range(topics)})
            assert set(made.values()) == {0}
            produce_until_accepted(broker, f"large-{topics - 1}", partitions - 1)
            # A topic that is created now does not wait for the thousands of partitions before it.
            assert create(broker, {"next": 1}) == {"next": 0}
            produce_until_accepted(broker, "next", 0)
            for topic in range(0, topics, max(1, topics // 10)):
                produce_until_accepted(broker, f"large-{topic}", 0)
        print(probe)
        assert not fenced(broker)


def test_five_thousand_partitions_in_one_request_fence_nobody() -> None:
    """FINDINGS A7, with 500 partitions before it instead of 5,000."""
    many_partitions(500, topics=50, partitions=100)


@pytest.mark.long
def test_twenty_thousand_partitions_in_one_request_fence_nobody() -> None:
    many_partitions(5000, topics=200, partitions=100)


@pytest.mark.long
def test_one_topic_of_ten_thousand_partitions_fences_nobody() -> None:
    many_partitions(0, topics=1, partitions=10_000)


def test_clients_that_ask_for_all_metadata_and_do_not_read_starve_nobody() -> None:
    """FINDINGS A5: 100 connections, 200 requests each for 3,000 partitions."""
    with RunningBroker() as broker:
        for number in range(6):
            made = create(broker, {f"t-{number}-{i}": 10 for i in range(50)})
            assert set(made.values()) == {0}
        before = broker.rss_bytes()
        everything = header(METADATA, 1) + struct.pack(">i", -1)
        frame = struct.pack(">i", len(everything)) + everything
        host, _, port = broker.bootstrap.rpartition(":")
        probe = Probe(broker)
        clients: list[socket.socket] = []
        with probe.watching():
            for _ in range(100):
                client = socket.create_connection((host, int(port)), DEADLINE_S)
                clients.append(client)
                client.sendall(frame * 200)
            # The last connection is answered like the first one, so every connection was served.
            (size,) = struct.unpack(">i", _exactly(clients[-1], 4))
            answer = _exactly(clients[-1], size)
            assert answer.count(b"t-5-49") == 1
            produce_until_accepted(broker, "t-0-0", 0)
        print(probe)
        grown = broker.rss_bytes() - before
        for client in clients:
            client.close()
        assert not fenced(broker)
        assert grown < 200 * 1024 * 1024, "answers that nobody reads are not kept"
