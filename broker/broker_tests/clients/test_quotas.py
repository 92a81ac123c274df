"""Clients under quotas, on both engines: their rate, the throttle time in responses, the pause.

`ODRADEK_TEST_ENGINE=apache` runs the same tests against Apache Kafka, which must pass them too.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer

from broker_tests.conftest import StartBroker
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.api import decode_response, encode_request
from odradek_protocol.messages.headers import request_header, response_header
from odradek_protocol.messages.struct import Struct
from odradek_testkit.clients import create_topic, wait_until
from odradek_testkit.engines import RunningBroker, Server
from odradek_testkit.raw_requests import RawConnection

METADATA, CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 3, 19, 20, 37
DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS = 48, 49
DESCRIBE_QUORUM = 55
RATE = 200_000  # bytes per second
RECORD = b"x" * 10_000
# Seconds of the rate that are sent. Ten seconds are free at once, and ten more when those leave the
# windows; near ten or twenty a few bytes would decide how long the test takes.
SECONDS = 17


class Asker:
    """A connection with a client id of its own; measures how long an answer takes."""

    def __init__(self, server: Server, client_id: str) -> None:
        host, _, port = server.bootstrap.rpartition(":")
        self._raw = RawConnection(socket.create_connection((host, int(port))))
        self._client_id = client_id

    def ask(self, api_key: int, version: int, request: Struct) -> Struct:
        frame = request_header(api_key, version, 1, self._client_id)
        frame += encode_request(api_key, version, request)
        answer = self._raw.ask(frame)
        at = len(response_header(api_key, version, 1))
        return decode_response(api_key, version, answer, at)

    def close(self) -> None:
        self._raw.socket.close()


@pytest.fixture
def asker(broker: Server, topic: str) -> Iterator[Asker]:
    """Its client id is the name of the test's topic: Apache Kafka's server is shared by tests."""
    asker = Asker(broker, topic)
    yield asker
    asker.close()


def set_quota(broker: Server, client_id: str, key: str, limit: float | None) -> None:
    admin = Asker(broker, "quota-admin")
    op = Struct(key=key, value=limit or 0.0, remove=limit is None)
    entity = [Struct(entity_type="client-id", entity_name=client_id)]
    request = Struct(entries=[Struct(entity=entity, ops=[op])], validate_only=False)
    answer = admin.ask(ALTER_CLIENT_QUOTAS, 1, request)
    assert answer.entries[0].error_code is ErrorCode.none, answer.entries[0].error_message
    mine = Struct(entity_type="client-id", match_type=0, match=client_id)

    def known() -> bool:  # Apache Kafka publishes it a little after it has answered
        found = admin.ask(DESCRIBE_CLIENT_QUOTAS, 1, Struct(components=[mine], strict=True))
        values = {v.key: v.value for entry in found.entries for v in entry.values}
        return values.get(key) == limit

    wait_until(known)
    admin.close()


def throttle_seen(stats: list[str]) -> int:
    """The longest throttle_time_ms that librdkafka received."""
    brokers = [b for text in stats for b in json.loads(text)["brokers"].values()]
    return max((b["throttle"]["max"] for b in brokers), default=0)


def test_a_producer_gets_its_rate(broker: Server, topic: str) -> None:
    """More than the burst that the windows allow: the rest is sent at the rate of the quota."""
    create_topic(broker, topic)
    set_quota(broker, topic, "producer_byte_rate", RATE)
    stats: list[str] = []
    producer = Producer({
        "bootstrap.servers": broker.bootstrap, "client.id": topic, "linger.ms": 5,
        "batch.size": 100_000, "statistics.interval.ms": 500, "stats_cb": stats.append,
        "compression.type": "none",
    })  # fmt: skip
    records = RATE * SECONDS // len(RECORD)
    started = time.monotonic()
    for _ in range(records):
        producer.produce(topic, RECORD)
        producer.poll(0)
    assert producer.flush(120) == 0
    took = time.monotonic() - started
    # The last pause comes after the last answer.
    print(f"{records * len(RECORD)} bytes in {took:.1f} s, throttled for {throttle_seen(stats)} ms")
    assert took >= SECONDS - 12
    assert throttle_seen(stats) > 0
    set_quota(broker, topic, "producer_byte_rate", None)


def test_a_consumer_gets_its_rate(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "none",
                         "batch.size": 100_000})  # fmt: skip
    records = RATE * SECONDS // len(RECORD)
    for number in range(records):
        producer.produce(topic, RECORD, key=str(number))
        producer.poll(0)
    assert producer.flush(60) == 0
    set_quota(broker, topic, "consumer_byte_rate", RATE)
    stats: list[str] = []
    consumer = Consumer({
        "bootstrap.servers": broker.bootstrap, "client.id": topic, "group.id": topic,
        "auto.offset.reset": "earliest", "statistics.interval.ms": 500, "stats_cb": stats.append,
        "fetch.message.max.bytes": 100_000,
    })  # fmt: skip
    consumer.subscribe([topic])
    got: list[bytes] = []
    first = 0.0
    while len(got) < records:
        message = consumer.poll(1.0)
        if message is not None:
            assert not message.error()
            key = message.key()
            assert isinstance(key, bytes)
            got.append(key)
            first = first or time.monotonic()
    took = time.monotonic() - first
    consumer.close()
    print(f"{records * len(RECORD)} bytes in {took:.1f} s, throttled for {throttle_seen(stats)} ms")
    assert got == [str(number).encode() for number in range(records)]
    assert took >= SECONDS - 12
    assert throttle_seen(stats) > 0
    set_quota(broker, topic, "consumer_byte_rate", None)


def test_the_answer_comes_at_once_and_then_the_pause(
    broker: Server, topic: str, asker: Asker
) -> None:
    """1. a client with a tiny share of request time asks until it is throttled; 2. that answer
    names the pause and is not late; 3. the next request is handled only after it."""
    asker.ask(METADATA, 9, Struct(topics=[]))
    set_quota(broker, topic, "request_percentage", 0.001)
    pause_ms = 0
    while not pause_ms:
        sent = time.monotonic()
        pause_ms = asker.ask(METADATA, 9, Struct(topics=[])).throttle_time
    answered = time.monotonic()
    if isinstance(broker, RunningBroker):
        page = urlopen(f"http://{broker.admin}/metrics").read().decode()
        (line,) = [
            line
            for line in page.splitlines()
            if line.startswith('odradek_quota_throttled_requests_total{quota="request_percentage"}')
        ]
        assert float(line.split()[-1]) > 0
    assert (answered - sent) * 1000 < pause_ms or pause_ms < 100
    set_quota(broker, topic, "request_percentage", None)
    asker.ask(METADATA, 9, Struct(topics=[]))
    assert (time.monotonic() - answered) * 1000 >= pause_ms - 5


def new_topics(name: str, count: int) -> Struct:
    topics = [
        Struct(name=f"{name}-{number}", num_partitions=5, replication_factor=1, assignments=[],
               configs=[])
        for number in range(count)
    ]  # fmt: skip
    return Struct(topics=topics, timeout=10_000, validate_only=False)


@pytest.mark.parametrize(("version", "strict"), [(6, True), (5, False)])
def test_partitions_that_a_client_may_create(
    broker: Server, topic: str, asker: Asker, version: int, *, strict: bool
) -> None:
    """0.5 per second: 5.5 are in the bucket, so the second topic is one too many."""
    set_quota(broker, topic, "controller_mutation_rate", 0.5)
    answer = asker.ask(CREATE_TOPICS, version, new_topics(topic, 3))
    codes = [result.error_code for result in answer.topics]
    if strict:
        assert codes.count(ErrorCode.throttling_quota_exceeded) == 1
        assert codes.count(ErrorCode.none) == 2
        assert {t.error_message for t in answer.topics} == {None}
        assert 8000 < answer.throttle_time <= 9000  # 4.5 partitions too many
    else:
        assert codes == [ErrorCode.none] * 3
        assert 18_000 < answer.throttle_time <= 19_000
    set_quota(broker, topic, "controller_mutation_rate", None)


def test_new_partitions_and_deletions_count_as_well(
    broker: Server, topic: str, asker: Asker
) -> None:
    """0.5 per second, 5.5 in the bucket: each kind of request is refused in its turn. Each has a
    connection, because the pause of a throttled one would fill the bucket again."""
    onlooker = Asker(broker, "quota-admin")
    bulk = new_topics(f"{topic}-bulk", 1).topics
    onlooker.ask(CREATE_TOPICS, 6, Struct(topics=bulk, timeout=10_000, validate_only=False))
    create_topic(broker, f"{topic}-single")
    wait_until(lambda: not missing(onlooker, f"{topic}-single", f"{topic}-bulk-0"))
    set_quota(broker, topic, "controller_mutation_rate", 0.5)
    more = Struct(topics=[Struct(name=f"{topic}-single", count=9, assignments=None)],
                  timeout=10_000, validate_only=False)  # fmt: skip
    allowed = asker.ask(CREATE_PARTITIONS, 3, more)
    assert allowed.results[0].error_code is ErrorCode.none, "a request may use more than there is"
    more.topics[0].count = 10
    throttled = Asker(broker, topic)
    limited = [throttled.ask(CREATE_PARTITIONS, 3, more)]
    throttled.close()
    gone = Struct(topics=None, topic_names=[f"{topic}-bulk-0"], timeout=10_000)
    another = Asker(broker, topic)
    limited.append(another.ask(DELETE_TOPICS, 5, gone))
    another.close()
    answers = [limited[0].results[0], limited[1].responses[0]]
    assert [one.error_code for one in answers] == [ErrorCode.throttling_quota_exceeded] * 2
    assert all(one.throttle_time > 0 for one in limited)
    set_quota(broker, topic, "controller_mutation_rate", None)
    assert not missing(onlooker, f"{topic}-bulk-0")
    onlooker.close()


def missing(asker: Asker, *topics: str) -> list[str]:
    request = Struct(topics=[Struct(name=one) for one in topics], allow_auto_topic_creation=False)
    answer = asker.ask(METADATA, 4, request)
    return [one.name for one in answer.topics if one.error_code]


def test_other_clients_are_not_affected(broker: Server, topic: str, asker: Asker) -> None:
    set_quota(broker, "somebody-else", "request_percentage", 0.001)
    for _ in range(200):
        assert asker.ask(METADATA, 9, Struct(topics=[])).throttle_time == 0
    set_quota(broker, "somebody-else", "request_percentage", None)


def test_answers_that_have_no_throttle_time(broker: Server, topic: str, asker: Asker) -> None:
    """DescribeQuorum's is one: with any quota in the cluster, the broker must still answer it."""
    set_quota(broker, "somebody-else", "producer_byte_rate", RATE)
    partitions = [Struct(partition_index=0)]
    request = Struct(topics=[Struct(topic_name="__cluster_metadata", partitions=partitions)])
    assert asker.ask(DESCRIBE_QUORUM, 2, request).error_code == ErrorCode.none
    set_quota(broker, "somebody-else", "producer_byte_rate", None)


