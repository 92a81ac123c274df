"""The admin server of a real broker process: health, readiness, and the values in /metrics.

The numbers are compared with the requests of a real client, so a counter that never increases
fails the test.
"""

import asyncio
import json
import re
import socket
import urllib.error
import urllib.parse
import urllib.request
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import TopicPartition

from odradek_broker.admin.server import AdminServer
from odradek_broker.admin.state import Readiness
from odradek_testkit.clients import (
    admin_of,
    consume,
    consumer_of,
    create_topic,
    numbered,
    produce,
    wait_until,
)
from odradek_testkit.engines import RunningBroker, Server

Labels = frozenset[tuple[str, str]]


def admin_address(server: Server) -> str:
    assert isinstance(server, RunningBroker)
    return server.admin


def get(server: Server | str, path: str) -> tuple[int, str]:
    """GET from a broker process or from `host:port`; (status, body)."""
    address = server if isinstance(server, str) else admin_address(server)
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def samples(server: Server) -> dict[tuple[str, Labels], float]:
    """{(name, frozenset of labels): value}"""
    found = {}
    for line in get(server, "/metrics")[1].splitlines():
        if line.startswith("#"):
            continue
        match = re.fullmatch(r"(\w+)(\{.*\})? (\S+)", line)
        assert match is not None, line
        name, labels, value = match.groups()
        pairs = re.findall(r'(\w+)="([^"]*)"', labels or "")
        found[name, frozenset(pairs)] = float(value)
    return found


def labels(**pairs: str) -> Labels:
    return frozenset(pairs.items())


def test_a_running_broker_is_healthy_and_ready(broker: Server) -> None:
    assert get(broker, "/healthz") == (200, '{"healthy": true}')
    status, body = get(broker, "/readyz")
    assert (status, json.loads(body)) == (200, {"ready": True, "reasons": {}})


def states(server: Server, what: str, **query: str | int) -> tuple[int, Any]:
    found = get(server, f"/v1/controller/{what}?" + urllib.parse.urlencode(query))
    return found[0], json.loads(found[1])


def test_states_of_partitions_and_replicas(broker: Server, topic: str) -> None:
    """A topic is created and deleted: the counts follow, and no transition was illegal."""
    before = states(broker, "partitions")[1]
    create_topic(broker, topic, partitions=3)
    status, found = states(broker, "partitions", topic=topic)
    assert status == 200
    assert (found["controller"], found["found"], found["illegal_transitions"]) == (1, 3, 0)
    assert [item["partition"] for item in found["items"]] == [0, 1, 2]
    for item in found["items"]:
        assert item["state"] == "OnlinePartition"
        assert item["topic"] == topic
        assert item["transitions"] == 2  # New, Online
        age_s = datetime.now(UTC) - datetime.fromisoformat(item["since"])
        assert 0 <= age_s.total_seconds() < 60
    assert found["transitions"] == before["transitions"] + 6
    assert found["counts"]["OnlinePartition"] == before["counts"].get("OnlinePartition", 0) + 3

    _, found = states(broker, "replicas", topic=topic, replica=1, state="OnlineReplica")
    assert found["found"] == 3
    assert found["items"][0]["replica"] == 1
    assert states(broker, "replicas", topic=topic, replica=2)[1]["found"] == 0
    assert len(states(broker, "replicas", topic=topic, limit=2)[1]["items"]) == 2
    assert states(broker, "replicas", limit="many")[0] == 400

    admin = admin_of(broker)
    admin.delete_topics([topic])[topic].result(10)
    wait_until(lambda: states(broker, "replicas")[1]["found"] == before["found"])
    assert states(broker, "partitions", topic=topic)[1]["found"] == 0
    assert states(broker, "replicas")[1]["illegal_transitions"] == 0


