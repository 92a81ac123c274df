"""Groups of the consumer protocol (KIP-848) with real clients: librdkafka and Java's.

Heartbeats and sessions are shortened by settings, so that a rebalance takes a second here.
"""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import NewPartitions

from broker_tests.clients.members import Member, shared, until
from odradek_testkit import engines as harness
from odradek_testkit.clients import Rec, admin_of, create_topic, numbered, produce
from odradek_testkit.connecting import for_java
from odradek_testkit.engines import Server, java_command, kafka_tool

SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.assignment.interval.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "5",
}
GROUPS_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with harness.engine()(SETTINGS, directory=tmp_path_factory.mktemp("groups")) as running:
        yield running


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


def produce_values(server: Server, topic: str, values: list[bytes], partitions: int) -> None:
    """Round robin, so that every partition has equally many records."""
    produce(server, topic, [Rec(v, partition=i % partitions) for i, v in enumerate(values)])


def test_members_share_partitions_and_hand_them_over(
    server: Server, topic: str, group: str
) -> None:
    """Three members join in turn, one leaves, one stops without leaving: every partition always
    has one owner, and all that was produced is read."""
    create_topic(server, topic, partitions=6)
    values = numbered(600)
    produce_values(server, topic, values[:300], partitions=6)
    first = Member(server, group).subscribe(topic)
    until(shared(6, first), first, what="one member")
    until(lambda: len(first.read) >= 300, first, what="read all")
    first.consumer.commit(asynchronous=False)
    second, third = Member(server, group), Member(server, group)
    second.subscribe(topic), third.subscribe(topic)
    members = [first, second, third]
    until(shared(6, *members), *members, what="three members")
    produce_values(server, topic, values[300:], partitions=6)
    until(lambda: sum(len(m.read) for m in members) >= 600, *members, what="read the rest")
    assert sorted(v for m in members for _, v in m.read) == sorted(values)
    for member in members:
        member.consumer.commit(asynchronous=False)
    third.close()
    until(shared(6, first, second), first, second, what="one left")
    first.close()
    second.close()
    again = Member(server, group).subscribe(topic)
    until(shared(6, again), again, what="a new one")
    committed = again.consumer.committed([TopicPartition(topic, p) for p in range(6)], timeout=10)
    assert sum(place.offset for place in committed) == 600
    again.close()