def test_new_connections_of_an_address(start_broker: StartBroker) -> None:
    """1. an address may open 1 per second, ten at once; 2. the eleventh is closed without service,
    a moment later; 3. the first ones are served on."""
    broker = start_broker()
    admin = Asker(broker, "quota-admin")
    op = Struct(key="connection_creation_rate", value=1.0, remove=False)
    entity = [Struct(entity_type="ip", entity_name="127.0.0.1")]
    request = Struct(entries=[Struct(entity=entity, ops=[op])], validate_only=False)
    assert admin.ask(ALTER_CLIENT_QUOTAS, 1, request).entries[0].error_code is ErrorCode.none
    served: list[Asker] = []
    for _ in range(20):
        asker = Asker(broker, "many")
        try:
            asker.ask(METADATA, 9, Struct(topics=[]))
        except OSError:
            asker.close()
            break
        served.append(asker)
    print(f"{len(served)} connections were served")
    assert 9 <= len(served) <= 12
    served[0].ask(METADATA, 9, Struct(topics=[]))
    for one in (*served, admin):
        one.close()


def test_connections_come_as_fast_as_the_broker_may_accept(start_broker: StartBroker) -> None:
    """What the windows allow at once, then two per second; all are served."""
    broker = start_broker({"max.connection.creation.rate": "2", "quota.window.num": "2"})
    began = time.monotonic()
    askers = [Asker(broker, "many") for _ in range(12)]
    for asker in askers:
        asker.ask(METADATA, 9, Struct(topics=[]))
    took = time.monotonic() - began
    print(f"12 connections in {took:.1f} s")
    assert took >= 2.0
    for asker in askers:
        asker.close()
