"""Metadata records as bytes: what is written is read back, and Apache Kafka reads the same."""

import contextlib
import dataclasses
import json
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_tests.broker_ids import ids
from odradek_broker.metadata.record_codec import _TYPES, decode_record, encode_record
from odradek_broker.metadata.records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    Endpoint,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntityData,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    ResourceType,
    SupportedFeature,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from odradek_broker.metadata.scram import ScramMechanism
from odradek_protocol.acl_codes import AclOperation, AclPermission, AclResource, PatternType
from odradek_protocol.errors import DecodeError
from odradek_protocol.ids import BrokerId
from odradek_protocol.records.records import Record, build_batch
from odradek_testkit import engines as harness

ID = UUID("12345678-9abc-4def-8123-456789abcdef")
OTHER = UUID("00000000-0000-4000-8000-000000000001")

EXAMPLES: list[MetadataRecord] = [
    RegisterBrokerRecord(
        broker_id=BrokerId(7),
        incarnation_id=ID,
        broker_epoch=42,
        end_points=(Endpoint("INSIDE", "broker-7", 65535, 0), Endpoint("B", "::1", 9094, 1)),
        features=(SupportedFeature("metadata.version", 7, 30),),
        rack="zone-a",
        fenced=True,
        in_controlled_shutdown=False,
        log_dirs=(ID, OTHER),
    ),
    UnregisterBrokerRecord(BrokerId(7), 42),
    BrokerRegistrationChangeRecord(BrokerId(7), 42, fenced=-1),
    BrokerRegistrationChangeRecord(BrokerId(7), 42, in_controlled_shutdown=1, log_dirs=(ID,)),
    TopicRecord("orders", ID),
    PartitionRecord(3, ID, ids(1, 2), ids(1), (), ids(2), BrokerId(1), 5, 6, (ID, OTHER)),
    PartitionRecord(
        3, ID, ids(1), ids(1), (), (), BrokerId(1), 5, 6, (ID,), leader_recovery_state=1
    ),
    PartitionChangeRecord(3, ID, isr=ids(1, 2), leader=BrokerId(2)),
    PartitionChangeRecord(3, ID, leader=BrokerId(-1), isr=()),
    PartitionChangeRecord(
        3, ID, replicas=ids(1), removing_replicas=ids(2), adding_replicas=(), directories=(OTHER,)
    ),
    PartitionRecord(
        3,
        ID,
        ids(1, 2, 3),
        ids(1),
        (),
        (),
        BrokerId(1),
        5,
        6,
        (ID, OTHER, ID),
        eligible_leader_replicas=ids(2),
        last_known_elr=ids(3),
    ),
    PartitionChangeRecord(3, ID, eligible_leader_replicas=(), last_known_elr=ids(2)),
    RemoveTopicRecord(ID),
    ConfigRecord(ResourceType.TOPIC, "orders", "retention.ms", "5"),
    ConfigRecord(ResourceType.BROKER, "", "log.retention.ms", None),
    FeatureLevelRecord("metadata.version", 30),
    ProducerIdsRecord(BrokerId(7), 42, 1000),
    AccessControlEntryRecord(
        ID,
        AclResource.TRANSACTIONAL_ID,
        "orders-",
        PatternType.PREFIXED,
        "User:alice",
        "*",
        AclOperation.TWO_PHASE_COMMIT,
        AclPermission.ALLOW,
    ),
    RemoveAccessControlEntryRecord(ID),
    NoOpRecord(),
    UserScramCredentialRecord(
        "alice", ScramMechanism.SCRAM_SHA_512, b"salt", b"stored", b"server", 8192
    ),
    RemoveUserScramCredentialRecord("alice", ScramMechanism.SCRAM_SHA_256),
    ClientQuotaRecord(
        (QuotaEntityData("user", None), QuotaEntityData("client-id", "reports")),
        "producer_byte_rate",
        1024.5,
        remove=False,
    ),
    ClientQuotaRecord((QuotaEntityData("ip", "10.0.0.7"),), "x", 0.0, remove=True),
    DelegationTokenRecord(
        "User:alice", "User:root", ("User:bob", "User:carol"), 10, 30, 20, "aBcDeFgHiJkLmNoPqRsTuV"
    ),
    RemoveDelegationTokenRecord("aBcDeFgHiJkLmNoPqRsTuV"),
]


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: type(record).__name__)
def test_read_back(record: MetadataRecord) -> None:
    assert decode_record(encode_record(record)) == record


