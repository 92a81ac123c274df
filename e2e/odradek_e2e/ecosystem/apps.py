"""Stream frameworks: a program that reads a topic, writes another one, and is killed meanwhile.

A program is started as `COMMAND BOOTSTRAP PREFIX STATE_DIRECTORY`, reads PREFIX-in (4 partitions)
as group PREFIX-app, and writes each record to PREFIX-out with its key and the value in upper case.
It reports nothing; everything is seen from outside:

- processes: what was written before is in PREFIX-out
- member: the group has one member that owns all partitions, as a group of its protocol (not for
  programs that assign)
- survives kill -9: killed while it works, and started again. at least once: every record is in
  PREFIX-out; exactly once: every record is there once, as a reader of committed records sees it
- state: (Kafka Streams) counts over a repartition topic and a changelog have no gap, no repetition
- commits: the committed offsets of the group are the ends of PREFIX-in
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek_e2e.ecosystem.case import Case, Place
from odradek_e2e.ecosystem.contract import (
    DEADLINE_S,
    PARTITIONS,
    Check,
    Unexpected,
    flush,
    read,
)
from odradek_e2e.ecosystem.running import Checks, Running
from odradek_protocol.client.admin.groups import describe_group, list_groups
from odradek_protocol.client.kafka_client import KafkaClient

PER_PART = 2_000


class Member(Enum):
    """The kind of group that a program joins, and with it how the group is described."""

    CLASSIC = "classic"
    STREAMS = "streams"  # KIP-1071


@dataclass(frozen=True)
class App:
    """The promises of a framework, and the checks that apply to it."""

    name: str
    title: str
    command: Callable[[], Sequence[str]]
    exactly_once: bool = False
    member: Member | None = Member.CLASSIC  # None: it assigns partitions itself
    state: bool = False
    commits: bool = True

    @property
    def guarantee(self) -> str:
        return "exactly once" if self.exactly_once else "at least once"

    def checks(self) -> tuple[str, ...]:
        given = {"processes": True, "member": self.member is not None, self._survives: True,
                 "state": self.state, "commits": self.commits}  # fmt: skip
        return tuple(name for name, there in given.items() if there)

    @property
    def _survives(self) -> str:
        return f"survives kill -9 ({self.guarantee})"

    def case(self) -> Case:
        return Case(self.name, self.title, self.run, checks=self.checks())

    def run(self, place: Place) -> list[Check]:
        started = [*self.command(), place.server.bootstrap, place.prefix]  # builds it, if needed
        world = Topics(place.server.bootstrap, place.prefix)
        world.create()
        checks = Checks()
        state = str(place.directory / "state")
        with Running(self.name, [*started, state], place.directory) as program:
            checks.run("processes", lambda: self._processes(world, program))
            if self.member is Member.CLASSIC:
                checks.run("member", lambda: world.one_member(program))
            if self.member is Member.STREAMS:
                checks.run("member", lambda: world.one_streams_member(program))
            checks.run(self._survives, lambda: self._survive(world, program))
            if self.state:
                checks.run("state", lambda: world.counted(program))
            if self.commits:
                checks.run("commits", lambda: world.committed(program))
        return checks.found

    def _processes(self, world: Topics, program: Running) -> None:
        world.write()
        program.wait(world.complete, "the first records are in the output")

    def _survive(self, world: Topics, program: Running) -> None:
        before = len(world.output())
        world.write()
        program.wait(lambda: len(world.output()) > before, "records of the second part are out")
        program.kill()
        world.write()
        program.start()
        program.wait(world.complete, "every record is in the output")
        if self.exactly_once:
            world.write("end")  # what would be written twice is written before this
            program.wait(world.complete, "the last records are in the output")
            twice = [key for key, times in Counter(world.output()).items() if times > 1]
            if twice:
                raise Unexpected(f"{len(twice)} records are there twice, the first is {twice[0]}")


class Topics:
    """The topics of one program, as librdkafka sees them."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self._bootstrap = bootstrap
        self._prefix = prefix
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._written: dict[str, str] = {}

    def create(self) -> None:
        names = [f"{self._prefix}-{name}" for name in ("in", "out", "counts")]
        new = [NewTopic(name, PARTITIONS, 1) for name in names]
        for made in self._admin.create_topics(new).values():
            made.result(DEADLINE_S)

    def write(self, what: str = "text", count: int = PER_PART) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True})
        for number in range(len(self._written), len(self._written) + count):
            self._written[f"k{number}"] = f"{what} {number}"
            producer.produce(f"{self._prefix}-in", f"{what} {number}", f"k{number}")
            producer.poll(0)
        flush(producer)

    def output(self) -> list[str]:
        """The keys of the committed output; every value has to be that of its key."""
        keys = []
        for message in read(self._bootstrap, f"{self._prefix}-out", range(PARTITIONS)):
            key, value = (message.key() or b"").decode(), (message.value() or b"").decode()
            if value != self._written.get(key, "").upper():
                raise Unexpected(f"record {key} has the value {value!r}")
            keys.append(key)
        return keys

    def complete(self) -> bool:
        return set(self.output()) == set(self._written)

    def one_member(self, program: Running) -> None:
        group = f"{self._prefix}-app"

        def owns() -> bool:
            described = self._admin.describe_consumer_groups([group])[group].result(DEADLINE_S)
            assigned = [
                place
                for member in described.members
                for place in member.assignment.topic_partitions
                if place.topic == f"{self._prefix}-in"
            ]
            return sorted(place.partition for place in assigned) == list(range(PARTITIONS))

        program.wait(owns, f"a member of {group} owns all partitions")

    def one_streams_member(self, program: Running) -> None:
        group = f"{self._prefix}-app"

        def owns() -> bool:
            with KafkaClient(self._bootstrap) as client:
                (listed,) = (one for one in list_groups(client) if one.group_id == group)
                described = describe_group(client, group)
            owned = [p.partition for member in described.members for p in member.assignment
                     if p.topic == f"{self._prefix}-in"]  # fmt: skip
            return listed.type.lower() == "streams" and sorted(owned) == list(range(PARTITIONS))

        program.wait(owns, f"a member of the streams group {group} owns all partitions")

    def committed(self, program: Running) -> None:
        group = f"{self._prefix}-app"
        places = [TopicPartition(f"{self._prefix}-in", number) for number in range(PARTITIONS)]

        def at_the_end() -> bool:
            asked = [ConsumerGroupTopicPartitions(group, places)]
            answer = self._admin.list_consumer_group_offsets(asked)[group].result(DEADLINE_S)
            found = sum(max(place.offset, 0) for place in answer.topic_partitions)
            return bool(found == len(self._written))

        program.wait(at_the_end, f"{group} has committed the end of its topic")

    def counted(self, program: Running) -> None:
        wanted = Counter(key[-1] for key in self._written)
        topic = f"{self._prefix}-counts"
        found: dict[str, list[int]] = {}

        def all_there() -> bool:
            found.clear()
            for message in read(self._bootstrap, topic, range(PARTITIONS)):
                key, value = message.key() or b"", message.value() or b""
                found.setdefault(key.decode(), []).append(int(value))
            return sum(map(len, found.values())) >= wanted.total()

        program.wait(all_there, "every record is counted")
        for tenth, count in wanted.items():
            if found.get(tenth) != list(range(1, count + 1)):
                raise Unexpected(f"the counts of {tenth} are not 1 to {count}: a gap or repetition")
