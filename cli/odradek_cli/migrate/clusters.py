"""Source and destination: their topics, settings and ends, and the topics made ready to be filled.

While records are copied, the destination must neither delete nor change any: what a topic says
about retention, compaction and timestamps is held back (`HELD_BACK`) until the cut-over.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from odradek_cli.client import TIMEOUT_S, connect, settle
from odradek_cli.errors import CliError
from odradek_cli.migrate.patience import patiently
from odradek_cli.migrate.state import Place

# The value while copying; the source's own value, or the default, is set at the cut-over.
HELD_BACK = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.after.max.ms": "9223372036854775807",
    "max.message.bytes": "104857600",  # our batches are not those in which the records came
}

SETTLE_PAUSE_S = 0.05

# Every cluster has its own.
INTERNAL = (
    "__cluster_metadata",
    "__consumer_offsets",
    "__share_group_state",
    "__transaction_state",
)


@dataclass(frozen=True)
class SourceTopic:
    name: str
    partitions: int
    replication_factor: int
    configs: dict[str, str]  # what was set on the topic itself

    @property
    def places(self) -> list[Place]:
        return [(self.name, partition) for partition in range(self.partitions)]


class Cluster:
    """One side, with the questions that a migration asks it."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin: AdminClient = connect(bootstrap)
        metadata = self.admin.list_topics(timeout=TIMEOUT_S)
        self.cluster_id = str(metadata.cluster_id)
        self.brokers = len(metadata.brokers)

    def topics(self, wanted: Iterable[str]) -> list[SourceTopic]:
        """Those named, or all but the internal ones."""
        found = self.admin.list_topics(timeout=TIMEOUT_S).topics
        names = sorted(wanted) or sorted(name for name in found if name not in INTERNAL)
        for name in names:
            if name in INTERNAL:
                raise CliError(f"--topic {name}: every cluster has its own")
            if name not in found:
                raise CliError(f"--topic {name}: not in the source {self.bootstrap}")
        configs = self.configs(names)
        return [
            SourceTopic(
                name,
                len(found[name].partitions),
                max((len(p.replicas) for p in found[name].partitions.values()), default=1),
                configs[name],
            )
            for name in names
        ]

    def partition_counts(self) -> dict[str, int]:
        found = self.admin.list_topics(timeout=TIMEOUT_S).topics
        return {name: len(topic.partitions) for name, topic in found.items()}

    def configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Per topic, what was set on it."""
        asked = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in topics]
        answers = self.admin.describe_configs(asked) if asked else {}
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {
            resource.name: {
                entry.name: entry.value
                for entry in settle(f"topic {resource.name}", answer).values()
                if entry.source == own and entry.value is not None
            }
            for resource, answer in answers.items()
        }

    def starts(self, places: Iterable[Place]) -> dict[Place, int]:
        return self._offsets(places, OffsetSpec.earliest())

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """The last stable offsets: what follows is in transactions that are still open."""
        return self._offsets(places, OffsetSpec.latest())

    def high_watermarks(self, places: Iterable[Place]) -> dict[Place, int]:
        return self._offsets(places, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)

    def settled(self, places: Iterable[Place], deadline_s: float) -> bool:
        """Waits until no transaction is open in these partitions.

        A commit is answered before its markers are written: until they are, the last stable
        offset stays behind what is committed.
        """
        wanted = list(places)
        give_up = time.monotonic() + deadline_s
        while self.ends(wanted) != self.high_watermarks(wanted):
            if time.monotonic() > give_up:
                return False
            time.sleep(SETTLE_PAUSE_S)
        return True

    def _offsets(
        self,
        places: Iterable[Place],
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[Place, int]:
        asked = {TopicPartition(topic, partition): spec for topic, partition in places}
        if not asked:
            return {}

        def ask() -> dict[Place, int]:
            answers = self.admin.list_offsets(
                asked, isolation_level=isolation, request_timeout=TIMEOUT_S
            )
            return {(p.topic, p.partition): a.result(TIMEOUT_S).offset for p, a in answers.items()}

        return patiently(f"offsets of {self.bootstrap}", ask)


def make_ready(destination: Cluster, topics: list[SourceTopic], replication: int | None) -> None:
    """Creates what is missing, and adds partitions where the source has more by now."""
    counts = destination.partition_counts()
    for topic in topics:
        if topic.name not in counts:
            _create(destination, topic, replication)
        elif counts[topic.name] > topic.partitions:
            raise CliError(
                f"topic {topic.name}: {counts[topic.name]} partitions in the destination, "
                f"{topic.partitions} in the source"
            )
        elif counts[topic.name] < topic.partitions:
            grown = destination.admin.create_partitions(
                [NewPartitions(topic.name, topic.partitions)]
            )
            settle(f"topic {topic.name}", grown[topic.name])


def _create(destination: Cluster, topic: SourceTopic, replication: int | None) -> None:
    new = NewTopic(
        topic.name,
        num_partitions=topic.partitions,
        replication_factor=replication or min(topic.replication_factor, destination.brokers),
        config={**topic.configs, **HELD_BACK},
    )
    try:
        destination.admin.create_topics([new])[topic.name].result(TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise CliError(f"topic {topic.name}: {error.args[0].str()}") from error


def release(destination: Cluster, topics: list[SourceTopic]) -> None:
    """What was held back takes effect: the source's settings, or the destination's defaults."""
    changes: list[ConfigResource] = []
    for topic in topics:
        entries: list[Any] = []
        for name in HELD_BACK:
            value = topic.configs.get(name)
            kind = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
            entries.append(ConfigEntry(name, value, incremental_operation=kind))
        changes.append(
            ConfigResource(ConfigResource.Type.TOPIC, topic.name, incremental_configs=entries)
        )
    if changes:
        answers = destination.admin.incremental_alter_configs(changes)
        for resource, answer in answers.items():
            settle(f"topic {resource.name}", answer)
