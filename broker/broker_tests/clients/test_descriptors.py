"""Idle connections cannot take the descriptors that storage needs.

Finding A3: `ulimit -n 256`, 300 idle connections and a record now and then took the only log
directory offline within 9 s; in that time the admin listener logged 60,031 tracebacks.
"""

from __future__ import annotations

import re
import socket
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack, suppress

import psutil
import pytest

from broker_tests.clients.test_request_memory import metric, produce_and_fetch
from odradek_cli.processes import ChildProcess
from odradek_testkit import raw_requests as raw
from odradek_testkit.clients import wait_until
from odradek_testkit.engines import RunningBroker, on_apache

pytestmark = pytest.mark.skipif(on_apache(), reason="about our own use of descriptors")

LIMIT = 256
CONNECTIONS = "kafka_server_socket_server_metrics_connection_count"


class LimitedBroker(RunningBroker):
    """A broker that may have 256 descriptors, and cannot raise that."""

    def spawn(self, command: Sequence[str], *, stdout: int | None = None) -> ChildProcess:
        limited = ["sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh", *command]
        return super().spawn(limited, stdout=stdout)

    def open_files(self) -> int:
        return psutil.Process(self.pid).num_fds()


def idle_connections(address: str, count: int, stack: ExitStack) -> list[socket.socket]:
    host, _, port = address.rpartition(":")
    found = []
    for _ in range(count):
        with suppress(OSError):
            found.append(stack.enter_context(socket.create_connection((host, int(port)), 10)))
    return found


def get(address: str, path: str) -> tuple[int, str]:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=20) as answer:
        return answer.status, answer.read().decode()


def test_idle_connections_leave_storage_its_descriptors(topic: str) -> None:
    settings = {
        "replica.high.watermark.checkpoint.interval.ms": "200",
        "log.segment.bytes": "1048576",
    }
    with LimitedBroker(settings) as broker, ExitStack() as stack:
        producer = stack.enter_context(raw.connect(broker))
        producer.ask(raw.metadata_request(topic))  # creates it
        wait_until(
            lambda: not raw.produced(producer.ask(raw.produce_request(topic, raw.batch(b"0"))))[0]
        )
        with ExitStack() as idle:
            idle_connections(broker.bootstrap, 300, idle)
            idle_connections(broker.admin, 60, idle)
            for _ in range(60):  # 5 MB: five new segments
                answer = producer.ask(raw.produce_request(topic, raw.batch(b"x" * 90_000)))
                assert raw.produced(answer)[0] == 0
                assert get(broker.admin, "/healthz")[0] == 200
                assert get(broker.admin, "/readyz")[0] == 200
                assert broker.open_files() < LIMIT - 32
            assert metric(broker, "kafka_log_logmanager_offlinelogdirectorycount") == 0
            limit = metric(broker, "odradek_connections_limit")
            assert (
                metric(broker, "kafka_server_socket_server_metrics_connection_count") <= limit + 16
            )
        # The idle connections were closed, so other clients can connect.
        wait_until(lambda: metric(broker, CONNECTIONS) < limit)
        produce_and_fetch(broker, topic, b"after")
        log = broker.log()
        said = re.findall(r"accepts up to (\d+) connections: (\d+) file descriptors", log)
        assert said == [(str(int(limit)), str(LIMIT))]
        assert "Too many open files" not in log
        assert "offline" not in log
        assert log.count("too many connections") <= 3
        assert len(log) < 20_000


def test_brokers_can_connect_when_clients_have_taken_all_connections(topic: str) -> None:
    """A broker is recognised by its client id; the client that was idle for longest is closed."""
    with RunningBroker({"max.connections": "10"}) as broker, ExitStack() as stack:
        idle = idle_connections(broker.bootstrap, 10, stack)
        wait_until(lambda: metric(broker, CONNECTIONS) == 10)
        with raw.connect(broker) as client:
            client.send(raw.api_versions_request())
            assert client.hung_up()
        assert all(_is_open(sock) for sock in idle)
        with raw.connect(broker) as other:
            request = raw.header(raw.API_VERSIONS, 0, 7, "broker-2-fetcher")
            for _ in range(3):
                assert other.ask(request)[:4] == b"\0\0\0\7"
            wait_until(lambda: sum(map(_is_open, idle)) == 9)
        # Connections that have sent nothing do not count as brokers, however many there are.
        idle_connections(broker.bootstrap, 40, stack)
        with raw.connect(broker) as other:
            assert (
                other.ask(raw.header(raw.API_VERSIONS, 0, 7, "broker-3-quorum"))[:4] == b"\0\0\0\7"
            )


def _is_open(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False
