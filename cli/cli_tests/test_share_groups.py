"""`odradek share-groups`, and `odradek consume --share`: a queue from the command line.

With ODRADEK_TEST_ENGINE=apache the same tests run against Apache Kafka.
"""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from cli_tests.conftest import Odradek
from odradek_protocol.client import KafkaClient
from odradek_protocol.client.admin.share_groups import describe_share_group
from odradek_protocol.client.share_consumer import ShareConsumer, ShareRecord
from odradek_protocol.client.share_session import FetchLimits
from odradek_protocol.share_codes import AcknowledgeType
from odradek_testkit import engines as harness
from odradek_testkit.engines import Server
from odradek_testkit.waiting import DEADLINE_S, wait_until

SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "100",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.min.record.lock.duration.ms": "1000",
}
AsJson = Callable[..., Any]
Names = tuple[str, str]
RELEASE = AcknowledgeType.RELEASE


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with harness.engine()(SETTINGS, directory=tmp_path_factory.mktemp("cli")) as running:
        yield running


@pytest.fixture
def names(odradek: Odradek) -> Names:
    """A topic with one partition, and a group that reads it from its beginning."""
    unique = uuid.uuid4().hex[:8]
    topic, group = f"t-{unique}", f"g-{unique}"
    odradek("topics", "create", topic, "-p", "1")
    odradek("configs", "alter", "group", group, "--set", "share.auto.offset.reset=earliest")
    return topic, group


def numbers(count: int, first: int = 0) -> str:
    return "".join(f"{n}\n" for n in range(first, first + count))


def member(broker: Server, topic: str, group: str, *more: str) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "odradek_cli", "consume", topic, "--share", group]
    command += ["--bootstrap", broker.bootstrap, *more]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )


