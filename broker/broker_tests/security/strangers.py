"""Requests of a client that is not a broker on the inter-broker listener."""

from __future__ import annotations

from uuid import UUID

from odradek_broker.raft import rpc_requests
from odradek_broker.raft.messages import FetchRequest, VoteRequest
from odradek_broker.raft.values import ReplicaKey
from odradek_protocol.client import ApiKey, Struct
from odradek_protocol.ids import ZERO_UUID, BrokerId, LeaderEpoch, Offset
from odradek_testkit.cluster import CLUSTER_ID
from odradek_testkit.stranger import StrangerConnection

MALLORY = ReplicaKey(BrokerId(66), ZERO_UUID)
EPOCH = LeaderEpoch(1_000_000)  # a vote that counted would depose the leader


def attempts(topic: str = "orders") -> dict[str, tuple[ApiKey, int, Struct]]:
    """Valid requests of an unauthorized sender."""
    vote = VoteRequest(
        ReplicaKey(BrokerId(1), ZERO_UUID), MALLORY, EPOCH, EPOCH, Offset(1_000_000), False
    )
    fetch = FetchRequest(MALLORY, LeaderEpoch(1), Offset(0), LeaderEpoch(0), Offset(0), 0)
    quorum = [rpc_requests.encode(one, CLUSTER_ID, 1_000_000) for one in (vote, fetch)]
    registration = Struct(
        broker_id=MALLORY.id,
        cluster_id=CLUSTER_ID,
        incarnation_id=UUID(int=5),
        listeners=[Struct(name="SASL_SSL", host="h", port=9092, security_protocol=3)],
        features=[],
        log_dirs=[UUID(int=900)],
    )
    partition = Struct(partition=0, fetch_offset=0, partition_max_bytes=1000)
    replica = Struct(
        replica_id=2,
        max_wait=0,
        min_bytes=0,
        topics=[Struct(topic=topic, partitions=[partition])],
        forgotten_topics_data=[],
    )
    heartbeat = Struct(broker_id=2, broker_epoch=1, current_metadata_offset=0, want_fence=True)
    return {
        "vote": (ApiKey(quorum[0][0]), *quorum[0][1:]),
        "fetch the metadata log": (ApiKey(quorum[1][0]), *quorum[1][1:]),
        "fetch as a replica": (ApiKey.FETCH, 12, replica),
        "register": (ApiKey.BROKER_REGISTRATION, 4, registration),
        "fence broker 2": (ApiKey.BROKER_HEARTBEAT, 1, heartbeat),
    }


def log_in(raw: StrangerConnection, user: str, password: str) -> None:
    raw.call(ApiKey.SASL_HANDSHAKE, 1, Struct(mechanism="PLAIN"))
    token = Struct(auth_bytes=f"\0{user}\0{password}".encode())
    answer = raw.call(ApiKey.SASL_AUTHENTICATE, 2, token)
    assert answer is not None
    assert answer.error_code == 0


def error_of(answer: Struct) -> int:
    """The error code of the answer as a whole, or of its only partition."""
    if answer.error_code or not getattr(answer, "responses", None):
        return int(answer.error_code)
    return int(answer.responses[0].partitions[0].error_code)
