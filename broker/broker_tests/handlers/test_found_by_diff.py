"""Differences that `make protocol-diff` found: the answers are those of Apache Kafka 4.3.1."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from broker_tests.handlers.parity_script import Step, create, topic
from broker_tests.handlers.test_admin_parity import Client, client
from odradek_protocol.messages.struct import Struct
from odradek_testkit.engines import RunningBroker
from odradek_testkit.raw_requests import batch

PRODUCE, FETCH, OFFSET_FETCH, FIND, DELETE_RECORDS, ADD_PARTITIONS = 0, 1, 9, 10, 21, 24
DESCRIBE_GROUPS, HEARTBEAT, ADD_VOTER, REMOVE_VOTER = 69, 68, 80, 81
INIT_PRODUCER_ID, TXN_OFFSET_COMMIT = 22, 28
ALTER_LOG_DIRS, DESCRIBE_LOG_DIRS = 34, 35
METADATA, CLASSIC_GROUPS, DESCRIBE_CONFIGS, QUORUM, PRODUCERS = 3, 15, 32, 55, 61
NOT_SAID = -(2**31)
NOBODY = UUID(int=7)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with (
        RunningBroker(directory=tmp_path_factory.mktemp("diff")) as server,
        client(server) as one,
    ):
        one.ask(create("a topic", topic("a", 1)))
        ask(one, FIND, 4, coordinator_keys=["g"], key_type=0)
        until_none(one, OFFSET_FETCH, 5, group_id="g", topics=[])
        yield one


def ask(asked: Client, api_key: int, version: int, **fields: Any) -> Any:
    return asked.ask(Step("", api_key, version, Struct(**fields)))


def until_none(asked: Client, api_key: int, version: int, **fields: Any) -> Any:
    """Asks until there is no error: a coordinator needs a moment."""
    give_up = time.monotonic() + 30
    while (found := ask(asked, api_key, version, **fields))["error_code"]:
        assert time.monotonic() < give_up, found
        time.sleep(0.05)
    return found


def test_find_coordinator_for_one_key_names_the_error(asked: Any) -> None:
    """v1–3 have the error's name or sentence; from v4 on it is empty."""
    assert ask(asked, FIND, 3, key="g", key_type=0)["error_message"] == "NONE"
    refused = ask(asked, FIND, 3, key="g", key_type=2)
    assert refused["error_code"] == 42
    assert refused["error_message"].startswith("This most likely occurs")
    (found,) = ask(asked, FIND, 4, coordinator_keys=["g"], key_type=0)["coordinators"]
    assert found["error_message"] == ""


def test_a_group_that_is_not_there(asked: Any) -> None:
    described = ask(asked, DESCRIBE_GROUPS, 1, group_ids=["x"], include_authorized_operations=True)
    assert described["groups"][0]["authorized_operations"] == NOT_SAID
    beat = ask(asked, HEARTBEAT, 1, group_id="x", member_id="m", member_epoch=3)
    assert (beat["error_code"], beat["error_message"]) == (69, "Consumer group x not found.")
    wanted = Struct(
        group_id="x",
        member_id="m",
        member_epoch=3,
        topics=[Struct(name="a", partition_indexes=[0])],
    )
    (group,) = ask(asked, OFFSET_FETCH, 9, groups=[wanted], require_stable=True)["groups"]
    assert group["error_code"] == 0
    assert group["topics"][0]["partitions"][0]["committed_offset"] == -1
    (classic,) = ask(asked, CLASSIC_GROUPS, 6, groups=["x"], include_authorized_operations=True)[
        "groups"
    ]
    assert (classic["error_code"], classic["authorized_operations"]) == (69, NOT_SAID)


def test_a_topic_without_a_name_has_no_offsets(asked: Any) -> None:
    """It used to break the answer for the other topics of the request."""
    topics = [Struct(name=name, partition_indexes=[0]) for name in ("", "a")]
    found = ask(asked, OFFSET_FETCH, 5, group_id="x", topics=topics)
    assert found["error_code"] == 0
    assert [t["partitions"][0]["committed_offset"] for t in found["topics"]] == [-1, -1]


def test_describe_quorum_of_other_partitions_is_refused_as_a_whole(asked: Any) -> None:
    def wanted(*partitions: int) -> list[Struct]:
        asked_for = [Struct(partition_index=p) for p in partitions]
        return [Struct(topic_name="__cluster_metadata", partitions=asked_for)]

    one = ask(asked, QUORUM, 0, topics=wanted(0))["topics"][0]["partitions"]
    two = ask(asked, QUORUM, 0, topics=wanted(0, 1))["topics"][0]["partitions"]
    assert [p["error_code"] for p in (*one, *two)] == [0, 3, 3]


