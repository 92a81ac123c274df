"""Differences that `make protocol-diff` and `make acl-diff` found.

The answers are those of Apache Kafka 4.3.1.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from broker_tests.handlers.parity_requests import Step, create, topic
from broker_tests.handlers.test_admin_parity import Client, client
from odradek_protocol.messages.struct import Struct
from odradek_testkit.engines import RunningBroker
from odradek_testkit.raw_requests import batch

PRODUCE, FETCH, OFFSET_FETCH, FIND, DELETE_RECORDS, ADD_PARTITIONS = 0, 1, 9, 10, 21, 24
DESCRIBE_GROUPS, HEARTBEAT, ADD_VOTER, REMOVE_VOTER = 69, 68, 80, 81
INIT_PRODUCER_ID, TXN_OFFSET_COMMIT = 22, 28
ALTER_LOG_DIRS, DESCRIBE_LOG_DIRS = 34, 35
METADATA, CLASSIC_GROUPS, DESCRIBE_CONFIGS, QUORUM, PRODUCERS = 3, 15, 32, 55, 61
CREATE_ACLS, TOPIC_PARTITIONS, LIST_TRANSACTIONS = 30, 75, 66
JOIN, LEAVE, OFFSET_DELETE = 11, 13, 47
NULL = b"\xff\xff\xff\xff"  # no user data
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


def test_find_coordinator_for_one_key_names_the_error(asked: Client) -> None:
    """v1–3 have the error's name or sentence; from v4 on it is empty."""
    assert ask(asked, FIND, 3, key="g", key_type=0)["error_message"] == "NONE"
    refused = ask(asked, FIND, 3, key="g", key_type=2)
    assert refused["error_code"] == 42
    assert refused["error_message"].startswith("This most likely occurs")
    (found,) = ask(asked, FIND, 4, coordinator_keys=["g"], key_type=0)["coordinators"]
    assert found["error_message"] == ""


def test_a_key_that_is_no_share_partition_creates_no_topic(asked: Client) -> None:
    (found,) = ask(asked, FIND, 6, coordinator_keys=["g"], key_type=2)["coordinators"]
    assert found["error_code"] == 42
    seen = ask(asked, METADATA, 9, topics=None, allow_auto_topic_creation=False)["topics"]
    assert "__share_group_state" not in {one["name"] for one in seen}


def test_an_unknown_group(asked: Client) -> None:
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


def test_a_topic_without_a_name_has_no_offsets(asked: Client) -> None:
    """It once made the answer for the other topics of the request fail."""
    topics = [Struct(name=name, partition_indexes=[0]) for name in ("", "a")]
    found = ask(asked, OFFSET_FETCH, 5, group_id="x", topics=topics)
    assert found["error_code"] == 0
    assert [t["partitions"][0]["committed_offset"] for t in found["topics"]] == [-1, -1]


def test_a_group_that_awaits_its_assignment_uses_the_topics_that_it_subscribes_to(
    asked: Client,
) -> None:
    """JoinGroup is answered, SyncGroup not sent: ours once took all topics as subscribed."""
    for group, subscribed, code in (("reads-a", b"a", 86), ("reads-b", b"b", 0)):
        fields = {
            "group_id": group,
            "session_timeout": 30_000,
            "rebalance_timeout": 30_000,
            "protocol_type": "consumer",
            "protocols": [Struct(name="range", metadata=b"\0\0\0\0\0\1\0\1" + subscribed + NULL)],
        }
        member = ask(asked, JOIN, 5, member_id="", **fields)["member_id"]
        joined = ask(asked, JOIN, 5, member_id=member, **fields)
        assert (joined["error_code"], joined["generation_id"]) == (0, 1)
        wanted = [Struct(name="a", partitions=[Struct(partition_index=0)])]
        deleted = ask(asked, OFFSET_DELETE, 0, group_id=group, topics=wanted)
        assert deleted["topics"][0]["partitions"][0]["error_code"] == code
        ask(asked, LEAVE, 1, group_id=group, member_id=member)


