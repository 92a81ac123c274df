"""Transactions as clients see them: librdkafka, kafka-python, aiokafka, and the bare protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PyTopicPartition

from broker_tests.clients.txn_protocol import TxnProducer, call
from broker_tests.conftest import StartBroker
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct
from odradek_testkit.clients import (
    DEADLINE_S,
    consume,
    consumer_of,
    create_topic,
    produce,
    value_of,
    wait_until,
)
from odradek_testkit.connecting import for_librdkafka, for_python
from odradek_testkit.engines import Server
from odradek_testkit.raw_requests import RawConnection, connect

FIND_COORDINATOR, DESCRIBE_TRANSACTIONS = 10, 65


def transactional(broker: Server, transactional_id: str, **settings: Any) -> Producer:
    producer = Producer(
        {
            **for_librdkafka(broker),
            "transactional.id": transactional_id,
            "linger.ms": 0,
            **settings,
        }
    )
    producer.init_transactions(DEADLINE_S)
    return producer


def committed(broker: Server, topic: str, count: int, partition: int = 0) -> list[bytes]:
    """The records of a READ_COMMITTED consumer, up to a final record outside of transactions."""
    produce(broker, topic, [b"-"]) if partition == 0 else None
    found: list[bytes] = []
    with consumer_of(broker, isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while len(found) < count + (partition == 0):
            message = consumer.poll(DEADLINE_S)
            assert message is not None, found
            assert message.error() is None
            found.append(value_of(message))
    return [value for value in found if value != b"-"]


def stable_end(broker: Server, topic: str) -> int:
    """The last stable offset of partition 0."""
    with consumer_of(broker, isolation_level="read_committed") as consumer:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), DEADLINE_S)[1])


def test_only_what_is_committed_is_read(broker: Server, topic: str) -> None:
    """Two partitions; every second transaction is aborted after its records were written."""
    create_topic(broker, topic, partitions=2)
    producer = transactional(broker, f"id-{topic}")
    for number in range(10):
        producer.begin_transaction()
        for partition in range(2):
            producer.produce(topic, b"%d" % number, partition=partition)
        assert producer.flush(DEADLINE_S) == 0
        if number % 2:
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)
    even = [b"0", b"2", b"4", b"6", b"8"]
    assert committed(broker, topic, 5) == even
    assert committed(broker, topic, 5, partition=1) == even
    everything = consume(broker, topic, 10, partition=1, isolation_level="read_uncommitted")
    assert [message.value() for message in everything] == [b"%d" % n for n in range(10)]


def test_an_open_transaction_holds_readers_back_and_a_timeout_ends_it(
    start_broker: StartBroker, topic: str
) -> None:
    """
    1. A transaction is open at offset 0, a plain record follows it: nothing is stable.
    2. The producer is silent past its timeout: aborted, so the plain record is read.
    3. The producer comes back: it is fenced.
    """
    broker = start_broker({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"})
    create_topic(broker, topic)
    producer = transactional(broker, f"id-{topic}", **{"transaction.timeout.ms": 1500})
    producer.begin_transaction()
    producer.produce(topic, b"lost", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    produce(broker, topic, [b"plain"])
    assert stable_end(broker, topic) == 0
    wait_until(lambda: stable_end(broker, topic) == 3)
    (message,) = consume(broker, topic, 1, isolation_level="read_committed")
    assert message.value() == b"plain"
    with pytest.raises(KafkaException):
        producer.commit_transaction(DEADLINE_S)


def test_a_new_instance_fences_the_old_one(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    zombie = transactional(broker, f"id-{topic}")
    zombie.begin_transaction()
    zombie.produce(topic, b"zombie", partition=0)
    assert zombie.flush(DEADLINE_S) == 0
    successor = transactional(broker, f"id-{topic}")
    successor.begin_transaction()
    successor.produce(topic, b"successor", partition=0)
    successor.commit_transaction(DEADLINE_S)
    with pytest.raises(KafkaException) as caught:
        zombie.commit_transaction(DEADLINE_S)
    assert caught.value.args[0].fatal()
    assert committed(broker, topic, 1) == [b"successor"]


def test_kafka_python(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    producer = KafkaProducer(**for_python(broker), transactional_id=f"id-{topic}")
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        producer.send(topic, b"%d" % number, partition=0).get(DEADLINE_S)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()
    consumer = KafkaConsumer(
        **for_python(broker),
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        consumer_timeout_ms=DEADLINE_S * 1000,
    )
    consumer.assign([PyTopicPartition(topic, 0)])
    assert [next(consumer).value for _ in range(2)] == [b"0", b"2"]
    consumer.close()


def test_aiokafka(broker: Server, topic: str) -> None:
    create_topic(broker, topic)

    async def story() -> None:
        producer = AIOKafkaProducer(**for_python(broker), transactional_id=f"id-{topic}")
        await producer.start()
        for number in range(4):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"%d" % number, partition=0)
            await (producer.abort_transaction() if number % 2 else producer.commit_transaction())
        await producer.stop()
        consumer = AIOKafkaConsumer(
            **for_python(broker),
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        await consumer.start()
        consumer.assign([AioTopicPartition(topic, 0)])
        found = [(await consumer.getone()).value for _ in range(2)]
        await consumer.stop()
        assert found == [b"0", b"2"]

    asyncio.run(asyncio.wait_for(story(), DEADLINE_S))


def ready(connection: RawConnection, transactional_id: str) -> TxnProducer:
    """A producer with an id, as soon as there is a coordinator."""
    producer = TxnProducer(connection, transactional_id)

    def found() -> bool:
        answer = call(
            connection, FIND_COORDINATOR, 6, key_type=1, coordinator_keys=[transactional_id]
        )
        return not answer.coordinators[0].error_code

    wait_until(found)
    wait_until(lambda: producer.init() is ErrorCode.none)
    return producer


def state_of(producer: TxnProducer) -> str:
    asked = [producer.transactional_id]
    answer = call(producer.connection, DESCRIBE_TRANSACTIONS, 0, transactional_ids=asked)
    return str(answer.transaction_states[0].transaction_state)


def until_not(code: ErrorCode, ask: Callable[[], ErrorCode]) -> ErrorCode:
    """Repeats a request until its answer changes: markers may not be written yet."""
    answers: list[ErrorCode] = []

    def another() -> bool:
        answers.append(ask())
        return answers[-1] is not code

    wait_until(another)
    return answers[-1]


def test_a_delayed_end_txn_does_not_end_the_next_transaction(broker: Server, topic: str) -> None:
    """
    1. Transaction A (epoch e) is committed; the client does not get the answer.
    2. It sends the request again, gets epoch e + 1, and begins transaction B with it.
    3. The abort of A, which a proxy had delayed, arrives: B stays open and is committed.
    """
    create_topic(broker, topic)
    with connect(broker) as connection:
        producer = ready(connection, f"id-{topic}")
        old = producer.producer_id, producer.epoch
        assert producer.send(topic, "a") is ErrorCode.none
        first = producer.end_as(*old, commit=True)
        assert not first.error_code
        assert producer.end(commit=True) in (ErrorCode.none, ErrorCode.concurrent_transactions)
        wait_until(lambda: not producer.end_as(*old, commit=True).error_code)
        again = producer.end_as(*old, commit=True)
        assert (again.producer_id, again.producer_epoch) == (old[0], old[1] + 1)
        producer.producer_id, producer.epoch = again.producer_id, again.producer_epoch
        producer.sequences.clear()
        busy = ErrorCode.concurrent_transactions
        assert until_not(busy, lambda: producer.send(topic, "b")) is ErrorCode.none
        late = producer.end_as(*old, commit=False)
        assert late.error_code == ErrorCode.producer_fenced
        assert producer.send(topic, "b2") is ErrorCode.none
        assert producer.end(commit=True) is ErrorCode.none
    assert committed(broker, topic, 3) == [b"a", b"b", b"b2"]


def test_a_batch_outside_of_a_transaction_is_refused(broker: Server, topic: str) -> None:
    """It would open a transaction that is never ended: a hanging transaction, as before KIP-890."""
    create_topic(broker, topic, partitions=2)
    with connect(broker) as connection:
        producer = ready(connection, f"id-{topic}")
        assert producer.send(topic, "x", version=10) is ErrorCode.invalid_txn_state
        assert producer.send(topic, "x", version=11) is ErrorCode.transaction_abortable
        assert producer.add(topic) is ErrorCode.none
        assert producer.send(topic, "x", version=10) is ErrorCode.none
        assert producer.send(topic, "x", version=10, partition=1) is ErrorCode.invalid_txn_state
        assert producer.end(commit=True, version=3) is ErrorCode.none
        wait_until(lambda: state_of(producer) == "CompleteCommit")
        assert producer.send(topic, "late", version=10) is ErrorCode.invalid_txn_state
    assert committed(broker, topic, 1) == [b"x"]


def test_bad_input(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    with connect(broker) as connection:
        producer = ready(connection, f"id-{topic}")
        none, mine = TxnProducer(connection, ""), (producer.producer_id, producer.epoch)
        assert none.init() is ErrorCode.invalid_request
        assert producer.end_as(mine[0] + 1, mine[1], commit=True).error_code == (
            ErrorCode.invalid_producer_id_mapping
        )
        assert producer.end_as(*mine, commit=True).error_code == ErrorCode.invalid_txn_state
        assert producer.end_as(mine[0], mine[1] + 7, commit=True).error_code == (
            ErrorCode.producer_fenced
        )
        assert producer.add("no-such-topic") is ErrorCode.unknown_topic_or_partition
        for timeout_ms in (0, 900_001):
            assert TxnProducer(connection, "t").init(timeout_ms=timeout_ms) is (
                ErrorCode.invalid_transaction_timeout
            )
        answer = call(
            connection,
            24,
            4,
            transactions=[
                Struct(
                    transactional_id=producer.transactional_id,
                    producer_id=mine[0],
                    producer_epoch=mine[1],
                    verify_only=True,
                    topics=[Struct(name=topic, partitions=[0])],
                )
            ],
        )
        (result,) = answer.results_by_transaction[0].topic_results[0].results_by_partition
        assert result.partition_error_code == ErrorCode.transaction_abortable

        refused = ErrorCode.invalid_regular_expression
        for pattern, code in (("(a+)+b", ErrorCode.none), ("[", refused)):
            answer = call(
                connection,
                66,
                2,
                state_filters=[],
                producer_id_filters=[],
                duration_filter=-1,
                transactional_id_pattern=pattern,
            )
            assert answer.error_code == code