class Printed:
    """The lines of several processes, in the order in which they arrive."""

    def __init__(self, *processes: subprocess.Popen[str]) -> None:
        self._lines: queue.Queue[tuple[int, str]] = queue.Queue()
        self._threads = [
            threading.Thread(target=self._read, args=(which, process))
            for which, process in enumerate(processes)
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, which: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.put((which, line.strip()))

    def next(self) -> tuple[int, str]:
        return self._lines.get(timeout=DEADLINE_S)

    def rest(self) -> list[tuple[int, str]]:
        """The records left when all processes have ended."""
        for thread in self._threads:
            thread.join()
        return [self._lines.get() for _ in range(self._lines.qsize())]


def lines_of(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(count)]


def poll_until(consumer: ShareConsumer, count: int) -> list[ShareRecord]:
    found: list[ShareRecord] = []

    def enough() -> bool:
        found.extend(consumer.poll())
        return len(found) >= count

    wait_until(enough, f"{count} records")
    return found


def members(broker: Server, group: str) -> list[str]:
    with KafkaClient(broker.bootstrap) as client:
        return [one.member_id for one in describe_share_group(client, group).members]


def values(records: list[ShareRecord]) -> list[int]:
    return [int(one.record.value or b"") for one in records]


# -- consume ---------------------------------------------------------------------------------------


def test_a_queue_is_emptied(odradek: Odradek, as_json: AsJson, names: Names) -> None:
    topic, group = names
    odradek("produce", topic, "-K", ":", "-H", "from=cli", stdin="k:a\nk:b\nk:c\n")
    assert odradek("consume", topic, "--share", group, "-n", "2").stdout == "a\nb\n"
    (left,) = as_json("share-groups", "describe", group)
    assert (left["state"], left["lag"]) == ("Empty", 1), "the command has left the group"
    done = odradek("consume", topic, "--share", group, "-e", "--format", "%t %p %o %k %v %h\n")
    assert done.stdout == f"{topic} 0 2 k c from=cli\n"
    assert done.stderr == ""
    assert odradek("consume", topic, "--share", group, "--until-end").stdout == ""


def test_two_members_share_one_partition(broker: Server, odradek: Odradek, names: Names) -> None:
    """1. Both are members. 2. Records are produced one batch at a time, so that both get some.
    3. Together they print every record, once."""
    topic, group = names
    with member(broker, topic, group) as first, member(broker, topic, group) as second:
        printed = Printed(first, second)
        seen: dict[int, list[str]] = {0: [], 1: []}
        try:
            wait_until(lambda: len(members(broker, group)) == 2, "two members")
            sent = 0
            while not all(seen.values()):
                odradek("produce", topic, stdin=numbers(5, sent))
                sent += 5
                while sum(map(len, seen.values())) < sent:
                    which, line = printed.next()
                    seen[which].append(line)
        finally:
            first.send_signal(signal.SIGTERM)
            second.send_signal(signal.SIGINT)
        assert (first.wait(), second.wait()) == (128 + signal.SIGTERM, 130)
        assert printed.rest() == [], "nothing is delivered twice"
    assert sorted(int(n) for n in seen[0] + seen[1]) == list(range(sent))
    assert members(broker, group) == [], "both have left"


def test_the_records_of_a_killed_member_are_delivered_again(
    broker: Server, odradek: Odradek, names: Names
) -> None:
    """1. A member stops in the middle of its records, because nobody reads its output: it has
    accepted none of them. 2. It is killed with SIGKILL. 3. The next member gets them all."""
    topic, group = names
    odradek("configs", "alter", "group", group, "--set", "share.record.lock.duration.ms=1000")
    big = "x" * 40_000  # more than one of these does not fit into a pipe
    odradek("produce", topic, stdin="".join(f"{n}:{big}\n" for n in range(6)))
    with member(broker, topic, group) as first:
        (line,) = lines_of(first, 1)
        assert line.startswith("0:")
        first.kill()
    done = odradek("consume", topic, "--share", group, "-n", "6", "--format", "%o\n")
    assert sorted(int(n) for n in done.stdout.split()) == list(range(6))


def test_records_that_were_not_printed_are_released_at_once(
    broker: Server, odradek: Odradek, names: Names
) -> None:
    """The reader of the output ends after one line, and so does the command: the printed record is
    accepted, and another member gets the others before their locks time out."""
    topic, group = names
    big = "x" * 40_000
    odradek("produce", topic, stdin="".join(f"{n}:{big}\n" for n in range(6)))
    with member(broker, topic, group) as first:
        lines_of(first, 1)
        assert first.stdout is not None
        first.stdout.close()
        first.wait()
    with (
        KafkaClient(broker.bootstrap) as client,
        closing(ShareConsumer(client, group, [topic])) as second,
    ):
        found = poll_until(second, 1)
        offsets = [one.record.offset for one in found]
        assert offsets == list(range(offsets[0], 6))
        assert offsets[0] > 0, "the first was printed"
        assert {one.delivery_count for one in found} == {2}


def test_wrong_use(odradek: Odradek, names: Names) -> None:
    topic, group = names
    how = ("consume", topic, "--share", group)
    for more in (("--from-beginning",), ("-p", "0"), ("-o", "1"), ("-t", "1")):
        assert "share.auto.offset.reset" in odradek(*how, *more, code=2).stderr
    assert "exclude" in odradek(*how, "--group", "other", code=2).stderr
    missing = odradek("consume", "nothing", "--share", group, code=1).stderr
    assert "topic nothing: there is no such topic" in missing


# -- share-groups ----------------------------------------------------------------------------------


def test_list_and_describe(broker: Server, odradek: Odradek, as_json: AsJson, names: Names) -> None:
    topic, group = names
    odradek("produce", topic, stdin=numbers(10))
    with (
        KafkaClient(broker.bootstrap) as client,
        closing(
            ShareConsumer(client, group, [topic], limits=FetchLimits(max_records=4))
        ) as consumer,
    ):
        found = poll_until(consumer, 4)
        for record in found[:3]:
            consumer.acknowledge(record)
        consumer.acknowledge(found[3], RELEASE)
        consumer.poll()
        (described,) = as_json("share-groups", "describe", group)
        assert (described["state"], described["assignor"]) == ("Stable", "simple")
        assert described["epoch"] == described["assignment_epoch"] > 0
        (me,) = described["members"]
        assert me["member_id"] == consumer.member_id
        assert me["topics"] == [topic]
        assert me["partitions"] == [{"topic": topic, "partition": 0}]
        assert me["epoch"] == described["epoch"]
        text = odradek("share-groups", "describe", group, "--members").stdout
        assert f"{topic} 0" in text
        assert consumer.member_id in text
        refused = odradek("share-groups", "reset", group, "--to-earliest", code=1).stderr
        assert "1 active members (state Stable): stop them first" in refused
        assert "NON_EMPTY_GROUP" in odradek("share-groups", "delete", group, "-y", code=1).stderr
    (described,) = as_json("share-groups", "describe", group)
    assert (described["state"], described["members"]) == ("Empty", [])
    (partition,) = described["partitions"]
    assert (partition["start"], partition["lag"], described["lag"]) == (3, 7, 7)
    text = odradek("share-groups", "describe", group).stdout
    assert f"{group}: Empty" in text
    assert f"{topic}-0" in text
    assert {"group": group, "state": "Empty"} in as_json("share-groups", "list")
    assert group in odradek("share-groups", "list").stdout
    assert all(one["group"] != group for one in as_json("groups", "list"))


def test_resets(odradek: Odradek, as_json: AsJson, names: Names) -> None:
    topic, group = names
    odradek("produce", topic, stdin=numbers(5))
    between_ms = int(time.time() * 1000) + 1
    wait_until(lambda: time.time() * 1000 > between_ms)
    odradek("produce", topic, stdin=numbers(5, 5))
    odradek("consume", topic, "--share", group, "-n", "10")

    def reset(*how: str) -> tuple[int, int]:
        (done,) = as_json("share-groups", "reset", group, *how)
        assert (done["topic"], done["partition"]) == (topic, 0)
        return done["from"], done["to"]

    # Kafka shows the start offset as it was before the last acknowledgement (SKIPPED.md).
    before = 0 if harness.on_apache() else 10
    assert reset("--to-earliest", "--dry-run") == (before, 0)
    assert reset("--to-timestamp", str(between_ms)) == (before, 5), "nothing was changed before"
    assert reset("--to-offset", "7") == (5, 7)
    assert reset("--by-duration", "1h") == (7, 0)
    assert reset("--to-offset", "999") == (0, 10), "not beyond the end"
    assert reset("--to-latest", "--topic", topic) == (10, 10)
    assert reset("--to-offset", "8", "--topic", f"{topic}:0") == (10, 8)
    table = odradek("share-groups", "reset", group, "--to-latest", "--dry-run").stdout
    assert "Nothing was changed (--dry-run)." in table
    assert odradek("consume", topic, "--share", group, "-n", "2").stdout == "8\n9\n"


def test_a_group_is_prepared_before_its_first_member(
    odradek: Odradek, as_json: AsJson, names: Names
) -> None:
    topic, group = names
    odradek("produce", topic, stdin=numbers(5))
    assert "name topics" in odradek("share-groups", "reset", group, "--to-latest", code=1).stderr
    done = as_json("share-groups", "reset", group, "--topic", topic, "--to-offset", "3")
    assert done == [{"topic": topic, "partition": 0, "from": None, "to": 3}]
    assert odradek("consume", topic, "--share", group, "-n", "2").stdout == "3\n4\n"


def test_deletes(odradek: Odradek, as_json: AsJson, names: Names) -> None:
    topic, group = names
    odradek("produce", topic, stdin=numbers(3))
    odradek("consume", topic, "--share", group, "-n", "3")
    offsets = ("share-groups", "delete-offsets", group, "--topic")
    assert "--yes" in odradek(*offsets, topic, code=2).stderr
    assert "no offsets of nothing" in odradek(*offsets, "nothing", "-y", code=1).stderr
    assert as_json(*offsets, topic, "--yes") == {"deleted": [topic]}
    (described,) = as_json("share-groups", "describe", group)
    assert described["partitions"] == []
    assert "--yes" in odradek("share-groups", "delete", group, code=2).stderr
    assert f"Deleted group {group}." in odradek("share-groups", "delete", group, "-y").stdout
    gone = f"group {group}: there is no such share group"
    assert gone in odradek("share-groups", "describe", group, code=1).stderr
    assert gone in odradek("share-groups", "delete", group, "-y", code=1).stderr


def test_a_consumer_group_is_no_share_group(odradek: Odradek, names: Names) -> None:
    topic, group = names
    odradek("produce", topic, stdin=numbers(1))
    odradek("consume", topic, "--group", group, "--from-beginning", "-e")
    assert "no such share group" in odradek("share-groups", "delete", group, "-y", code=1).stderr
    assert group in odradek("groups", "list").stdout


# -- the member itself -----------------------------------------------------------------------------


def test_a_member_that_was_removed_joins_again(
    broker: Server, odradek: Odradek, names: Names
) -> None:
    """It sent no heartbeat for its session: the records that it holds are delivered again, and its
    late acknowledgements are reported."""
    topic, group = names
    setting = "share.session.timeout.ms=1000,share.record.lock.duration.ms=1000"
    for one in setting.split(","):
        odradek("configs", "alter", "group", group, "--set", one)
    odradek("produce", topic, stdin=numbers(3))
    refused: list[str] = []
    with (
        KafkaClient(broker.bootstrap) as client,
        closing(
            ShareConsumer(client, group, [topic], lambda place, error: refused.append(str(place)))
        ) as consumer,
    ):
        late = poll_until(consumer, 3)
        wait_until(lambda: members(broker, group) == [], "the member is removed")
        again = poll_until(consumer, 3)
        assert values(again) == values(late)
        assert {one.delivery_count for one in again} == {2}
        for record in again:
            consumer.acknowledge(record)
        assert refused == []
        consumer.acknowledge(late[0])  # is not locked any more
        assert refused == [f"{topic}-0"]
    assert odradek("consume", topic, "--share", group, "-e").stdout == ""


def test_a_member_outlives_its_broker(broker: Server, odradek: Odradek, names: Names) -> None:
    """The session and the locks end with the broker; the member opens a new one, and what it has
    acknowledged before is not delivered again."""
    topic, group = names
    odradek("produce", topic, stdin=numbers(3))
    with (
        KafkaClient(broker.bootstrap) as client,
        closing(
            ShareConsumer(client, group, [topic], limits=FetchLimits(max_records=2))
        ) as consumer,
    ):
        for record in poll_until(consumer, 2):
            consumer.acknowledge(record)
        assert values(consumer.poll()) == [2], "sent with this poll"
        broker.restart()
        odradek("produce", topic, stdin=numbers(1, 3))
        again = poll_until(consumer, 2)
        assert sorted(values(again)) == [2, 3]
        for record in again:
            consumer.acknowledge(record)
    assert odradek("consume", topic, "--share", group, "-e").stdout == ""
