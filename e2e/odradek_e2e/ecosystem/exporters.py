"""Exporters: what they report on /metrics is compared with what the suite wrote and committed.

- topics: partitions and ends of PREFIX-seen
- groups: the lag of a group without members, and after a commit its new one
- cluster: one broker (kminion: with the cluster's id)
- end to end: (kminion) its own records come back to it
"""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek_e2e.ecosystem.build import PROGRAMS, go_tool
from odradek_e2e.ecosystem.case import Case, Place
from odradek_e2e.ecosystem.contract import DEADLINE_S, PARTITIONS, Check, Unexpected, flush
from odradek_e2e.ecosystem.running import Checks, Running
from odradek_testkit.ports import free_port

RECORDS = 1_000
SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Samples = dict[str, list[tuple[dict[str, str], float]]]  # metric → labels and value


@dataclass(frozen=True)
class Exporter:
    """One exporter: how it is started, and the names that it gives things."""

    name: str
    package: str
    partition_end: str
    lag: str
    topic_label: str
    group_label: str
    partition_label: str
    flags: Callable[[str, int], list[str]] = lambda *_: []
    env: Callable[[str, int], dict[str, str]] = lambda *_: {}
    more: dict[str, Callable[[Samples, str], bool]] = field(default_factory=dict)

    def case(self) -> Case:
        wanted = (PROGRAMS / self.name / "go.mod").read_text()
        found = re.search(rf"{re.escape(self.package)} (v\S+)", wanted)
        title = f"{self.package.split('/')[2]} {found[1] if found else '?'}"
        return Case(self.name, title, self.run, checks=("topics", "groups", *self.more))

    def run(self, place: Place) -> list[Check]:
        program = str(go_tool(self.name, self.package))
        world = Seen(place)
        port = free_port()
        flags = self.flags(place.server.bootstrap, port)
        env = self.env(place.server.bootstrap, port)
        checks = Checks()
        with Running(self.name, [program, *flags], place.directory, env) as exporter:

            def until(holds: Callable[[Samples], bool], what: str) -> None:
                exporter.wait(lambda: holds(scrape(port)), what)

            checks.run("topics", lambda: until(lambda s: self._ends(s, world), "topics' ends"))
            checks.run("groups", lambda: self._groups(until, world))
            for name, more in self.more.items():
                cluster = world.cluster_id()
                checks.run(name, lambda: until(lambda s: more(s, cluster), name))  # noqa: B023
        return checks.found

    def _ends(self, samples: Samples, world: Seen) -> bool:
        return self._partitions(samples, self.partition_end, world.topic) == world.ends

    def _groups(self, until: Callable[[Callable[[Samples], bool], str], None], world: Seen) -> None:
        for behind in (10, 3):
            world.commit(behind)
            wanted = dict.fromkeys(range(PARTITIONS), behind)
            until(
                lambda s: self._partitions(s, self.lag, world.topic, world.group) == wanted,  # noqa: B023
                f"a lag of {behind} in every partition",
            )

    def _partitions(
        self, samples: Samples, metric: str, topic: str, group: str | None = None
    ) -> dict[int, int]:
        return {
            int(labels[self.partition_label]): int(value)
            for labels, value in samples.get(metric, [])
            if labels.get(self.topic_label) == topic
            and (group is None or labels.get(self.group_label) == group)
        }


class Seen:
    """A topic and a group whose state the suite knows, because it made them."""

    def __init__(self, place: Place) -> None:
        bootstrap = place.server.bootstrap
        self.topic, self.group = f"{place.prefix}-seen", f"{place.prefix}-group"
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        new = [NewTopic(self.topic, PARTITIONS, 1)]
        self._admin.create_topics(new)[self.topic].result(DEADLINE_S)
        self.ends = {number: RECORDS + number for number in range(PARTITIONS)}
        producer = Producer({"bootstrap.servers": bootstrap})
        for partition, count in self.ends.items():
            for number in range(count):
                producer.produce(self.topic, f"value {number}", partition=partition)
            flush(producer)

    def commit(self, behind: int) -> None:
        places = [TopicPartition(self.topic, p, end - behind) for p, end in self.ends.items()]
        asked = [ConsumerGroupTopicPartitions(self.group, places)]
        self._admin.alter_consumer_group_offsets(asked)[self.group].result(DEADLINE_S)

    def cluster_id(self) -> str:
        return str(self._admin.list_topics(timeout=DEADLINE_S).cluster_id)


def scrape(port: int) -> Samples:
    """The samples of /metrics; none while the exporter does not answer yet."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
    except OSError:
        return {}
    found: Samples = {}
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        match = SAMPLE.match(line)
        if match is None:
            raise Unexpected(f"this is no sample: {line}")
        labels = dict(LABEL.findall(match[2] or ""))
        found.setdefault(match[1], []).append((labels, float(match[3])))
    return found


def _one_broker(samples: Samples, _: str) -> bool:
    return [value for _, value in samples.get("kafka_brokers", [])] == [1.0]


def _cluster(samples: Samples, cluster_id: str) -> bool:
    info = samples.get("kminion_kafka_cluster_info", [])
    return [(one.get("broker_count"), one.get("cluster_id")) for one, _ in info] == [
        ("1", cluster_id)
    ]


def _comes_back(samples: Samples, _: str) -> bool:
    received = samples.get("kminion_end_to_end_messages_received_total", [])
    return sum(value for _, value in received) >= 3


CASES = [
    Exporter(
        "kafka-exporter",
        "github.com/danielqsj/kafka_exporter",
        "kafka_topic_partition_current_offset",
        "kafka_consumergroup_lag",
        "topic",
        "consumergroup",
        "partition",
        flags=lambda bootstrap, port: [
            f"--kafka.server={bootstrap}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        more={"cluster": _one_broker},
    ).case(),
    Exporter(
        "kminion",
        "github.com/cloudhut/kminion/v2",
        "kminion_kafka_topic_partition_high_water_mark",
        "kminion_kafka_consumer_group_topic_partition_lag",
        "topic_name",
        "group_id",
        "partition_id",
        env=lambda bootstrap, port: {
            "KAFKA_BROKERS": bootstrap,
            "EXPORTER_HOST": "127.0.0.1",
            "EXPORTER_PORT": str(port),
            "MINION_CONSUMERGROUPS_GRANULARITY": "partition",
            "MINION_TOPICS_GRANULARITY": "partition",
            "MINION_ENDTOEND_ENABLED": "true",
            "MINION_ENDTOEND_PROBEINTERVAL": "500ms",
            "MINION_ENDTOEND_TOPICMANAGEMENT_REPLICATIONFACTOR": "1",
        },
        more={"cluster": _cluster, "end to end": _comes_back},
    ).case(),
]