def test_describe_quorum_of_other_partitions_is_refused_as_a_whole(asked: Client) -> None:
    def wanted(*partitions: int) -> list[Struct]:
        asked_for = [Struct(partition_index=p) for p in partitions]
        return [Struct(topic_name="__cluster_metadata", partitions=asked_for)]

    one = ask(asked, QUORUM, 0, topics=wanted(0))["topics"][0]["partitions"]
    two = ask(asked, QUORUM, 0, topics=wanted(0, 1))["topics"][0]["partitions"]
    assert [p["error_code"] for p in (*one, *two)] == [0, 3, 3]


def test_topics_by_an_unknown_id_have_no_operations(asked: Client) -> None:
    (found,) = ask(
        asked, METADATA, 12, topics=[Struct(topic_id=NOBODY, name=None)],
        include_topic_authorized_operations=True,
    )["topics"]  # fmt: skip
    assert (found["error_code"], found["topic_authorized_operations"]) == (100, NOT_SAID)


def test_invalid_names_are_refused(asked: Client) -> None:
    wanted = [Struct(name="a/b", partition_indexes=[0])]
    (found,) = ask(asked, PRODUCERS, 0, topics=wanted)["topics"]
    assert found["partitions"][0]["error_code"] == 17
    resource = Struct(resource_type=8, resource_name="x", configuration_keys=None)
    (refused,) = ask(asked, DESCRIBE_CONFIGS, 4, resources=[resource])["results"]
    assert refused["error_message"] == "Broker id must be an integer, but it is: x"


def test_unknown_partitions_of_a_transaction_come_first(asked: Client) -> None:
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


def test_clients_have_no_transactions_in_internal_topics(asked: Client) -> None:
    topics = [Struct(name=n, partitions=[0]) for n in ("a", "__consumer_offsets", "unknown")]
    answer = ask(
        asked, ADD_PARTITIONS, 3, v3_and_below_transactional_id="t", v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0, v3_and_below_topics=topics,
    )  # fmt: skip
    results = {
        one["name"]: one["results_by_partition"][0]["partition_error_code"]
        for one in answer["results_by_topic_v3_and_below"]
    }
    assert results == {"a": 55, "__consumer_offsets": 29, "unknown": 3}


def fetched(asked: Client, name: str, **changed: int) -> Any:
    partition = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, **changed}
    one = Struct(**partition, log_start_offset=-1, partition_max_bytes=1000)
    answer = ask(
        asked, FETCH, 11, replica_id=-1, max_wait=0, min_bytes=0, max_bytes=1000,
        isolation_level=0, session_id=0, session_epoch=-1, forgotten_topics_data=[], rack_id="",
        topics=[Struct(topic=name, partitions=[one])],
    )  # fmt: skip
    return answer["responses"][0]["partitions"][0]


def test_fetch_refusals(asked: Client) -> None:
    unknown = fetched(asked, "unknown")
    assert (unknown["error_code"], unknown["aborted_transactions"]) == (3, [])
    beyond = fetched(asked, "a", fetch_offset=999)
    assert (beyond["error_code"], beyond["aborted_transactions"]) == (1, None)
    assert fetched(asked, "a", current_leader_epoch=-2)["error_code"] == 0


def test_a_fetch_that_diverges_has_no_list_of_aborted_transactions(asked: Client) -> None:
    records = Struct(name="a", partition_data=[Struct(index=0, records=batch(b"x"))])
    ask(asked, PRODUCE, 9, transactional_id=None, acks=-1, timeout=5000, topic_data=[records])
    partition = Struct(
        partition=0, current_leader_epoch=-1, fetch_offset=999, last_fetched_epoch=0,
        log_start_offset=-1, partition_max_bytes=1000,
    )  # fmt: skip
    answer = ask(
        asked, FETCH, 12, replica_id=-1, max_wait=0, min_bytes=0, max_bytes=1000,
        isolation_level=1, session_id=0, session_epoch=-1, forgotten_topics_data=[], rack_id="",
        topics=[Struct(topic="a", partitions=[partition])],
    )  # fmt: skip
    (found,) = answer["responses"][0]["partitions"]
    assert found["diverging_epoch"]["end_offset"] >= 1
    assert found["aborted_transactions"] is None


