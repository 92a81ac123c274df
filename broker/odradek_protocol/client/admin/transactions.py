"""Transactions and producers: list, describe, abort those that a coordinator has lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from odradek_protocol.client.errors import BrokerError, ClientError, error_in, raise_error_in
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.leaders import ask_leaders
from odradek_protocol.client.routes import COORDINATOR_MOVED, Coordinator, CoordinatorType
from odradek_protocol.ids import TopicPartition
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct

NOT_OPEN = -1


@dataclass(frozen=True)
class TransactionListing:
    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


@dataclass(frozen=True)
class TransactionDescription:
    transactional_id: str
    coordinator_id: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int  # NOT_OPEN if no transaction is open
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True)
class ActiveProducer:
    """A producer that a partition's log knows."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    start_offset: int  # of its open transaction; NOT_OPEN if it has none here


def list_transactions(client: KafkaClient, states: Iterable[str] = ()) -> list[TransactionListing]:
    """Transactions of all coordinators, by id; only those in `states`, if any are given."""
    found = []
    request = Struct(state_filters=list(states))
    answers = client.each_broker(ApiKey.LIST_TRANSACTIONS, request, repeat=COORDINATOR_MOVED)
    for broker_id, answer in answers.items():
        if isinstance(answer, ClientError):
            raise answer
        raise_error_in(answer)
        found += [
            TransactionListing(
                one.transactional_id, broker_id, one.producer_id, one.transaction_state
            )
            for one in answer.transaction_states
        ]
    return sorted(found, key=lambda one: one.transactional_id)


def describe_transaction(client: KafkaClient, transactional_id: str) -> TransactionDescription:
    route = Coordinator(CoordinatorType.TRANSACTION, transactional_id)
    request = Struct(transactional_ids=[transactional_id])
    (found,) = client.call(route, ApiKey.DESCRIBE_TRANSACTIONS, request).transaction_states
    raise_error_in(found)
    node = client.find_coordinator(CoordinatorType.TRANSACTION, transactional_id)
    return TransactionDescription(
        transactional_id,
        node.broker_id,
        found.transaction_state,
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout,
        found.transaction_start_time,
        tuple(sorted(TopicPartition(t.topic, n) for t in found.topics for n in t.partitions)),
    )


def describe_producers(client: KafkaClient, partition: TopicPartition) -> list[ActiveProducer]:
    """The producers that the partition's leader knows."""

    def build(places: list[TopicPartition]) -> Struct:
        return Struct(topics=[Struct(name=t, partition_indexes=[n]) for t, n in places])

    def read(answer: Struct) -> dict[TopicPartition, list[ActiveProducer] | BrokerError]:
        return {
            TopicPartition(topic.name, p.partition_index): error_in(p)
            or list(map(_producer, p.active_producers))
            for topic in answer.topics
            for p in topic.partitions
        }

    found = ask_leaders(client, ApiKey.DESCRIBE_PRODUCERS, [partition], build, read)[partition]
    if isinstance(found, ClientError):
        raise found
    return found


def abort_in_partition(
    client: KafkaClient, partition: TopicPartition, producer: ActiveProducer
) -> None:
    """Writes an abort marker without the coordinator: for a transaction that it has forgotten."""

    def build(places: list[TopicPartition]) -> Struct:
        marker = Struct(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            coordinator_epoch=max(producer.coordinator_epoch, 0),
            transaction_result=False,
            topics=[Struct(name=t, partition_indexes=[n]) for t, n in places],
        )
        return Struct(markers=[marker])

    def read(answer: Struct) -> dict[TopicPartition, bool | BrokerError]:
        return {
            TopicPartition(topic.name, p.partition_index): error_in(p) or True
            for marker in answer.markers
            for topic in marker.topics
            for p in topic.partitions
        }

    outcome = ask_leaders(client, ApiKey.WRITE_TXN_MARKERS, [partition], build, read)[partition]
    if isinstance(outcome, ClientError):
        raise outcome


def _producer(found: Struct) -> ActiveProducer:
    return ActiveProducer(
        found.producer_id,
        found.producer_epoch,
        found.last_sequence,
        found.last_timestamp,
        found.coordinator_epoch,
        found.current_txn_start_offset,
    )
