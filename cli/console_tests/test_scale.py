"""10,000 topics, 1,000 groups, a million records and 20 sessions: the times and the memory.

The numbers are printed; docs/how-to/console.md has those of one run.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest

from console_tests.conftest import Console, Kafka, Visitor, add_user
from odradek_protocol.client import ClientSettings, KafkaClient
from odradek_protocol.client.admin.groups import CommittedOffset, commit_offsets
from odradek_protocol.client.admin.topics import NewTopic, create_topics
from odradek_protocol.ids import TopicPartition
from odradek_testkit.engines import RunningBroker
from odradek_testkit.ports import free_port
from odradek_testkit.secured import secured_settings

PASSWORD = "twenty-sessions"
TOPICS, GROUPS, RECORDS, SESSIONS = 10_000, 1_000, 1_000_000, 20
pytestmark = pytest.mark.timeout(1_800)  # 30,000 partitions and a million records are made
SETTINGS = ClientSettings(request_timeout_s=120, deadline_s=120)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningBroker, Kafka]]:
    own, clients = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    secured = secured_settings(own, clients) | {"super.users": "User:ANONYMOUS;User:alice"}
    with RunningBroker(secured) as broker, KafkaClient(own, SETTINGS) as client:
        add_user(client, "alice", PASSWORD)
        names = [f"topic-{number:05d}" for number in range(TOPICS)]
        for at in range(0, TOPICS, 1_000):
            assert not create_topics(
                client, [NewTopic(name, 3, 1) for name in names[at : at + 1_000]]
            )
        for number in range(GROUPS):
            place = TopicPartition(names[number], 0)
            assert not commit_offsets(client, f"group-{number:04d}", {place: CommittedOffset(0)})
        yield broker, Kafka(client)


def own_of(broker: RunningBroker) -> str:
    """The listener without a login."""
    return broker.settings["listeners"].partition(",")[0].rpartition("//")[2]


def timed(what: str, visitor: Visitor, path: str) -> str:
    times = []
    for _ in range(3):
        began = time.perf_counter()
        answer = visitor.get(path)
        times.append(time.perf_counter() - began)
        assert answer.status == 200, answer.text
    print(f"{what}: first {times[0]:.2f} s, then {min(times[1:]):.2f} s, "
          f"{len(answer.text) / 1000:.0f} KB")  # fmt: skip
    return answer.text


@pytest.mark.long  # 30,000 partitions are made first
def test_ten_thousand_topics_and_a_thousand_groups(
    large: tuple[RunningBroker, Kafka], tmp_path: Path
) -> None:
    broker, _ = large
    with Console(own_of(broker), tmp_path) as console:
        visitor = Visitor(console).enter()
        assert "10,000 topics" in timed("topics", visitor, "/topics").replace("of 10,000", "10,000")
        assert "topic-04999" in timed("topics, page 100", visitor, "/topics?page=100")
        found = timed("topics, search", visitor, "/topics?q=0777")
        assert set(re.findall(r">(topic-\d+)<", found)) == {"topic-00777", *(
            f"topic-0777{n}" for n in range(10)
        )}  # fmt: skip
        timed("topics by size", visitor, "/topics?sort=size&order=desc")
        timed("overview", visitor, "/")
        timed("brokers", visitor, "/brokers")
        timed("one topic", visitor, "/topics/topic-00777")
        assert "group-0049" in timed("groups", visitor, "/groups")
        timed("groups, search", visitor, "/groups?q=0777")
        timed("groups of a topic", visitor, "/topics/topic-00777/groups")
        assert console.process is not None
        memory = psutil.Process(console.process.pid).memory_info().rss >> 20
        print(f"memory of the console: {memory} MB")


@pytest.mark.long  # a million records are written and read
def test_a_million_records_are_browsed_and_filtered(
    large: tuple[RunningBroker, Kafka], tmp_path: Path
) -> None:
    broker, kafka = large
    kafka.topic("million", 4)
    batch = 10_000
    for at in range(0, RECORDS, batch):
        values: list[Any] = [json.dumps({"n": n, "u": n % 977}).encode()
                             for n in range(at, at + batch)]  # fmt: skip
        kafka.produce("million", values, at // batch % 4)
    with Console(own_of(broker), tmp_path) as console:
        visitor = Visitor(console).enter()
        timed("newest of a million", visitor, "/topics/million/records")
        timed("at an offset", visitor, "/topics/million/records?start=offset&offset=200000")
        for what, query in (
            ("text in a million", f"q={quote(': 777777,')}"),
            ("filter over a million", f"filter={quote('value.n == 777777')}"),
        ):
            began = time.perf_counter()
            lines = visitor.get(f"/topics/million/records/stream?{query}").text.splitlines()
            elapsed = time.perf_counter() - began
            events = [json.loads(line) for line in lines]
            assert len([one for one in events if one["event"] == "record"]) == 1
            scanned = [one for one in events if one["event"] == "progress"][-1]["scanned"]
            assert scanned == RECORDS
            print(f"{what}: {elapsed:.1f} s, {scanned / elapsed:,.0f} records/s")


@pytest.mark.long  # 30,000 partitions are made first
def test_memory_of_twenty_sessions(large: tuple[RunningBroker, Kafka], tmp_path: Path) -> None:
    """Each logs in, so each has answers and connections of its own: nothing is shared."""
    broker, _ = large
    clients = broker.settings["listeners"].rpartition("//")[2]
    with Console(clients, tmp_path, "--login", "SCRAM-SHA-512") as console:
        assert console.process is not None
        process = psutil.Process(console.process.pid)
        empty = process.memory_info().rss >> 20
        sizes = []
        for _ in range(SESSIONS):
            visitor = Visitor(console)
            assert visitor.login("alice", PASSWORD).status == 303
            for path in ("/", "/topics", "/groups"):
                assert visitor.get(path).status == 200
            sizes.append(process.memory_info().rss >> 20)
        print(f"memory: {empty} MB at the start, {sizes[0]} MB with one session, {sizes[-1]} MB "
              f"with {SESSIONS}")  # fmt: skip