def test_topics_by_an_unknown_id_have_no_operations(asked: Any) -> None:
    (found,) = ask(
        asked, METADATA, 12, topics=[Struct(topic_id=NOBODY, name=None)],
        include_topic_authorized_operations=True,
    )["topics"]  # fmt: skip
    assert (found["error_code"], found["topic_authorized_operations"]) == (100, NOT_SAID)


def test_names_that_are_none(asked: Any) -> None:
    wanted = [Struct(name="a/b", partition_indexes=[0])]
    (found,) = ask(asked, PRODUCERS, 0, topics=wanted)["topics"]
    assert found["partitions"][0]["error_code"] == 17
    resource = Struct(resource_type=8, resource_name="x", configuration_keys=None)
    (refused,) = ask(asked, DESCRIBE_CONFIGS, 4, resources=[resource])["results"]
    assert refused["error_message"] == "Broker id must be an integer, but it is: x"


def test_unknown_partitions_of_a_transaction_come_first(asked: Any) -> None:
    transaction = Struct(
        transactional_id="t",
        producer_id=1,
        producer_epoch=0,
        verify_only=False,
        topics=[Struct(name="a", partitions=[0, 7])],
    )
    answer = ask(asked, ADD_PARTITIONS, 5, transactions=[transaction])
    results = answer["results_by_transaction"][0]["topic_results"][0]["results_by_partition"]
    codes = {one["partition_index"]: one["partition_error_code"] for one in results}
    assert codes == {0: 55, 7: 3}


def test_clients_have_no_transactions_in_internal_topics(asked: Any) -> None:
    topics = [Struct(name=n, partitions=[0]) for n in ("a", "__consumer_offsets")]
    answer = ask(
        asked, ADD_PARTITIONS, 3, v3_and_below_transactional_id="t", v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0, v3_and_below_topics=topics,
    )  # fmt: skip
    results = {
        one["name"]: one["results_by_partition"][0]["partition_error_code"]
        for one in answer["results_by_topic_v3_and_below"]
    }
    assert results == {"a": 55, "__consumer_offsets": 29}


def fetched(asked: Client, name: str, **changed: int) -> Any:
    partition = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, **changed}
    one = Struct(**partition, log_start_offset=-1, partition_max_bytes=1000)
    answer = ask(
        asked, FETCH, 11, replica_id=-1, max_wait=0, min_bytes=0, max_bytes=1000,
        isolation_level=0, session_id=0, session_epoch=-1, forgotten_topics_data=[], rack_id="",
        topics=[Struct(topic=name, partitions=[one])],
    )  # fmt: skip
    return answer["responses"][0]["partitions"][0]


def test_fetch_refusals(asked: Any) -> None:
    unknown = fetched(asked, "unknown")
    assert (unknown["error_code"], unknown["aborted_transactions"]) == (3, [])
    beyond = fetched(asked, "a", fetch_offset=999)
    assert (beyond["error_code"], beyond["aborted_transactions"]) == (1, None)
    assert fetched(asked, "a", current_leader_epoch=-2)["error_code"] == 0


def test_a_broker_that_is_no_replica_comes_before_a_missing_epoch(asked: Any) -> None:
    partition = Struct(
        partition=0, fetch_offset=0, log_start_offset=0, partition_max_bytes=1_000,
    )  # fmt: skip
    answer = ask(
        asked, FETCH, 6, replica_id=99, max_wait=0, min_bytes=0, max_bytes=1_000,
        isolation_level=0, topics=[Struct(topic="a", partitions=[partition])],
    )  # fmt: skip
    assert answer["responses"][0]["partitions"][0]["error_code"] == 6


def test_delete_records_without_time_to_wait(asked: Any) -> None:
    partition = Struct(partition_index=0, offset=0)
    wanted = [Struct(name="a", partitions=[partition])]
    (found,) = ask(asked, DELETE_RECORDS, 2, topics=wanted, timeout=0)["topics"]
    assert found["partitions"][0]["error_code"] == 0


def produced(asked: Client, name: str, acks: int, records: bytes) -> Any:
    data = [Struct(name=name, partition_data=[Struct(index=0, records=records)])]
    answer = ask(asked, PRODUCE, 9, transactional_id=None, acks=acks, timeout=99, topic_data=data)
    (found,) = answer["responses"][0]["partition_responses"]
    return found


def test_a_topic_without_a_name_is_unknown_to_producers(asked: Any) -> None:
    assert produced(asked, "", 1, batch(b"x"))["error_code"] == 3


