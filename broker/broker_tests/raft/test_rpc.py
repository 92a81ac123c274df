"""The quorum's messages through Kafka's encoding and back; control records byte by byte."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from odradek_broker.raft import messages, rpc_requests, rpc_responses
from odradek_broker.raft.control_codec import (
    SnapshotFooter,
    SnapshotHeader,
    build_control_batch,
    read_control_batch,
)
from odradek_broker.raft.formation import Formation
from odradek_broker.raft.log_files import parse_batches
from odradek_broker.raft.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from odradek_broker.raft.values import (
    KRaftVersion,
    LeaderAndEpoch,
    LeaderChange,
    OffsetAndEpoch,
    RaftEndpoint,
    ReplicaKey,
    Voters,
)
from odradek_broker.raft.voters import Voter, VoterSet
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.errors import DecodeError
from odradek_protocol.messages.api import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from odradek_protocol.messages.struct import Struct
from odradek_protocol.records.record_batch import read_header

ONE, TWO = ReplicaKey(1, UUID(int=11)), ReplicaKey(2, UUID(int=22))
HERE = RaftEndpoint("PLAINTEXT", "host-1", 9092)
LEADER = LeaderAndEpoch(1, 7, (HERE,))
NOBODY = LeaderAndEpoch(None, 7)
VOTER = Voter(TWO, (RaftEndpoint("PLAINTEXT", "host-2", 9093),))

REQUESTS: list[tuple[Any, ...]] = [
    (VoteRequest(ONE, TWO, 7, 6, 120, True), rpc_requests.decode_vote),
    (BeginQuorumEpochRequest(TWO, 1, 7, (HERE,)), rpc_requests.decode_begin_quorum_epoch),
    (EndQuorumEpochRequest(1, 7, (TWO, ONE), (HERE,)), rpc_requests.decode_end_quorum_epoch),
    (
        FetchSnapshotRequest(TWO, 7, OffsetAndEpoch(120, 6), 4096, 1000),
        rpc_requests.decode_fetch_snapshot,
    ),
    (AddVoterRequest(VOTER, 5000), rpc_requests.decode_add_raft_voter),
    (RemoveVoterRequest(TWO), rpc_requests.decode_remove_raft_voter),
    (UpdateVoterRequest(7, VOTER), rpc_requests.decode_update_raft_voter),
]


@pytest.mark.parametrize(("request_", "decode"), REQUESTS)
def test_requests(request_: messages.Request, decode: Callable[[Struct], messages.Request]) -> None:
    key, version, message = rpc_requests.encode(request_, "cluster", 1 << 20)
    received = decode_request(key, version, encode_request(key, version, message))
    assert received.cluster_id == "cluster"
    assert decode(received) == request_


@pytest.mark.parametrize("leader", [LEADER, NOBODY])
@pytest.mark.parametrize(
    ("request_", "make"),
    [
        (REQUESTS[0][0], lambda leader: VoteResponse(ErrorCode.none, leader, True)),
        (REQUESTS[1][0], lambda leader: BeginQuorumEpochResponse(ErrorCode.none, leader)),
        (
            REQUESTS[2][0],
            lambda leader: EndQuorumEpochResponse(ErrorCode.fenced_leader_epoch, leader),
        ),
    ],
)
def test_answers(
    request_: messages.Request,
    make: Callable[[LeaderAndEpoch], messages.Response],
    leader: LeaderAndEpoch,
) -> None:
    response = make(leader)
    key, version, _ = rpc_requests.encode(request_, "cluster", 1)
    data = encode_response(key, version, rpc_responses.encode(response))
    received = decode_response(key, version, data)
    assert rpc_responses.decode(request_, received, "PLAINTEXT") == response


def test_snapshot_pieces_and_voter_changes() -> None:
    request = REQUESTS[3][0]
    response = FetchSnapshotResponse(ErrorCode.none, LEADER, OffsetAndEpoch(120, 6), 9, 4, b"abc")
    data = encode_response(59, 1, rpc_responses.encode_fetch_snapshot(response, b"abc"))
    received = decode_response(59, 1, data)
    assert rpc_responses.decode(request, received, "PLAINTEXT") == response
    refusal = VoterChangeResponse(ErrorCode.voter_not_found, "who", LEADER)
    for key, version, asked in ((80, 1, REQUESTS[4][0]), (81, 0, REQUESTS[5][0])):
        data = encode_response(key, version, rpc_responses.encode(refusal))
        answer = rpc_responses.decode(asked, decode_response(key, version, data), "PLAINTEXT")
        assert isinstance(answer, VoterChangeResponse)
        assert (answer.error, answer.message) == (refusal.error, refusal.message)
    data = encode_response(82, 0, rpc_responses.encode_update_voter(refusal))
    answer = rpc_responses.decode(REQUESTS[6][0], decode_response(82, 0, data), "PLAINTEXT")
    assert (answer.error, answer.leader) == (refusal.error, LEADER)


def test_a_top_level_error_is_raised() -> None:
    data = encode_response(52, 2, Struct(error_code=ErrorCode.inconsistent_cluster_id))
    with pytest.raises(KafkaError) as refused:
        rpc_responses.decode(REQUESTS[0][0], decode_response(52, 2, data), "PLAINTEXT")
    assert refused.value.code is ErrorCode.inconsistent_cluster_id


@pytest.mark.parametrize(
    "topics",
    [
        [],
        [Struct(topic_name="orders", partitions=[Struct(partition_index=0)])],
        [Struct(topic_name="__cluster_metadata", partitions=[Struct(partition_index=1)])],
        [Struct(topic_name="__cluster_metadata", partitions=[])],
    ],
)
def test_other_partitions_have_no_quorum(topics: list[Struct]) -> None:
    with pytest.raises(KafkaError) as refused:
        rpc_requests.decode_vote(Struct(topics=topics, voter_id=1))
    assert refused.value.code is ErrorCode.invalid_request


def test_a_fetch_asks_by_topic_id() -> None:
    key, version, message = rpc_requests.encode(FetchRequest(TWO, 7, 120, 6, 100, 500), "c", 1000)
    assert (key, version) == (1, 18)
    (topic,) = decode_request(key, version, encode_request(key, version, message)).topics
    assert topic.topic_id == UUID(int=1)
    (partition,) = topic.partitions
    assert (partition.fetch_offset, partition.last_fetched_epoch) == (120, 6)
    assert (partition.replica_directory_id, partition.high_watermark) == (TWO.directory_id, 100)


# The first batch of a new cluster, as Apache Kafka 4.3 wrote it.
KAFKA_LOG = (
    "0000000000000000000000a2000000010267a353d4002000000002000001a1e545b99f000001a1e545b99fff"
    "ffffffffffffffffffffffffff000000033a0000000800000002260000000000010200000001000200000001"
    "0000001e00000208000000050a000000010000820100000408000000066e00000200000001e22945b8c38544"
    "11baa2a85ec5ca25cb020b434f4e54524f4c4c45520a3132372e302e302e314bc1000000000100000000"
)


class TestControlRecords:
    def test_as_apache_kafka_writes_them(self) -> None:
        batch = bytes.fromhex(KAFKA_LOG)
        header = read_header(batch)
        assert header.size == len(batch)
        records = read_control_batch(batch)
        directory_id = UUID("e22945b8-c385-4411-baa2-a85ec5ca25cb")
        voter = Voter(
            ReplicaKey(1, directory_id), (RaftEndpoint("CONTROLLER", "127.0.0.1", 19393),)
        )
        assert records == (
            LeaderChange(1, (1,), (1,)),
            KRaftVersion(1),
            Voters(VoterSet((voter,))),
        )
        assert build_control_batch(records, 0, 1, header.base_timestamp) == batch

    def test_both_ways(self) -> None:
        records = (SnapshotHeader(5), KRaftVersion(1), Voters(VoterSet((VOTER,))), SnapshotFooter())
        assert read_control_batch(build_control_batch(records, 7, 3, 9)) == records

    def test_in_the_log_they_are_looked_at(self) -> None:
        data = build_control_batch((LeaderChange(1, (1, 2), (1,)), Voters(VoterSet())), 50, 4, 9)
        (batch,) = parse_batches(data + data[:30])
        assert (batch.base_offset, batch.end_offset, batch.epoch) == (50, 52, 4)
        assert batch.control == (LeaderChange(1, (1, 2), (1,)), Voters(VoterSet()))

    def test_damage_is_noticed(self) -> None:
        data = bytearray(build_control_batch((KRaftVersion(1),), 50, 4, 9))
        data[-2] ^= 1
        with pytest.raises(DecodeError, match="CRC"):
            parse_batches(data)


class TestFormation:
    def test_the_lowest_forms_when_all_others_know_nothing(self) -> None:
        formation = Formation(1, frozenset((2, 3)))
        assert not formation.may_form
        formation.heard(2, LeaderAndEpoch(None, 0))
        formation.heard(9, LeaderAndEpoch(None, 0))
        assert not formation.may_form
        assert formation.waits_for.endswith("missing: [3]")
        formation.heard(3, LeaderAndEpoch(None, 0))
        assert formation.may_form

    def test_no_second_cluster_next_to_an_existing_one(self) -> None:
        for leader in (LeaderAndEpoch(None, 1), LeaderAndEpoch(3, 4)):
            formation = Formation(1, frozenset((2, 3)))
            formation.heard(2, LeaderAndEpoch(None, 0))
            formation.heard(3, LeaderAndEpoch(None, 0))
            formation.heard(3, leader)
            assert not formation.may_form

    def test_the_others_wait(self) -> None:
        formation = Formation(2, frozenset((1, 3)))
        for node_id in (1, 3):
            formation.heard(node_id, LeaderAndEpoch(None, 0))
        assert not formation.may_form
        assert "node 1" in formation.waits_for

    def test_alone(self) -> None:
        assert Formation(7, frozenset()).may_form
