"""odradek.testing.Kafka: topics, records, groups and leaders, on brokers of our own."""

import asyncio
import unittest
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer

from odradek.testing import Kafka, Record, UnsupportedError
from odradek_protocol.client import BrokerError
from odradek_protocol.client.partitioner import murmur2


def test_records_come_back_as_they_were_produced(kafka: Kafka) -> None:
    kafka.topics.create("orders", partitions=3)
    sent = [
        Record("a", key="k", headers={"trace": "1"}, timestamp_ms=1_000),
        Record(b"\xff", key=b"\x00", partition=2, timestamp_ms=2_000),
        Record(None, key="gone", timestamp_ms=3_000),
    ]
    produced = kafka.produce("orders", *sent)
    found = kafka.read("orders")
    assert found == sent
    assert [(r.partition, r.offset, r.timestamp_ms) for r in found] == [
        (r.partition, r.offset, r.timestamp_ms) for r in produced
    ]
    assert found[1].partition == 2


def test_a_real_client_agrees(kafka: Kafka) -> None:
    """librdkafka with the Java partitioner puts keys where `produce` puts them."""
    kafka.topics.create("orders", partitions=7)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": "murmur2"})
    for number in range(50):
        producer.produce("orders", f"v{number}".encode(), f"key-{number}".encode())
    assert producer.flush(30) == 0
    theirs = {record.key: record.partition for record in kafka.read("orders", 50)}
    ours = kafka.produce("orders", *(Record("x", key=f"key-{n}") for n in range(50)))
    assert {record.key: record.partition for record in ours} == theirs


def test_murmur2_is_that_of_the_java_client() -> None:
    """The values of Kafka's own UtilsTest, as unsigned numbers."""
    expected = {
        b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829, b"abc": 479470107,
    }  # fmt: skip
    assert {data: murmur2(data) for data in expected} == {
        data: value % (1 << 32) for data, value in expected.items()
    }


def test_aborted_records_are_not_read(kafka: Kafka) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "t"})
    kafka.topics.create("orders", partitions=1)
    producer.init_transactions(30)
    for values, commit in (("ab", True), ("cd", False), ("ef", True)):
        producer.begin_transaction()
        for value in values:
            producer.produce("orders", value)
        producer.flush(30)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    assert kafka.read("orders", 4) == ["a", "b", "e", "f"]


def test_topics(kafka: Kafka) -> None:
    kafka.topics.create("a", partitions=2, config={"retention.ms": "1000"})
    kafka.produce("b", "x")  # creates it
    assert kafka.topics.list() == ["a", "b"]
    assert kafka.topics.partitions("a") == 2
    kafka.topics.empty("b")
    assert kafka.read("b") == []
    assert kafka.produce("b", "y")[0].offset == 1, "offsets go on"
    with pytest.raises(BrokerError, match=r"create topic 'a': .*TOPIC_ALREADY_EXISTS"):
        kafka.topics.create("a")
    kafka.topics.delete("a", "b")
    assert kafka.topics.list() == []
    with pytest.raises(BrokerError, match="there is no topic 'a'"):
        kafka.read("a")


def test_messages_of_assertions(kafka: Kafka) -> None:
    kafka.topics.create("orders", partitions=1)
    kafka.produce("orders", "a", Record("c", key="k"))
    with pytest.raises(AssertionError) as raised:
        kafka.read("orders", 3, timeout_s=0.05)
    assert "expected 3 records in 'orders', found 2 after 0.05 s" in str(raised.value)
    assert "Record('c', key='k') (orders-0@1)" in str(raised.value)
    with pytest.raises(AssertionError) as raised:
        kafka.assert_records("orders", ["a", "b"])
    text = str(raised.value)
    assert "missing: Record('b')" in text
    assert "not expected: Record('c', key='k') (orders-0@1)" in text
    assert "-Record('b')\n+Record('c', key='k')" in text
    with pytest.raises(AssertionError, match="the same records, but in another order"):
        kafka.assert_records("orders", ["c", "a"])
    kafka.assert_records("orders", ["c", "a"], ordered=False)
    kafka.assert_records("orders", ["a", Record("c", key="k")])


def test_wait_for_a_group(kafka: Kafka) -> None:
    kafka.topics.create("orders", partitions=2)
    kafka.produce("orders", "a", "b", "c")
    with pytest.raises(AssertionError, match=r"there is no such group \(groups: none\)"):
        kafka.wait_for("billing", timeout_s=0.05)
    consumer = _consumer(kafka, "billing")
    try:
        taken = [_next(consumer) for _ in range(3)]
        with pytest.raises(AssertionError, match="group 'billing' is 3 records behind") as raised:
            kafka.wait_for("billing", timeout_s=0.05)
        assert "orders-0: " in str(raised.value)
        consumer.commit(asynchronous=False)
        kafka.wait_for("billing")
        assert sorted(taken) == [b"a", b"b", b"c"]
    finally:
        consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_expired_member_leaves_its_group(kafka: Kafka, protocol: str) -> None:
    kafka.produce("orders", "a")
    group = f"g-{uuid4()}"
    consumer = _consumer(kafka, group, protocol)
    try:
        assert _next(consumer) == b"a"
        (member,) = kafka.groups.describe(group).members
        kafka.expire_member(group, member.member_id)
        assert member.member_id not in {m.member_id for m in kafka.groups.describe(group).members}
        with pytest.raises(AssertionError, match="has no member nobody"):
            kafka.expire_member(group, "nobody")
    finally:
        consumer.close()


def test_asyncio() -> None:
    async def story() -> None:
        async with Kafka() as kafka:
            read = asyncio.create_task(kafka.aio.read("orders", 2))
            await asyncio.sleep(0)
            await kafka.aio.produce("orders", "a", "b", partition=0)
            assert await read == ["a", "b"]

    asyncio.run(story())


class TestInUnittest(unittest.TestCase):
    """As docs/how-to/testing.md shows it."""

    kafka: Kafka

    @classmethod
    def setUpClass(cls) -> None:
        cls.kafka = cls.enterClassContext(Kafka())

    def setUp(self) -> None:
        assert self.kafka.reset()

    def test_it_needs_no_pytest(self) -> None:
        self.kafka.produce("orders", "a")
        self.assertEqual(self.kafka.read("orders").texts, ["a"])  # noqa: PT009 - as users of it write

    def test_it_is_empty_again(self) -> None:
        self.assertEqual(self.kafka.topics.list(), [])  # noqa: PT009


def test_what_it_refuses() -> None:
    with pytest.raises(ValueError, match="engine 'redpanda': expected one of odradek, apache"):
        Kafka(engine="redpanda")
    with pytest.raises(ValueError, match="brokers=0"):
        Kafka(0)
    with pytest.raises(UnsupportedError, match='only with engine="odradek"'):
        Kafka(tls=True, engine="apache")
    with pytest.raises(ValueError, match="sasl='MD5': expected one of PLAIN"):
        Kafka(sasl="MD5")
    with pytest.raises(ValueError, match="acls=True needs users"):
        Kafka(acls=True)
    with pytest.raises(AssertionError, match="not running"):
        _ = Kafka().client


def _consumer(kafka: Kafka, group: str, protocol: str = "classic") -> Consumer:
    consumer = Consumer({
        "bootstrap.servers": kafka.bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    })  # fmt: skip
    consumer.subscribe(["orders"])
    return consumer


def _next(consumer: Consumer) -> bytes:
    message = consumer.poll(30)
    assert message is not None
    assert message.error() is None, message.error()
    value = message.value()
    assert value is not None
    return value