def test_traffic_shows_in_the_metrics(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    produce(broker, topic, numbered(50, size=100))
    consume(broker, topic, 50)
    found = samples(broker)
    of_topic = labels(topic=topic)
    assert found["kafka_server_brokertopicmetrics_messagesin_total", of_topic] == 50
    assert found["kafka_server_brokertopicmetrics_bytesin_total", of_topic] > 5000
    assert found["kafka_server_brokertopicmetrics_bytesout_total", of_topic] > 5000
    partition = labels(topic=topic, partition="0")
    assert found["kafka_topic_partition_current_offset", partition] == 50
    assert found["kafka_topic_partition_oldest_offset", partition] == 0
    assert found["kafka_log_log_size", partition] > 5000
    # Also those of other tests' topics, and of internal ones.
    hosted = sum(name == "kafka_topic_partition_leader" for name, _ in found)
    assert hosted >= 1
    assert found["kafka_server_replicamanager_partitioncount", labels()] == hosted
    assert found["kafka_server_replicamanager_leadercount", labels()] == hosted
    assert found["odradek_ready", labels()] == 1
    assert found["kafka_controller_kafkacontroller_offlinepartitionscount", labels()] == 0
    assert found["kafka_controller_kafkacontroller_activebrokercount", labels()] == 1
    assert found["kafka_controller_controllerstats_uncleanleaderelections_total", labels()] == 0
    idle = "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent"
    assert 0 < found[idle, labels()] <= 1
    requests = [
        dict(key)["request"]
        for name, key in found
        if name.endswith("requestmetrics_requests_total")
    ]
    assert {"Produce", "Fetch", "Metadata", "ApiVersions", "CreateTopics"} <= set(requests)


def test_request_times_add_up(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    produce(broker, topic, [b"x"])
    before = samples(broker)
    produce(broker, topic, [b"y"])
    found = samples(broker)

    def total_ms(phase: str) -> float:
        key = f"kafka_network_requestmetrics_{phase.lower()}_all_sum", labels(request="Produce")
        return found[key] - before[key]

    phases = ["RequestQueueTimeMs", "LocalTimeMs", "RemoteTimeMs"]
    phases += ["ResponseQueueTimeMs", "ResponseSendTimeMs"]
    assert total_ms("TotalTimeMs") > 0
    # Each phase is rounded down to a microsecond.
    assert abs(total_ms("TotalTimeMs") - sum(map(total_ms, phases))) < 0.1


def test_a_waiting_fetch_is_in_the_purgatory(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    purgatory = "kafka_server_delayedoperationpurgatory_purgatorysize"
    with consumer_of(broker, fetch_wait_max_ms=20_000) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        consumer.poll(0)
        wait_until(lambda: samples(broker)[purgatory, labels(delayedOperation="Fetch")] == 1)
        assert samples(broker)[purgatory, labels(delayedOperation="Produce")] == 0


def test_the_loop_lag_is_measured(broker: Server) -> None:
    lag = ("odradek_event_loop_lag_histogram_seconds_count", labels())
    wait_until(lambda: samples(broker)[lag] >= 3)
    assert samples(broker)["odradek_event_loop_lag_seconds", labels()] >= 0


def test_an_unready_broker_says_what_it_waits_for() -> None:
    """While logs are recovered: not ready, with the progress as the reason, but healthy."""

    async def story() -> None:
        readiness = Readiness()
        admin = AdminServer(readiness)
        with socket.create_server(("127.0.0.1", 0)) as sock:
            address = f"127.0.0.1:{sock.getsockname()[1]}"
            await admin.start(sock)
            readiness.wait_for("recovery", "12 of 400 logs loaded")
            status, body = await asyncio.to_thread(get, address, "/readyz")
            assert status == 503
            assert json.loads(body) == {
                "ready": False,
                "reasons": {
                    "start": "the broker is starting",
                    "recovery": "12 of 400 logs loaded",
                },
            }
            assert (await asyncio.to_thread(get, address, "/healthz"))[0] == 200
            readiness.done("recovery")
            readiness.done("start")
            assert (await asyncio.to_thread(get, address, "/readyz"))[0] == 200
            readiness.needs_restart("storage", "/data failed")
            for path in ("/readyz", "/healthz"):
                status, body = await asyncio.to_thread(get, address, path)
                assert (status, json.loads(body)["reasons"]) == (503, {"storage": "/data failed"})
            await admin.stop()

    asyncio.run(story())