def test_every_type_has_an_example() -> None:
    assert {type(record) for record in EXAMPLES} == {type_.layout.cls for type_ in _TYPES}


def test_layouts_have_exactly_the_fields_of_their_records() -> None:
    for type_ in _TYPES:
        laid_out = [f.name for f in (*type_.layout.fields, *type_.layout.tagged)]
        assert sorted(laid_out) == sorted(f.name for f in dataclasses.fields(type_.layout.cls))


def test_the_example_of_the_docstring() -> None:
    record = TopicRecord("a", UUID(int=7))
    assert encode_record(record).hex(" ") == "01 02 00 02 61" + " 00" * 15 + " 07 00"


def test_a_version_that_lacks_only_tagged_fields_is_read() -> None:
    """Logs from before eligible leader replicas have version 1 of the partition records."""
    record = PartitionChangeRecord(3, ID, isr=ids(1, 2), leader=BrokerId(2))
    data = encode_record(record)
    assert data[:3] == b"\x01\x05\x02"
    assert decode_record(b"\x01\x05\x01" + data[3:]) == record
    with pytest.raises(DecodeError):
        decode_record(b"\x01\x05\x03" + data[3:])


def test_unknown_tagged_fields_are_passed_over() -> None:
    data = encode_record(TopicRecord("a", UUID(int=7)))
    assert decode_record(data[:-1] + b"\x01\x09\x02ab") == TopicRecord("a", UUID(int=7))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x02\x02\x00",  # frame version
        b"\x01\x63\x00",  # type
        b"\x01\x02\x09",  # version of the type
        b"\x01\x02\x00\xff\xff\xff\xff\x0fx",  # a string of 4 GB
        b"\x01\x03\x01\x00\x00\x00\x00" + bytes(16) + b"\xff\xff\xff\xff\x0f",  # an array
        encode_record(TopicRecord("a", ID)) + b"x",
    ],
)
def test_invalid_bytes_are_a_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_record(data)


@given(st.sampled_from(EXAMPLES), st.data())
def test_damaged_bytes_are_a_record_or_a_decode_error(
    record: MetadataRecord, data: st.DataObject
) -> None:
    damaged = bytearray(encode_record(record))
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    for candidate in (bytes(damaged), bytes(damaged[:cut])):
        with contextlib.suppress(DecodeError):
            decode_record(candidate)


@pytest.mark.java
def test_apache_kafka_reads_all_of_them(tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000000.log"
    values = [encode_record(record) for record in EXAMPLES]
    batch = build_batch([Record(i, 0, None, value) for i, value in enumerate(values)])
    log.write_bytes(batch)
    out = harness.kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", str(log)
    ).stdout
    payloads = [
        json.loads(line.split("payload: ")[1]) for line in out.splitlines() if "payload: " in line
    ]
    assert [_type_name(record) for record in EXAMPLES] == [p["type"] for p in payloads]
    assert payloads[0]["data"]["endPoints"][0] == {
        "name": "INSIDE",
        "host": "broker-7",
        "port": 65535,
        "securityProtocol": 0,
    }
    assert len(payloads[0]["data"]["logDirs"]) == 2
    assert payloads[5]["data"]["addingReplicas"] == [2]
    assert payloads[6]["data"]["leaderRecoveryState"] == 1
    assert payloads[7]["data"] == {
        "partitionId": 3,
        "topicId": payloads[7]["data"]["topicId"],
        "isr": [1, 2],
        "leader": 2,
    }
    assert payloads[10]["data"]["eligibleLeaderReplicas"] == [2]
    assert payloads[10]["data"]["lastKnownElr"] == [3]
    assert payloads[11]["data"]["eligibleLeaderReplicas"] == []
    assert payloads[14]["data"]["value"] is None


def _type_name(record: MetadataRecord) -> str:
    name = type(record).__name__
    return "".join(f"_{c}" if c.isupper() else c.upper() for c in name).lstrip("_")