@pytest.mark.java
def test_a_member_that_dies_is_fenced_after_its_session(
    server: Server, topic: str, group: str
) -> None:
    create_topic(server, topic, partitions=4)
    survivor = Member(server, group).subscribe(topic)
    dying = subprocess.Popen(
        java_command(
            CONSOLE_CONSUMER, *for_java(server), "--topic", topic,
            "--group", group, "--command-property", "group.protocol=consumer",
        ),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until(lambda: len(survivor.owned()) == 2, survivor, what="shared with Java")
    finally:
        dying.kill()
        dying.wait()
    until(shared(4, survivor), survivor, what="after the kill")
    survivor.close()


def test_a_static_member_keeps_its_partitions_over_a_restart(
    server: Server, topic: str, group: str
) -> None:
    create_topic(server, topic, partitions=4)
    one = Member(server, group, group_instance_id="one").subscribe(topic)
    two = Member(server, group, group_instance_id="two").subscribe(topic)
    until(shared(4, one, two), one, two, what="both")
    had, others = one.owned(), two.owned()
    one.close()  # a static member that closes comes back
    again = Member(server, group, group_instance_id="one").subscribe(topic)
    until(lambda: bool(again.owned()), again, two, what="back again")
    assert again.owned() == had
    assert two.owned() == others
    again.close()
    two.close()


def test_a_subscription_by_expression_finds_new_topics(
    server: Server, topic: str, group: str
) -> None:
    create_topic(server, f"{topic}-a", partitions=1)
    member = Member(server, group).subscribe(f"^{topic}-.*")
    until(lambda: member.owned() == {(f"{topic}-a", 0)}, member, what="the first")
    create_topic(server, f"{topic}-b", partitions=2)
    until(lambda: len(member.owned()) == 3, member, what="the second")
    member.close()


def test_new_partitions_are_assigned(server: Server, topic: str, group: str) -> None:
    create_topic(server, topic, partitions=1)
    member = Member(server, group).subscribe(topic)
    until(shared(1, member), member)
    admin = admin_of(server)
    (answer,) = admin.create_partitions([NewPartitions(topic, 3)]).values()
    answer.result(10)
    until(shared(3, member), member, what="three partitions")
    member.close()


def test_a_member_can_choose_the_range_assignor(server: Server, topic: str, group: str) -> None:
    names = [f"{topic}-{n}" for n in range(2)]
    for name in names:
        create_topic(server, name, partitions=2)
    members = [Member(server, group, group_remote_assignor="range") for _ in range(2)]
    for member in members:
        member.subscribe(*names)
    until(shared(4, *members), *members, what="range")
    for member in members:
        assert len({partition for _, partition in member.owned()}) == 1, "co-partitioned"
        member.close()


def test_an_unknown_assignor_is_refused(server: Server, topic: str, group: str) -> None:
    create_topic(server, topic)
    member = Member(server, group, group_remote_assignor="nonsense").subscribe(topic)
    with pytest.raises(KafkaException) as caught:
        until(lambda: False, member)
    assert "assignor or its version range is not supported" in caught.value.args[0].str()
    member.close()


@pytest.mark.parametrize("path", [("classic", "consumer"), ("consumer", "classic")])
def test_a_group_changes_protocol_while_it_runs(
    server: Server, topic: str, group: str, path: tuple[str, str]
) -> None:
    """A rolling upgrade, or downgrade: the new member comes, shares, the old one goes."""
    create_topic(server, topic, partitions=4)
    produce_values(server, topic, numbered(40), partitions=4)
    before, after = path
    old = Member(server, group, before).subscribe(topic)
    until(shared(4, old), old, what="the old one alone")
    until(lambda: len(old.read) >= 40, old, what="reads all")
    old.consumer.commit(asynchronous=False)
    new = Member(server, group, after).subscribe(topic)
    until(shared(4, old, new), old, new, what="both")
    old.close()
    until(shared(4, new), new, what="the new one alone")
    assert not new.read, "committed offsets are the same for both protocols"
    produce_values(server, topic, numbered(40), partitions=4)
    until(lambda: len(new.read) >= 40, new, what="goes on")
    admin = admin_of(server)
    listed = admin.list_consumer_groups().result(10).valid
    kind = next(g.type.name for g in listed if g.group_id == group)
    assert kind == after.upper()
    new.close()


@pytest.mark.java
def test_javas_tool_sees_the_group(server: Server, topic: str, group: str) -> None:
    create_topic(server, topic, partitions=2)
    produce_values(server, topic, numbered(10), partitions=2)
    member = Member(server, group, client_id="me").subscribe(topic)
    until(lambda: len(member.read) == 10, member)
    member.consumer.commit(asynchronous=False)

    def tool(*args: str, check: bool = True) -> str:
        done = kafka_tool(GROUPS_TOOL, *for_java(server), *args, check=check)
        return done.stdout + done.stderr

    described = tool("--describe", "--group", group)
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    assert sorted((row[2], row[3], row[5]) for row in rows) == [("0", "5", "0"), ("1", "5", "0")]
    members = tool("--describe", "--group", group, "--members", "--verbose")
    (row,) = [line for line in members.splitlines() if line.startswith(group)]
    assert "me" in row
    assert f"{topic}:0,1" in row.replace("(", ":").replace(")", "")
    assert "Stable" in tool("--describe", "--group", group, "--state")
    assert "Consumer" in tool("--list", "--type")
    assert "non_empty_group" in tool("--delete", "--group", group, check=False).lower().replace(
        "the group is not empty", "non_empty_group"
    ).replace("groupnotempty", "non_empty_group")
    member.close()
    assert "successful" in tool("--delete", "--group", group)


@pytest.mark.java
@pytest.mark.skipif(harness.on_apache(), reason="it is about our files")
def test_apaches_tool_reads_our_records(server: Server, topic: str, group: str) -> None:
    """kafka-dump-log decodes every record that a group and its members leave."""
    create_topic(server, topic, partitions=2)
    member = Member(server, group, group_instance_id="one").subscribe(f"^{topic}.*")
    until(shared(2, member), member)
    classic = Member(server, group, "classic").subscribe(topic)
    until(shared(2, member, classic), member, classic, what="both protocols")
    for one in (classic, member):
        one.close()
    files = sorted(server.data_dir.glob("__consumer_offsets-*/*.log"))
    dumped = kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files",
        ",".join(map(str, files)),
    ).stdout  # fmt: skip
    lines = [line for line in dumped.splitlines() if f'"{group}"' in line]
    assert not [line for line in lines if "rror" in line]
    types = {line.split('"type":"')[1].split('"')[0] for line in lines if '"type":"' in line}
    assert types >= {"3", "5", "6", "7", "8", "16"}, dumped[:2000]
    assert any('"classicMemberMetadata":{' in line for line in lines)
