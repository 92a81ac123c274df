"""Share groups with Apache Kafka's own client and tools: KafkaShareConsumer, kafka-share-groups,
kafka-console-share-consumer, unmodified. Written against Apache Kafka 4.3.1 first
(ODRADEK_TEST_ENGINE=apache); our broker has to pass the same."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from broker_tests.clients.share_member import Delivered, share_member
from odradek_testkit.clients import create_topic, numbered, produce
from odradek_testkit.connecting import for_java
from odradek_testkit.engines import Server, engine, kafka_tool

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
TOOL_S = 120.0
SETTINGS = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    "offsets.topic.num.partitions": "4",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.assignment.interval.ms": "0",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with engine()(SETTINGS, directory=tmp_path_factory.mktemp("share")) as broker:
        yield broker


@pytest.fixture
def queue(server: Server, topic: str) -> str:
    """A topic with one partition, and a group of the same name that reads it from the start."""
    create_topic(server, topic)
    configure(server, topic, "share.auto.offset.reset=earliest")
    return topic


def configure(server: Server, group: str, *settings: str) -> None:
    kafka_tool(
        "kafka.admin.ConfigCommand", *for_java(server), "--alter", "--entity-type", "groups",
        "--entity-name", group, "--add-config", ",".join(settings), timeout_s=TOOL_S,
    )  # fmt: skip


def share_groups(server: Server, *args: str) -> str:
    done = kafka_tool(GROUPS, *for_java(server), *args, timeout_s=TOOL_S)
    return done.stdout + done.stderr


def start_offset(server: Server, group: str) -> tuple[int, int]:
    """The start offset and the lag of partition 0, as the tool shows them."""
    described = share_groups(server, "--describe", "--group", group)
    found = re.search(rf"{group}\s+{group}\s+0\s+(\d+)\s+(\d+)", described)
    assert found, described
    return int(found[1]), int(found[2])


def offsets(records: list[Delivered]) -> list[int]:
    return sorted(record.offset for record in records)


def test_a_consumer_acknowledges_implicitly_and_another_goes_on(server: Server, queue: str) -> None:
    """1. All records, in order, each delivered once. 2. The next member gets only new ones."""
    values = [value.decode() for value in numbered(50)]
    produce(server, queue, numbered(50))
    with share_member(server, queue, queue) as member:
        found = member.poll_all(50)
        assert [record.value for record in found] == values
        assert {record.deliveries for record in found} == {1}
        assert member.commit() == {0: "ok"}
    produce(server, queue, [b"new"])
    with share_member(server, queue, queue) as member:
        assert [record.value for record in member.poll()] == ["new"]


def test_released_records_come_again_and_rejected_ones_do_not(server: Server, queue: str) -> None:
    produce(server, queue, numbered(10))
    explicit = {"share_acknowledgement_mode": "explicit"}
    with share_member(server, queue, queue, **explicit) as member:
        found = member.poll_all(10)
        member.acknowledge("accept", *found[:4])
        member.acknowledge("reject", *found[4:6])
        member.acknowledge("release", *found[6:])
        assert member.commit() == {0: "ok"}
        again = member.poll_all(4)
        assert offsets(again) == [6, 7, 8, 9]
        assert {record.deliveries for record in again} == {2}
        member.acknowledge("accept", *again)
        assert member.commit() == {0: "ok"}
    assert start_offset(server, queue)[1] == 0  # Kafka's start offset is one write behind


def test_a_record_is_delivered_a_limited_number_of_times(server: Server, queue: str) -> None:
    """share.delivery.count.limit=2: after two deliveries the record is archived."""
    configure(server, queue, "share.delivery.count.limit=2")
    produce(server, queue, [b"poison", b"good"])
    with share_member(server, queue, queue, share_acknowledgement_mode="explicit") as member:
        for delivery in (1, 2):
            found: list[Delivered] = []
            while not any(record.value == "poison" for record in found):
                found = member.poll()
                for record in found:
                    kind = "release" if record.value == "poison" else "accept"
                    member.acknowledge(kind, record)
                assert member.commit() == {0: "ok"}
            assert [r.deliveries for r in found if r.value == "poison"] == [delivery]
        produce(server, queue, [b"next"])
        found = member.poll()
        while [record.value for record in found] != ["next"]:
            assert "poison" not in [record.value for record in found]
            member.acknowledge("accept", *found)
            member.commit()
            found = member.poll()
        member.acknowledge("accept", *found)
        assert member.commit() == {0: "ok"}


def test_locks_are_freed_when_a_member_dies_and_when_they_time_out(
    server: Server, queue: str
) -> None:
    """1. The first member is killed while it holds locks: its connection closes, and the second
    gets the records at once, far before the locks would time out. 2. The second holds them until
    its locks time out: its acknowledgement is refused, and the records are delivered again."""
    produce(server, queue, numbered(5))
    with share_member(server, queue, queue, share_acknowledgement_mode="explicit") as first:
        assert len(first.poll_all(5)) == 5
        first.kill()
    configure(server, queue, "share.record.lock.duration.ms=1000")
    with share_member(server, queue, queue, share_acknowledgement_mode="explicit") as second:
        found = second.poll_all(5)
        assert {record.deliveries for record in found} == {2}
        with share_member(server, queue, queue, share_acknowledgement_mode="explicit") as third:
            taken = third.poll_all(5)
            assert offsets(taken) == [0, 1, 2, 3, 4]
            assert {record.deliveries for record in taken} == {3}
            second.acknowledge("accept", *found)
            assert second.commit() == {0: "InvalidRecordStateException"}
            third.acknowledge("accept", *taken)
            assert set(third.commit().values()) <= {"ok", "InvalidRecordStateException"}


def test_a_renewed_lock_is_kept(server: Server, queue: str) -> None:
    """The lock lasts 2 s and is renewed for more than 4 s; another member gets nothing then."""
    configure(server, queue, "share.record.lock.duration.ms=2000")
    produce(server, queue, [b"slow"])
    explicit = {"share_acknowledgement_mode": "explicit"}
    with (
        share_member(server, queue, queue, **explicit) as owner,
        share_member(server, queue, queue, **explicit) as other,
    ):
        (slow,) = owner.poll()
        for _ in range(6):
            owner.acknowledge("renew", slow)
            assert owner.commit() == {0: "ok"}
            assert other.poll(ms=700) == []
            assert owner.poll() == [slow]  # the consumer returns what it has renewed
        owner.acknowledge("accept", slow)
        assert owner.commit() == {0: "ok"}


def test_two_members_share_one_partition(server: Server, queue: str) -> None:
    """Each record goes to one of them; together they get all."""
    with share_member(server, queue, queue, max_poll_records="5") as a:
        a.poll(ms=3000)
        with share_member(server, queue, queue, max_poll_records="5") as b:
            b.poll(ms=3000)
            for _ in range(20):
                produce(server, queue, numbered(5))
            seen: dict[str, list[int]] = {"a": [], "b": []}
            while sum(map(len, seen.values())) < 100:
                for name, member in (("a", a), ("b", b)):
                    seen[name] += [record.offset for record in member.poll(ms=500)]
            assert sorted(seen["a"] + seen["b"]) == list(range(100))


def test_the_share_groups_tool(server: Server, queue: str) -> None:
    """list, describe (offsets, members, state), reset, delete offsets, delete."""
    produce(server, queue, numbered(20))
    with share_member(server, queue, queue) as member:
        member.poll_all(20)
        assert member.commit() == {0: "ok"}
        assert queue in share_groups(server, "--list").split()
        assert re.search(rf"{queue}\s+Stable", share_groups(server, "--list", "--state"))
        members = share_groups(server, "--describe", "--group", queue, "--members")
        assert re.search(rf"{queue}\s+\S+\s+\S+\s+\S+\s+1\s+{queue}:0", members), members
        state = share_groups(server, "--describe", "--group", queue, "--state")
        assert re.search(rf"{queue}\s+\S+\s+\(1\)\s+Stable\s+1", state), state
        before = start_offset(server, queue)
        assert before[1] == 0
    reset = ["--group", queue, "--topic", queue, "--reset-offsets", "--to-earliest"]
    share_groups(server, *reset, "--dry-run")
    assert start_offset(server, queue) == before
    share_groups(server, *reset, "--execute")
    assert start_offset(server, queue) == (0, 20)
    with share_member(server, queue, queue) as member:
        assert offsets(member.poll_all(20)) == list(range(20))
    deleted = share_groups(server, "--delete-offsets", "--group", queue, "--topic", queue)
    assert "Successful" in deleted, deleted
    deleted = share_groups(server, "--delete", "--group", queue)
    assert "successful" in deleted, deleted
    assert queue not in share_groups(server, "--list").split()


def test_the_console_share_consumer(server: Server, queue: str) -> None:
    produce(server, queue, numbered(10))
    done = kafka_tool(
        CONSOLE, *for_java(server), "--topic", queue, "--group", queue,
        "--max-messages", "10", "--timeout-ms", "60000", timeout_s=TOOL_S,
    )  # fmt: skip
    assert done.stdout.split() == [value.decode() for value in numbered(10)]