def test_a_broker_that_is_no_replica_comes_before_a_missing_epoch(asked: Client) -> None:
    partition = Struct(
        partition=0, fetch_offset=0, log_start_offset=0, partition_max_bytes=1_000,
    )  # fmt: skip
    answer = ask(
        asked, FETCH, 6, replica_id=99, max_wait=0, min_bytes=0, max_bytes=1_000,
        isolation_level=0, topics=[Struct(topic="a", partitions=[partition])],
    )  # fmt: skip
    assert answer["responses"][0]["partitions"][0]["error_code"] == 6


def test_delete_records_without_time_to_wait(asked: Client) -> None:
    partition = Struct(partition_index=0, offset=0)
    wanted = [Struct(name="a", partitions=[partition])]
    (found,) = ask(asked, DELETE_RECORDS, 2, topics=wanted, timeout=0)["topics"]
    assert found["partitions"][0]["error_code"] == 0


def produced(asked: Client, name: str, acks: int, records: bytes) -> Any:
    data = [Struct(name=name, partition_data=[Struct(index=0, records=records)])]
    answer = ask(asked, PRODUCE, 9, transactional_id=None, acks=acks, timeout=99, topic_data=data)
    (found,) = answer["responses"][0]["partition_responses"]
    return found


def test_a_topic_without_a_name_is_unknown_to_producers(asked: Client) -> None:
    assert produced(asked, "", 1, batch(b"x"))["error_code"] == 3


def test_the_last_directory_of_a_replica_counts(asked: Client) -> None:
    (here,) = ask(asked, DESCRIBE_LOG_DIRS, 1, topics=None)["results"]
    topics = [Struct(name="a", partitions=[0])]
    dirs = [Struct(path="/nowhere", topics=topics), Struct(path="/gone", topics=topics)]
    assert here["error_code"] == 0
    (found,) = ask(asked, ALTER_LOG_DIRS, 1, dirs=dirs)["results"]
    assert found["partitions"] == [{"error_code": 57, "partition_index": 0}]


def test_impossible_acks_come_after_unknown_topics(asked: Client) -> None:
    assert produced(asked, "unknown", -2, batch(b"x"))["error_code"] == 3
    assert produced(asked, "a", -2, batch(b"x"))["error_code"] == 21


def test_invalid_acks_are_checked_after_the_batch(asked: Client) -> None:
    cut = bytearray(batch(b"x"))
    cut[8:12] = b"\xff\xff\xff\xff"  # its length
    assert produced(asked, "a", 2, batch(b"x", magic=1))["error_code"] == 87
    assert produced(asked, "a", 2, bytes(cut))["error_code"] == 2
    assert produced(asked, "a", 2, batch(b"x") * 2)["error_code"] == 87
    assert produced(asked, "a", 2, batch(b"x", crc=0))["error_code"] == 21


def test_a_rejected_record_comes_with_the_logs_start(asked: Client) -> None:
    found = produced(asked, "a", 1, batch(b"x", now_ms=int(time.time() * 1000) + 10**9))
    assert (found["error_code"], found["log_start_offset"]) == (32, 0)
    found = produced(asked, "a", 1, batch(b"x", count=2))
    assert (found["error_code"], found["log_start_offset"]) == (87, 0)
    old_format = produced(asked, "a", 1, batch(b"x", magic=1))
    assert (old_format["error_code"], old_format["log_start_offset"]) == (87, -1)


def test_voters_are_a_node_and_a_directory(asked: Client) -> None:
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


def test_no_offsets_begin_no_transaction(asked: Client) -> None:
    """Otherwise the next InitProducerId would end a transaction: epoch 2 instead of 1."""
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


def test_an_epoch_of_before_is_refused_before_the_coordinator_is_asked(asked: Client) -> None:
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


def test_only_an_unknown_topic_has_a_message(asked: Client) -> None:
    wanted = [Struct(name=name, partition_indexes=[7]) for name in ("a", "unknown")]
    found = {t["name"]: t["partitions"] for t in ask(asked, PRODUCERS, 0, topics=wanted)["topics"]}
    refused = {name: (one["error_code"], one["error_message"]) for name, (one,) in found.items()}
    assert refused == {
        "a": (3, None),
        "unknown": (3, "This server does not host this topic-partition."),
    }


