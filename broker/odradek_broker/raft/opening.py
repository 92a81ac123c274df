"""Builds a node's quorum service from its settings. Called by broker.py.

Decides how a node with an empty disk starts:

    controller.quorum.voters names it          it forms the cluster together with the other voters
    a bootstrap server is configured           it joins an existing cluster
    neither                                    it is a cluster of its own
"""

from __future__ import annotations

from collections.abc import Callable

from odradek_broker.metadata.publisher import MetadataPublisher
from odradek_broker.raft.config import QuorumConfig, SnapshotPolicy
from odradek_broker.raft.formation import Bootstrap, Formation
from odradek_broker.raft.log_files import LogFiles
from odradek_broker.raft.service import QuorumService
from odradek_broker.raft.values import NodeId, NodeIdentity
from odradek_broker.runtime.ports import Ports
from odradek_broker.runtime.quorum_addresses import Address
from odradek_broker.runtime.settings import Settings

# Bootstrap servers, whose node ids are unknown, get numbers from here downwards.
FIRST_UNKNOWN_NODE: NodeId = -2


def open_quorum(
    settings: Settings,
    files: LogFiles,
    publisher: MetadataPublisher,
    identity: NodeIdentity,
    ports: Ports,
    on_failure: Callable[[Exception], None],
) -> QuorumService:
    return QuorumService(
        files,
        publisher,
        identity,
        quorum_config(settings),
        Bootstrap(bootstrap_addresses(settings), formation_of(settings)),
        ports,
        on_failure,
    )


def quorum_config(settings: Settings) -> QuorumConfig:
    return QuorumConfig(
        election_timeout_ms=settings.int("controller.quorum.election.timeout.ms"),
        election_backoff_max_ms=settings.int("controller.quorum.election.backoff.max.ms"),
        fetch_timeout_ms=settings.int("controller.quorum.fetch.timeout.ms"),
        request_timeout_ms=settings.int("controller.quorum.request.timeout.ms"),
        retry_backoff_ms=settings.int("controller.quorum.retry.backoff.ms"),
        fetch_bytes_max=settings.int("controller.quorum.fetch.max.bytes"),
        snapshot_chunk_bytes=settings.int("controller.quorum.fetch.snapshot.max.bytes"),
        snapshots=SnapshotPolicy(
            settings.int("metadata.log.max.record.bytes.between.snapshots"),
            settings.int("metadata.log.max.snapshot.interval.ms"),
        ),
    )


def bootstrap_addresses(settings: Settings) -> dict[NodeId, Address]:
    addresses = dict(settings.quorum_voters)
    addresses.pop(settings.node_id, None)
    for number, address in enumerate(settings.quorum_bootstrap_servers):
        addresses[FIRST_UNKNOWN_NODE - number] = address
    return addresses


def formation_of(settings: Settings) -> Formation | None:
    node_id = settings.node_id
    voters = settings.quorum_voters
    if node_id in voters:
        return Formation(node_id, frozenset(voters) - {node_id})
    if voters or settings.quorum_bootstrap_servers:
        return None
    return Formation(node_id, frozenset())