def test_the_last_directory_of_a_replica_counts(asked: Any) -> None:
    (here,) = ask(asked, DESCRIBE_LOG_DIRS, 1, topics=None)["results"]
    topics = [Struct(name="a", partitions=[0])]
    dirs = [Struct(path="/nowhere", topics=topics), Struct(path="/gone", topics=topics)]
    assert here["error_code"] == 0
    (found,) = ask(asked, ALTER_LOG_DIRS, 1, dirs=dirs)["results"]
    assert found["partitions"] == [{"error_code": 57, "partition_index": 0}]


def test_impossible_acks_come_after_unknown_topics(asked: Any) -> None:
    assert produced(asked, "unknown", -2, batch(b"x"))["error_code"] == 3
    assert produced(asked, "a", -2, batch(b"x"))["error_code"] == 21


def test_invalid_acks_are_checked_after_the_batch(asked: Any) -> None:
    cut = bytearray(batch(b"x"))
    cut[8:12] = b"\xff\xff\xff\xff"  # its length
    assert produced(asked, "a", 2, batch(b"x", magic=1))["error_code"] == 87
    assert produced(asked, "a", 2, bytes(cut))["error_code"] == 2
    assert produced(asked, "a", 2, batch(b"x") * 2)["error_code"] == 87
    assert produced(asked, "a", 2, batch(b"x", crc=0))["error_code"] == 21


def test_a_rejected_record_comes_with_the_logs_start(asked: Any) -> None:
    found = produced(asked, "a", 1, batch(b"x", now_ms=int(time.time() * 1000) + 10**9))
    assert (found["error_code"], found["log_start_offset"]) == (32, 0)
    found = produced(asked, "a", 1, batch(b"x", count=2))
    assert (found["error_code"], found["log_start_offset"]) == (87, 0)
    old_format = produced(asked, "a", 1, batch(b"x", magic=1))
    assert (old_format["error_code"], old_format["log_start_offset"]) == (87, -1)


def test_voters_are_a_node_and_a_directory(asked: Any) -> None:
    added = ask(
        asked, ADD_VOTER, 1, cluster_id=None, timeout=1000, voter_id=9, voter_directory_id=None,
        listeners=[],
    )  # fmt: skip
    assert added["error_code"] == 42
    assert added["error_message"] == "Add voter request didn't include a valid voter"
    removed = ask(asked, REMOVE_VOTER, 0, cluster_id="x", voter_id=9, voter_directory_id=NOBODY)
    assert removed["error_code"] == 104
    assert removed["error_message"].startswith('The given id "x" doesn\'t match')


def begin(asked: Client, transactional_id: str) -> Any:
    ask(asked, FIND, 4, coordinator_keys=[transactional_id], key_type=1)
    fields = {"transactional_id": transactional_id, "transaction_timeout": 60_000}
    return until_none(asked, INIT_PRODUCER_ID, 2, **fields)


def test_no_offsets_begin_no_transaction(asked: Any) -> None:
    """Else the next producer would fence one: epoch 2 instead of 1."""
    first = begin(asked, "tx")
    for topics in ([], [Struct(name="unknown", partitions=[Struct(partition_index=0)])]):
        answer = ask(
            asked, TXN_OFFSET_COMMIT, 5, transactional_id="tx", group_id="g",
            producer_id=first["producer_id"], producer_epoch=first["producer_epoch"],
            generation_id=-1, member_id="", topics=topics,
        )  # fmt: skip
        assert [p["error_code"] for t in answer["topics"] for p in t["partitions"]] == (
            [3] if topics else []
        )
    assert (first["producer_epoch"], begin(asked, "tx")["producer_epoch"]) == (0, 1)


def test_an_epoch_of_before_is_refused_before_the_coordinator_is_asked(asked: Any) -> None:
    """The partition knows the producer with a later epoch, whatever the transactional id."""
    producer = begin(asked, "tx-epochs")["producer_id"]

    def commit(transactional_id: str, epoch: int) -> int:
        offset = Struct(partition_index=0, committed_offset=5, committed_metadata="")
        answer = ask(
            asked, TXN_OFFSET_COMMIT, 5, transactional_id=transactional_id, group_id="g",
            producer_id=producer, producer_epoch=epoch, generation_id=-1, member_id="",
            topics=[Struct(name="a", partitions=[offset])],
        )  # fmt: skip
        return int(answer["topics"][0]["partitions"][0]["error_code"])

    assert commit("unknown", -1) == 49
    assert commit("tx-epochs", 0) == 0
    assert commit("unknown", -1) == 47
    assert commit("unknown", 5) == 49
