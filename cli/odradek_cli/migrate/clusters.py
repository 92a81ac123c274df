"""Source and destination: their topics, settings and offsets; topics are created before the copy.

While records are copied, the destination must neither delete nor change any: what a topic says
about retention, compaction and timestamps is held back (`HELD_BACK`) until the cut-over.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from odradek_cli.client import about, found, open_client, raise_first
from odradek_cli.errors import CliError
from odradek_cli.migrate.state import Place
from odradek_protocol.client.admin.configs import (
    ConfigChange,
    ConfigOperation,
    ConfigSource,
    ResourceType,
    alter_configs,
    describe_configs,
)
from odradek_protocol.client.admin.offsets import EARLIEST, LATEST, IsolationLevel, list_offsets
from odradek_protocol.client.admin.topics import NewTopic, create_partitions, create_topics
from odradek_protocol.client.metadata import TopicInfo
from odradek_protocol.ids import TopicPartition

# The value while copying; the source's own value, or the default, is set at the cut-over.
HELD_BACK = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.after.max.ms": "9223372036854775807",
    "max.message.bytes": "104857600",  # copies may be in larger batches
}

SETTLE_PAUSE_S = 0.05

# Every cluster has its own; they are not copied.
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
    configs: dict[str, str]  # set on the topic itself

    @property
    def places(self) -> list[Place]:
        return [(self.name, partition) for partition in range(self.partitions)]


class MigrationSide:
    """One side of the migration: the requests that are sent to it."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.client = open_client(bootstrap)
        with about(bootstrap):
            metadata = self.client.metadata(())
        self.cluster_id = metadata.cluster_id
        self.brokers = len(metadata.brokers)

    def close(self) -> None:
        self.client.close()

    def topics(self, wanted: Iterable[str]) -> list[SourceTopic]:
        """The named topics, or all except the internal ones."""
        known = self._all_topics()
        names = sorted(wanted) or sorted(name for name in known if name not in INTERNAL)
        for name in names:
            if name in INTERNAL:
                raise CliError(f"--topic {name}: internal topics are not migrated")
            if name not in known:
                raise CliError(f"--topic {name}: not in the source {self.bootstrap}")
        configs = self.configs(names)
        return [
            SourceTopic(
                name,
                len(known[name].partitions),
                max((len(p.replicas) for p in known[name].partitions.values()), default=1),
                configs[name],
            )
            for name in names
        ]

    def partition_counts(self) -> dict[str, int]:
        return {name: len(topic.partitions) for name, topic in self._all_topics().items()}

    def configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Topic → the settings that were made on it."""
        answers = describe_configs(self.client, ResourceType.TOPIC, topics)
        return {
            name: {
                entry.name: entry.value
                for entry in found(f"topic {name}", answer).values()
                if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG and entry.value is not None
            }
            for name, answer in answers.items()
        }

    def _all_topics(self) -> dict[str, TopicInfo]:
        with about(self.bootstrap):
            return self.client.metadata().topics

    def starts(self, places: Iterable[Place]) -> dict[Place, int]:
        return self._offsets(places, EARLIEST)

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """The last stable offsets: records after them are in transactions that are still open."""
        return self._offsets(places, LATEST)

    def high_watermarks(self, places: Iterable[Place]) -> dict[Place, int]:
        return self._offsets(places, LATEST, IsolationLevel.READ_UNCOMMITTED)

    def settled(self, places: Iterable[Place], deadline_s: float) -> bool:
        """Waits until no transaction is open in these partitions.

        A commit is answered before its markers are written: until they are, the last stable
        offset stays behind the committed one.
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
        timestamp_ms: int,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[Place, int]:
        wanted = [TopicPartition(*place) for place in places]
        with about(f"offsets of {self.bootstrap}"):
            answers = list_offsets(
                self.client, wanted, timestamp_ms, isolation, wait_for_topics=True
            )
        return {
            place: found(f"offset of {place} in {self.bootstrap}", answer)
            for place, answer in answers.items()
        }


def make_ready(
    destination: MigrationSide, topics: list[SourceTopic], replication: int | None
) -> None:
    """Creates missing topics, and adds partitions where the source has more by now."""
    counts = destination.partition_counts()
    for topic in topics:
        with about(f"topic {topic.name}"):
            if topic.name not in counts:
                _create(destination, topic, replication)
            elif counts[topic.name] > topic.partitions:
                raise CliError(
                    f"topic {topic.name}: {counts[topic.name]} partitions in the destination, "
                    f"{topic.partitions} in the source"
                )
            elif counts[topic.name] < topic.partitions:
                wanted = {topic.name: topic.partitions}
                raise_first("topic", create_partitions(destination.client, wanted))


def _create(destination: MigrationSide, topic: SourceTopic, replication: int | None) -> None:
    new = NewTopic(
        topic.name,
        topic.partitions,
        replication or min(topic.replication_factor, destination.brokers),
        {**topic.configs, **HELD_BACK},
    )
    refused = create_topics(destination.client, [new])
    raise_first("topic", {n: e for n, e in refused.items() if e.name != "TOPIC_ALREADY_EXISTS"})


def release(destination: MigrationSide, topics: list[SourceTopic]) -> None:
    """Restores the settings that were held back: the source's, or the destination's defaults."""
    changes = {
        topic.name: [
            ConfigChange(name, ConfigOperation.SET, topic.configs[name])
            if name in topic.configs
            else ConfigChange(name, ConfigOperation.DELETE)
            for name in HELD_BACK
        ]
        for topic in topics
    }
    if changes:
        with about(f"settings of topics in {destination.bootstrap}"):
            raise_first("topic", alter_configs(destination.client, ResourceType.TOPIC, changes))
