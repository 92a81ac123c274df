"""The metadata quorum: its state, and voters that are added and removed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from odradek_protocol.client.admin.topics import timeout_ms
from odradek_protocol.client.errors import raise_error_in
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.routes import Controller
from odradek_protocol.client.settings import Address
from odradek_protocol.ids import METADATA_TOPIC
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct


@dataclass(frozen=True)
class QuorumReplica:
    node_id: int
    directory_id: UUID | None
    log_end_offset: int  # -1: not known
    last_caught_up_ms: int  # -1: never, or not known


@dataclass(frozen=True)
class Quorum:
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]  # by their ids, like the observers
    observers: tuple[QuorumReplica, ...]
    listener_names: tuple[str, ...]  # under which voters are reached; () before Kafka 3.9
    listeners_of: Mapping[int, frozenset[str]] = field(default_factory=dict)  # of each voter


def describe_quorum(client: KafkaClient) -> Quorum:
    topic = Struct(topic_name=METADATA_TOPIC, partitions=[Struct(partition_index=0)])
    answer = client.call(Controller(), ApiKey.DESCRIBE_QUORUM, Struct(topics=[topic]))
    raise_error_in(answer)
    state = answer.topics[0].partitions[0]
    raise_error_in(state)
    names = dict.fromkeys(one.name for node in answer.nodes for one in node.listeners)
    return Quorum(
        state.leader_id,
        state.leader_epoch,
        state.high_watermark,
        _replicas(state.current_voters),
        _replicas(state.observers),
        tuple(names),
        {node.node_id: frozenset(one.name for one in node.listeners) for node in answer.nodes},
    )


def add_voter(
    client: KafkaClient, replica: QuorumReplica, listener_name: str, address: Address
) -> None:
    """An observer becomes a voter, which the others reach at this address."""
    request = Struct(
        cluster_id=None,
        timeout=timeout_ms(client),
        voter_id=replica.node_id,
        voter_directory_id=replica.directory_id,
        listeners=[Struct(name=listener_name, host=address.host, port=address.port)],
    )
    raise_error_in(client.call(Controller(), ApiKey.ADD_RAFT_VOTER, request))


def remove_voter(client: KafkaClient, replica: QuorumReplica) -> None:
    request = Struct(
        cluster_id=None, voter_id=replica.node_id, voter_directory_id=replica.directory_id
    )
    raise_error_in(client.call(Controller(), ApiKey.REMOVE_RAFT_VOTER, request))


def _replicas(found: list[Struct]) -> tuple[QuorumReplica, ...]:
    replicas = [
        QuorumReplica(
            one.replica_id,
            one.replica_directory_id,
            one.log_end_offset,
            one.last_caught_up_timestamp,
        )
        for one in found
    ]
    return tuple(sorted(replicas, key=lambda replica: replica.node_id))
