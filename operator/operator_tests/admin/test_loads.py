"""Loads from the metrics ports of real brokers of both engines, and from ones that misbehave."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek_operator.admin.balance import observe
from odradek_operator.admin.loads import at_port, metrics_ports, reachable, read_loads
from odradek_operator.kafka.balance.loads import Restrictions, see
from odradek_operator.kafka.observed import Loads, LogSizes, SizedDir
from odradek_protocol.client import KafkaClient
from odradek_protocol.ids import TopicPartition
from odradek_testkit.engines import kafka_jars
from operator_tests.local.local import KEY, Local
from operator_tests.worlds import P

DEADLINE_S = 60.0


@contextmanager
def answering(status: int, body: str) -> Iterator[str]:
    """A server that answers every request like this: its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def document(seconds: float, *rows: tuple[str, int, float, float]) -> str:
    columns = ["topic", "partition", "bytes_in", "bytes_out"]
    return json.dumps({"seconds": seconds, "cpu": 0.5, "columns": columns, "replicas": rows})


def test_replicas_are_added_up_and_useless_answers_left_out() -> None:
    """Consumers read from leader and follower; three of the brokers say nothing useful."""
    with (
        answering(200, document(60, ("t", 0, 100.0, 20.0))) as leader,
        answering(200, document(60, ("t", 0, 0.0, 30.0))) as follower,
        answering(200, document(0.5, ("t", 1, 9e9, 0.0))) as young,
        answering(500, "no") as broken,
        answering(200, '{"columns": ["topic"]}') as odd,
    ):
        found = read_loads(dict(enumerate([leader, follower, young, broken, odd])), "minute")
    assert found.seconds == {0: 60.0, 1: 60.0}
    assert dict(found.bytes_in) == {TopicPartition("t", 0): 100.0}
    assert dict(found.bytes_out) == {TopicPartition("t", 0): 50.0}
    assert found.cpu == {0: 0.5, 1: 0.5}
    assert found.know([0, 1])
    assert not found.know([0, 2])
    nobody = read_loads({0: "127.0.0.1:1"}, "minute", timeout_s=0.2)
    assert nobody.seconds == {}
    with pytest.raises(ValueError, match="the windows are minute, hour, day"):
        read_loads({}, "week")


def test_an_exporter_that_answers_every_path() -> None:
    text = 'kafka_server_brokertopicmetrics_bytesin_oneminuterate{topic="a.b",} 100.0\n'
    text += 'kafka_server_brokertopicmetrics_bytesout_oneminuterate{topic="a.b"} 7.0\n'
    text += 'kafka_server_brokertopicmetrics_bytesin_fifteenminuterate{topic="a.b"} 1.5E2\n'
    with answering(200, text) as exporter:
        assert read_loads({4: exporter}, "minute").topics == {(4, "a.b"): (100.0, 7.0)}
        hour = read_loads({4: exporter}, "hour")
    assert hour.topics == {(4, "a.b"): (150.0, 0.0)}
    assert hour.seconds == {4: 900.0}


@pytest.mark.parametrize(
    ("listener", "broker_host", "at"),
    [
        ("127.0.0.1:9404", "127.0.0.1", "127.0.0.1:9404"),
        ("127.0.0.1:9404", "10.0.0.5", ""),  # somebody else's loopback
        ("0.0.0.0:9404", "10.0.0.5", "10.0.0.5:9404"),
        ("[::]:9404", "fd00::5", "[fd00::5]:9404"),
        ("10.1.0.5:9404", "localhost", "10.1.0.5:9404"),
        ("127.0.0.1:0", "127.0.0.1", ""),
        ("", "127.0.0.1", ""),
    ],
)
def test_where_a_listener_is_reached(listener: str, broker_host: str, at: str) -> None:
    assert reachable(listener, broker_host) == at


def test_measured_rates_come_before_the_growth_of_logs() -> None:
    """Broker 0 measured replicas, broker 1 topics, broker 2 did not answer."""
    ids = [TopicPartition("t", n) for n in range(5)]
    partitions = [P("t-0: 0 1 | 0 1"), P("t-1: 1 0 | 1 0"), P("t-2: 1 0 | 1 0"),
                  P("t-3: 2 0 | 2 0"), P("t-4: 0 2 | 0 2")]  # fmt: skip

    def sizes(at: float, more: int) -> LogSizes:
        held = {p: 1_000 + more * n for n, p in enumerate(ids)}
        return LogSizes(at, {b: (SizedDir("/a", replica_bytes=held),) for b in range(3)})

    loads = Loads("hour", {0: 3600.0, 1: 900.0}, {ids[0]: 50.0}, {ids[0]: 5.0},
                  {(1, "t"): (300.0, 30.0)})  # fmt: skip
    racks = {0: "a", 1: "b", 2: "c"}
    seen = see(partitions, racks, frozenset(racks), (sizes(0.0, 0), sizes(2.0, 100)),
               Restrictions(), loads)  # fmt: skip
    rates = [(p.bytes_in, p.bytes_out) for p in seen.partitions]
    assert rates[0] == (50.0, 5.0)
    assert rates[1:3] == [(100.0, 10.0), (200.0, 20.0)]  # as their logs grew: 100 and 200 bytes
    assert rates[3] == (150.0, 150.0)  # 300 bytes in two seconds
    assert rates[4] == (0.0, 0.0)  # its leader measured nothing


@pytest.mark.timeout(300)
@pytest.mark.parametrize("engine", ["embedded", pytest.param("apache", marks=[pytest.mark.java])])
def test_real_brokers_know_what_a_producer_wrote(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "apache":
        monkeypatch.setenv("ODRADEK_KAFKA_JARS", str(kafka_jars()))
    with Local(tmp_path, brokers=1, engine=engine) as local:
        local.settle(180)
        config: dict[str, str | int | float | bool] = {
            "bootstrap.servers": local.bootstrap,
            "log_level": 2,
        }
        new = NewTopic("orders", num_partitions=2, replication_factor=1)
        admin = AdminClient(config)
        admin.create_topics([new])["orders"].result(DEADLINE_S)
        producer = Producer(config)

        def known(_: object) -> bool:
            """Apache Kafka's meters are brought up to date every five seconds."""
            producer.produce("orders", os.urandom(50_000), partition=1)
            producer.flush(DEADLINE_S)
            loads = read_loads(local.runtime.clusters[KEY].platform.metrics(), "minute")
            with KafkaClient(local.bootstrap) as client:
                seen = observe(client, sample_s=0.2, loads=loads)
            rates = {p.id: p.bytes_in for p in seen.partitions}
            other = rates[TopicPartition("orders", 0)]
            return rates[TopicPartition("orders", 1)] > 1_000 and other == 0.0

        local.until(known, 120)
        with KafkaClient(local.bootstrap) as client:  # Apache Kafka has no such setting
            found = metrics_ports(client)
            own = local.runtime.clusters[KEY].platform.metrics()
            assert at_port(client, int(own[0].rpartition(":")[2])) == own
        assert found == (own if engine == "embedded" else {})
