"""`odradek groups`, and `odradek consume --group`: lag, reset, delete; refusals in one sentence.

With ODRADEK_TEST_ENGINE=apache the same tests run against Apache Kafka.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from cli_tests.conftest import Done, Odradek
from odradek_cli.errors import CliError
from odradek_cli.reading import parse_duration_ms
from odradek_protocol.client import ApiKey, Coordinator, CoordinatorType, KafkaClient, Struct
from odradek_testkit import engines as harness
from odradek_testkit.engines import RunningBroker, Server
from odradek_testkit.waiting import wait_until

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "5",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with harness.engine()(SETTINGS, directory=tmp_path_factory.mktemp("cli")) as running:
        yield running


@pytest.fixture
def names() -> tuple[str, str]:
    """A topic and a group that no other test uses."""
    unique = uuid.uuid4().hex[:8]
    return f"t-{unique}", f"g-{unique}"


def commit(broker: Server, group: str, *places: TopicPartition) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(offsets=list(places), asynchronous=False)
    consumer.close()


def as_json(done: Done) -> Any:
    return json.loads(done.stdout)


def fill(odradek: Odradek, topic: str, partitions: int = 2, records: int = 10) -> None:
    odradek("topics", "create", topic, "-p", str(partitions))
    for partition in range(partitions):
        lines = "".join(f"{n}\n" for n in range(records))
        odradek("produce", topic, "--partition", str(partition), stdin=lines)


def test_lag_per_partition(broker: Server, odradek: Odradek, names: tuple[str, str]) -> None:
    topic, group = names
    fill(odradek, topic)
    commit(broker, group, TopicPartition(topic, 0, 3), TopicPartition(topic, 1, 10))
    (described,) = as_json(odradek("groups", "describe", group, "--json"))
    assert described["state"] == "Empty"
    assert described["lag"] == 7
    assert [
        (p["partition"], p["committed"], p["end"], p["lag"]) for p in described["partitions"]
    ] == [
        (0, 3, 10, 7),
        (1, 10, 10, 0),
    ]
    text = odradek("groups", "describe", group).stdout
    assert f"{group}: Empty" in text
    assert f"{topic}-0" in text
    assert {"group": group, "state": "Empty"}.items() <= next(
        g for g in as_json(odradek("groups", "list", "--json")) if g["group"] == group
    ).items()
    assert group in odradek("groups", "list").stdout


def test_resets(broker: Server, odradek: Odradek, names: tuple[str, str]) -> None:
    topic, group = names
    fill(odradek, topic)
    middle_ms = int(time.time() * 1000) + 1
    time.sleep(0.005)
    odradek("produce", topic, "--partition", "0", stdin="later\n")
    commit(broker, group, TopicPartition(topic, 0, 3), TopicPartition(topic, 1, 4))

    def reset(*how: str) -> dict[int, int]:
        done = as_json(odradek("groups", "reset", group, *how, "--json"))
        return {place["partition"]: place["to"] for place in done}

    assert reset("--to-latest", "--dry-run") == {0: 11, 1: 10}
    assert reset("--shift-by", "2") == {0: 5, 1: 6}, "the dry run has changed nothing"
    assert reset("--shift-by", "-100") == {0: 0, 1: 0}
    assert reset("--to-offset", "7") == {0: 7, 1: 7}
    assert reset("--to-offset", "999") == {0: 11, 1: 10}, "not beyond the end"
    assert reset("--to-timestamp", str(middle_ms)) == {0: 10, 1: 10}
    assert reset("--by-duration", "1h") == {0: 0, 1: 0}
    assert reset("--to-latest", "--topic", f"{topic}:1") == {1: 10}
    assert reset("--to-earliest", "--topic", topic) == {0: 0, 1: 0}
    table = odradek("groups", "reset", group, "--to-latest", "--dry-run").stdout
    assert "Nothing was changed (--dry-run)." in table


def test_a_group_with_members_is_not_reset(
    broker: Server, odradek: Odradek, names: tuple[str, str]
) -> None:
    topic, group = names
    fill(odradek, topic, partitions=1)
    commit(broker, group, TopicPartition(topic, 0, 3))
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    give_up = time.monotonic() + 30
    while not consumer.assignment():
        assert time.monotonic() < give_up
        consumer.poll(0.1)
    refused = odradek("groups", "reset", group, "--to-earliest", code=1).stderr
    assert f"group {group} has 1 active members (state Stable): stop them first" in refused
    assert "odradek: group" in odradek("groups", "delete", group, "--yes", code=1).stderr
    (described,) = as_json(odradek("groups", "describe", group, "--json"))
    assert described["type"] == "Consumer"
    assert described["members"][0]["partitions"] == [{"topic": topic, "partition": 0}]
    assert f"{topic} 0" in odradek("groups", "describe", group, "--members").stdout
    consumer.close()
    assert f"Deleted group {group}." in odradek("groups", "delete", group, "-y").stdout
    assert "no such group" in odradek("groups", "describe", group, code=1).stderr


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consume_in_a_group(odradek: Odradek, names: tuple[str, str], protocol: str) -> None:
    topic, group = names
    fill(odradek, topic, partitions=1, records=4)
    how = ("consume", topic, "--group", group, "--group-protocol", protocol, "--from-beginning")
    assert odradek(*how, "-n", "3").stdout == "0\n1\n2\n"
    assert odradek(*how, "--until-end").stdout == "3\n"
    assert as_json(odradek("groups", "describe", group, "--json"))[0]["lag"] == 0
    assert "--group" in odradek("consume", topic, "-g", group, "-o", "1", code=2).stderr


def test_sigterm_leaves_the_group(broker: Server, odradek: Odradek, names: tuple[str, str]) -> None:
    """The group is empty as soon as the command has ended, not after a session timeout; and what
    was printed is committed, even if the signal comes right after the line."""
    topic, group = names
    fill(odradek, topic, partitions=1, records=1)
    command = [sys.executable, "-m", "odradek_cli", "consume", topic, "--group", group,
               "--from-beginning", "--bootstrap", broker.bootstrap]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"0\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 128 + signal.SIGTERM
    (described,) = as_json(odradek("groups", "describe", group, "--json"))
    assert (described["state"], described["lag"]) == ("Empty", 0)


def test_offsets_of_a_topic_are_deleted(
    broker: Server, odradek: Odradek, names: tuple[str, str]
) -> None:
    topic, group = names
    fill(odradek, topic)
    commit(broker, group, TopicPartition(topic, 0, 3), TopicPartition(topic, 1, 4))

    def committed() -> dict[int, int]:
        (described,) = as_json(odradek("groups", "describe", group, "--json"))
        return {p["partition"]: p["committed"] for p in described["partitions"]}

    how = ("groups", "delete-offsets", group, "--topic")
    assert "--yes" in odradek(*how, f"{topic}:1", code=2).stderr
    assert committed() == {0: 3, 1: 4}
    odradek(*how, f"{topic}:1", "--yes")
    assert committed() == {0: 3}
    assert "no offsets of" in odradek(*how, f"{topic}:1", "--yes", code=1).stderr
    deleted = as_json(odradek(*how, topic, "--yes", "--json"))
    assert deleted == {"deleted": [{"topic": topic, "partition": 0}]}


def test_wrong_use(odradek: Odradek, names: tuple[str, str]) -> None:
    topic, group = names
    assert "say where to" in odradek("groups", "reset", group, code=2).stderr
    assert "name topics" in odradek("groups", "reset", group, "--to-latest", code=1).stderr
    missing = odradek("groups", "reset", group, "--to-latest", "-t", topic, code=1).stderr
    assert f"--topic {topic}: there is no such topic" in missing
    assert "odradek: group" in odradek("groups", "delete", group, "-y", code=1).stderr
    how = ("consume", topic, "--group", group, "--group-protocol", "foo")
    assert "'foo' is not one of 'classic', 'consumer'" in odradek(*how, code=2).stderr


def test_durations() -> None:
    assert parse_duration_ms("90s") == 90_000
    assert parse_duration_ms("2d") == 172_800_000
    assert parse_duration_ms("PT1H30M") == 5_400_000
    for wrong in ("", "P", "5", "x", "-5s"):
        with pytest.raises(CliError):
            parse_duration_ms(wrong)


@pytest.mark.skipif(harness.on_apache(), reason="Apache Kafka has no /metrics")
def test_metrics_have_the_lag(broker: Server, odradek: Odradek, names: tuple[str, str]) -> None:
    topic, group = names
    fill(odradek, topic)
    commit(broker, group, TopicPartition(topic, 0, 3), TopicPartition(topic, 1, 10))
    assert isinstance(broker, RunningBroker)
    with urllib.request.urlopen(f"http://{broker.admin}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    place = f'consumergroup="{group}",topic="{topic}"'
    assert (
        f'kafka_consumergroup_lag{{consumergroup="{group}",partition="0",topic="{topic}"}} 7.0'
        in lines
    )
    assert f"kafka_consumergroup_lag_sum{{{place}}} 7.0" in lines
    assert f"kafka_consumergroup_current_offset_sum{{{place}}} 13.0" in lines
    assert f'kafka_consumergroup_members{{consumergroup="{group}"}} 0.0' in lines
    assert any(
        line.startswith("kafka_coordinator_group_groupmetadatamanager_numgroups ") for line in lines
    )


def test_a_group_has_settings_of_its_own(
    odradek: Odradek, broker: Server, names: tuple[str, str]
) -> None:
    """Members get them with their next heartbeat."""
    topic, group = names
    odradek("topics", "create", topic)
    with closing(KafkaClient(broker.bootstrap)) as client:
        member = join(client, group, topic)
        assert member.heartbeat_interval == 5000
        odradek("configs", "alter", "group", group, "--set", "consumer.heartbeat.interval.ms=7000")
        shown = odradek("configs", "describe", "group", group).stdout
        assert shown.split()[-4:] == ["consumer.heartbeat.interval.ms", "7000", "group", "config"]
        wait_until(
            lambda: join(client, group, topic, member).heartbeat_interval == 7000, "the new value"
        )
    refused = odradek(
        "configs", "alter", "group", group, "--set", "consumer.heartbeat.interval.ms=1", code=1
    )
    assert "group.consumer.min.heartbeat.interval.ms" in refused.stderr
    odradek("configs", "alter", "group", group, "--delete", "consumer.heartbeat.interval.ms")
    assert "have their defaults" in odradek("configs", "describe", "group", group).stdout


def join(client: KafkaClient, group: str, topic: str, member: Struct | None = None) -> Struct:
    """A heartbeat of the consumer protocol; the first one joins."""
    return client.call(
        Coordinator(CoordinatorType.GROUP, group),
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        Struct(
            group_id=group,
            member_id=member.member_id if member else str(uuid.uuid4()),
            member_epoch=member.member_epoch if member else 0,
            instance_id=None,
            rack_id=None,
            rebalance_timeout=60_000,
            subscribed_topic_names=[topic],
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=[],
        ),
    )