def page(asked: Client, names: list[str], at: tuple[str, int] | None, limit: int = 9) -> Any:
    """Code and partitions of each topic, and the next cursor."""
    answer = ask(
        asked, TOPIC_PARTITIONS, 0, topics=[Struct(name=name) for name in names],
        response_partition_limit=limit,
        cursor=at and Struct(topic_name=at[0], partition_index=at[1]),
    )  # fmt: skip
    topics = [
        (t["name"], t["error_code"], [p["partition_index"] for p in t["partitions"]])
        for t in answer["topics"]
    ]
    after = answer["next_cursor"]
    return sorted(topics), after and (after["topic_name"], after["partition_index"])


def test_a_cursor_at_an_unknown_topic_counts_for_no_other(asked: Client) -> None:
    unknown: tuple[str, int, list[int]] = ("Unknown", 3, [])
    assert page(asked, ["Unknown", "a"], ("Unknown", 1)) == ([unknown, ("a", 0, [0])], None)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """With topics a, b and c of two partitions each, of which b may not be described."""
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    denied = Struct(
        resource_type=2, resource_name="b", resource_pattern_type=3, principal="User:ANONYMOUS",
        host="*", operation=8, permission_type=2,
    )  # fmt: skip
    with (
        RunningBroker(settings, directory=tmp_path_factory.mktemp("guarded")) as server,
        client(server) as one,
    ):
        one.ask(create("topics", *(topic(name, 2) for name in "abc")))
        (created,) = ask(one, CREATE_ACLS, 3, creations=[denied])["results"]
        assert created["error_code"] == 0, created
        yield one


def test_a_cursor_at_a_topic_that_may_not_be_described(guarded: Client) -> None:
    refused: tuple[str, int, list[int]] = ("b", 29, [])
    at = ("b", 1)
    assert page(guarded, ["a", "b", "c"], at) == ([refused, ("c", 0, [0, 1])], None)
    assert page(guarded, ["b", "c"], at, limit=1) == ([refused, ("c", 0, [0])], ("c", 1))
    assert page(guarded, [], at) == ([("c", 0, [0, 1])], None)
    assert page(guarded, [], ("", 1)) == ([("a", 0, [0, 1]), ("c", 0, [0, 1])], None)
    assert page(guarded, ["b", "c"], ("c", 1)) == ([("c", 0, [1])], None)


def test_a_topic_is_refused_once(guarded: Client) -> None:
    assert page(guarded, ["b", "b"], None) == ([("b", 29, [])], None)


def codes_of_transaction(asked: Client, transactional_id: str | None) -> dict[str, int]:
    """Transactional batches for `__consumer_offsets` and a, and a plain one for c."""
    wanted = {
        "__consumer_offsets": batch(b"x", attributes=16),
        "a": batch(b"x", attributes=16, producer_id=5, producer_epoch=0, base_sequence=0),
        "c": batch(b"x"),
    }
    answer = ask(
        asked, PRODUCE, 9, transactional_id=transactional_id, acks=-1, timeout=5000,
        topic_data=[
            Struct(name=name, partition_data=[Struct(index=0, records=records)])
            for name, records in wanted.items()
        ],
    )  # fmt: skip
    return {one["name"]: one["partition_responses"][0]["error_code"] for one in answer["responses"]}


def test_a_transaction_without_an_id_refuses_the_whole_request(
    asked: Client, guarded: Client
) -> None:
    """An empty id is an id; the coordinator of a transaction refuses it."""
    asked.ask(create("a topic", topic("c", 1)))
    for one in (asked, guarded):
        begin(one, "tx-ids")  # the coordinator is there
        ask(one, FIND, 4, coordinator_keys=["g"], key_type=0)  # __consumer_offsets too
        assert set(codes_of_transaction(one, None).values()) == {53}
        assert codes_of_transaction(one, "") == {"__consumer_offsets": 17, "a": 42, "c": 0}


def test_list_transactions_with_a_wrong_pattern_names_no_states(asked: Client) -> None:
    fields = {"state_filters": ["nope"], "producer_id_filters": [], "duration_filter": -1}
    fine = ask(asked, LIST_TRANSACTIONS, 2, **fields, transactional_id_pattern="x.*")
    assert (fine["error_code"], fine["unknown_state_filters"]) == (0, ["nope"])
    wrong = ask(asked, LIST_TRANSACTIONS, 2, **fields, transactional_id_pattern="(")
    assert (wrong["error_code"], wrong["unknown_state_filters"]) == (128, [])
