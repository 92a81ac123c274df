"""The topology of a Kafka Streams application, as its members send it. Does no I/O.

A subtopology reads source topics and repartition topics, writes repartition topics of other
subtopologies, and keeps its state in changelog topics. Repartition and changelog topics are
internal: they are created for the application.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from odradek_protocol.messages.struct import Struct


class TopicInfo(NamedTuple):
    """An internal topic. `partitions` is 0 if it follows from the subtopology; replication_factor 0
    is the default of the cluster."""

    name: str
    partitions: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, found: Any) -> "TopicInfo":
        pairs = tuple((one.key, one.value) for one in found.topic_configs)
        return cls(found.name, found.partitions, found.replication_factor, pairs)

    def struct(self, partitions: int | None = None) -> Struct:
        return Struct(
            name=self.name,
            partitions=self.partitions if partitions is None else partitions,
            replication_factor=self.replication_factor,
            topic_configs=[Struct(key=key, value=value) for key, value in self.configs],
        )


class CopartitionGroup(NamedTuple):
    """Topics with the same number of partitions, as indexes into the subtopology's lists."""

    source_topics: tuple[int, ...]
    source_topic_regex: tuple[int, ...]
    repartition_source_topics: tuple[int, ...]


class Subtopology(NamedTuple):
    id: str
    source_topics: tuple[str, ...]
    source_topic_regex: tuple[str, ...]
    changelogs: tuple[TopicInfo, ...]
    repartition_sinks: tuple[str, ...]
    repartition_sources: tuple[TopicInfo, ...]
    copartition_groups: tuple[CopartitionGroup, ...]

    @classmethod
    def of(cls, found: Any) -> "Subtopology":
        return cls(
            found.subtopology_id,
            tuple(found.source_topics),
            tuple(found.source_topic_regex),
            tuple(TopicInfo.of(one) for one in found.state_changelog_topics),
            tuple(found.repartition_sink_topics),
            tuple(TopicInfo.of(one) for one in found.repartition_source_topics),
            tuple(
                CopartitionGroup(
                    tuple(one.source_topics),
                    tuple(one.source_topic_regex),
                    tuple(one.repartition_source_topics),
                )
                for one in found.copartition_groups
            ),
        )

    @property
    def inputs(self) -> tuple[str, ...]:
        """The topics whose partitions are its tasks."""
        return (*self.source_topics, *(topic.name for topic in self.repartition_sources))

    def copartitioned(self) -> list[frozenset[str]]:
        """The topics of each copartition group; an index that does not exist is an IndexError."""
        return [
            frozenset(
                (
                    *(self.source_topics[index] for index in group.source_topics),
                    *(
                        self.repartition_sources[index].name
                        for index in group.repartition_source_topics
                    ),
                )
            )
            for group in self.copartition_groups
        ]

    def struct(self) -> Struct:
        return Struct(
            subtopology_id=self.id,
            source_topics=list(self.source_topics),
            source_topic_regex=list(self.source_topic_regex),
            state_changelog_topics=[topic.struct() for topic in self.changelogs],
            repartition_sink_topics=list(self.repartition_sinks),
            repartition_source_topics=[topic.struct() for topic in self.repartition_sources],
            copartition_groups=[
                Struct(
                    source_topics=list(group.source_topics),
                    source_topic_regex=list(group.source_topic_regex),
                    repartition_source_topics=list(group.repartition_source_topics),
                )
                for group in self.copartition_groups
            ],
        )


class Topology:
    """Immutable. Equal if the subtopologies are, in any order."""

    def __init__(self, epoch: int, subtopologies: Iterable[Subtopology]) -> None:
        self.epoch = epoch
        self.subtopologies: Mapping[str, Subtopology] = {one.id: one for one in subtopologies}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Topology):
            return NotImplemented
        return self.epoch == other.epoch and self.subtopologies == other.subtopologies

    def __hash__(self) -> int:
        return hash((self.epoch, *sorted(self.subtopologies)))

    @classmethod
    def of(cls, found: Any) -> "Topology":
        """From a request or a record."""
        return cls(found.epoch, [Subtopology.of(one) for one in found.subtopologies])

    def struct(self) -> Struct:
        return Struct(
            epoch=self.epoch, subtopologies=[one.struct() for one in self.subtopologies.values()]
        )

    @cached_property
    def subtopology_of(self) -> Mapping[str, str]:
        """Input topic → the subtopology that reads it."""
        return {name: one.id for one in self.subtopologies.values() for name in one.inputs}

    @cached_property
    def required_topics(self) -> frozenset[str]:
        """All topics that have to exist before there are tasks."""
        return frozenset(
            name
            for one in self.subtopologies.values()
            for name in (*one.inputs, *(topic.name for topic in one.changelogs))
        )


def topics_named(topology: Any) -> list[str]:
    """Every topic in the topology of a request, each once, in the order of the request."""
    return list(
        dict.fromkeys(
            name
            for one in topology.subtopologies
            for name in (
                *one.source_topics,
                *one.repartition_sink_topics,
                *(topic.name for topic in one.repartition_source_topics),
                *(topic.name for topic in one.state_changelog_topics),
            )
        )
    )
