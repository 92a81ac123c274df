"""A topology and the topics of the cluster: how many tasks, and which topics are missing or wrong.

    1  all source topics exist                      else MISSING_SOURCE_TOPICS
    2  a repartition topic without a number of partitions gets that of the subtopology that writes
    3  copartitioned topics have the same number    else INCORRECTLY_PARTITIONED_TOPICS
    4  a changelog topic has one partition per task
    5  internal topics exist, with these numbers    else MISSING_INTERNAL_TOPICS, or as 3

Does no I/O. Example: "lines" with 4 partitions → subtopology 0 with 4 tasks writes the repartition
topic "by-word", which so gets 4 partitions → subtopology 1 with 4 tasks and a changelog of 4.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from odradek_broker.group.streams.topology import Subtopology, TopicInfo, Topology
from odradek_broker.metadata.image import MetadataImage
from odradek_protocol.error_codes import ErrorCode, KafkaError

SHOWN_MAX = 3


class TopicsStatus(IntEnum):
    """In heartbeat responses: the client shows them, and stops the application for some."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class Problem(NamedTuple):
    status: TopicsStatus
    detail: str


class ConfiguredSubtopology(NamedTuple):
    tasks: int
    partitions: Mapping[str, int]  # of its internal topics
    stateful: bool


class Configured(NamedTuple):
    """Ready for tasks if there is no problem. `missing` are internal topics to create."""

    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    missing: tuple[TopicInfo, ...] = ()  # with their numbers of partitions
    problem: Problem | None = None

    @property
    def is_ready(self) -> bool:
        return self.problem is None


class _TopicsError(Exception):
    def __init__(self, status: TopicsStatus, detail: str) -> None:
        super().__init__(detail)
        self.problem = Problem(status, detail)


def configure(topology: Topology, image: MetadataImage) -> Configured:
    """KafkaError(STREAMS_INVALID_TOPOLOGY) if no topics could ever fit."""
    try:
        return _configured(topology, image)
    except _TopicsError as error:
        return Configured(None, problem=error.problem)


def _configured(topology: Topology, image: MetadataImage) -> Configured:
    everything = list(topology.subtopologies.values())
    absent = sorted({n for one in everything for n in one.source_topics if n not in image.topics})
    if absent:
        detail = f"Source topics {summary(absent)} are missing."
        raise _TopicsError(TopicsStatus.MISSING_SOURCE_TOPICS, detail)
    existing = {
        name: len(image.topics[name].partitions)
        for name in topology.required_topics
        if name in image.topics
    }
    decided = _repartition_counts(everything, existing)
    _enforce_copartitioning(everything, existing, decided)
    configured = {}
    for one in sorted(everything, key=lambda one: one.id):
        if not one.inputs:
            raise _invalid(f"No source topics found for subtopology {one.id}")
        tasks = max(_count(name, existing, decided) for name in one.inputs)
        own = {
            topic.name: topic.partitions or decided[topic.name] for topic in one.repartition_sources
        }
        own.update((topic.name, topic.partitions or tasks) for topic in one.changelogs)
        configured[one.id] = ConfiguredSubtopology(tasks, own, bool(one.changelogs))
    missing = _missing(everything, configured, existing)
    if not missing:
        return Configured(configured)
    detail = f"Internal topics are missing: {summary([topic.name for topic in missing])}"
    return Configured(configured, missing, Problem(TopicsStatus.MISSING_INTERNAL_TOPICS, detail))


def _repartition_counts(
    everything: Iterable[Subtopology], existing: Mapping[str, int]
) -> dict[str, int]:
    """A topic has as many partitions as the largest input of the subtopology that writes it. That
    may be a repartition topic itself, so this repeats until nothing is left to decide."""
    decided = {
        topic.name: topic.partitions
        for one in everything
        for topic in one.repartition_sources
        if topic.partitions
    }
    while True:
        open_, progress = False, False
        for one in everything:
            for sink in one.repartition_sinks:
                if sink in decided:
                    continue
                inputs = [decided.get(topic.name, 0) for topic in one.repartition_sources]
                inputs += [existing.get(name, 0) for name in one.source_topics]
                if not any(inputs):
                    open_ = True
                    continue
                decided[sink] = max(inputs)
                progress = True
        if not open_:
            break
        if not progress:
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics. There may be "
                "loops in the topology that cannot be resolved."
            )
    unwritten = [
        topic.name
        for one in everything
        for topic in one.repartition_sources
        if topic.name not in decided
    ]
    if unwritten:
        raise _invalid(f"No subtopology writes the repartition topics {summary(unwritten)}.")
    return decided


def _enforce_copartitioning(
    everything: Collection[Subtopology], existing: Mapping[str, int], decided: dict[str, int]
) -> None:
    sources = [topic for one in everything for topic in one.repartition_sources]
    fixed = {topic.name for topic in sources if topic.partitions}
    internal = {topic.name for topic in sources}
    for one in everything:
        try:
            groups = one.copartitioned()
        except IndexError:
            raise _invalid(f"A copartition group of {one.id} has an invalid index.") from None
        for group in groups:
            _enforce(group, fixed, internal, existing, decided)


def _enforce(
    group: frozenset[str],
    fixed: Collection[str],
    internal: Collection[str],
    existing: Mapping[str, int],
    decided: dict[str, int],
) -> None:
    counts = {name: _count(name, existing, decided) for name in sorted(group)}
    flexible = {name: count for name, count in counts.items() if name in internal}
    outside = {name: count for name, count in counts.items() if name not in internal}
    pinned = {name: count for name, count in flexible.items() if name in fixed}
    # The others follow external topics, else those that the application has fixed.
    leading = outside or pinned
    if len(set(leading.values())) > 1:
        shown = "{" + ", ".join(f"{name}={count}" for name, count in leading.items()) + "}"
        raise _TopicsError(
            TopicsStatus.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{shown}]",
        )
    wanted = next(iter(leading.values()), None) or max(flexible.values(), default=0)
    for name, count in flexible.items():
        if name in fixed and count != wanted:
            raise _TopicsError(
                TopicsStatus.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{count}] of repartition topic [{name}] doesn't match "
                f"number of partitions [{wanted}] of the source topic.",
            )
        decided[name] = wanted


def _missing(
    everything: Iterable[Subtopology],
    configured: Mapping[str, ConfiguredSubtopology],
    existing: Mapping[str, int],
) -> tuple[TopicInfo, ...]:
    missing: dict[str, TopicInfo] = {}
    for one in everything:
        for topic in (*one.repartition_sources, *one.changelogs):
            wanted = configured[one.id].partitions[topic.name]
            found = existing.get(topic.name)
            if found is None:
                missing[topic.name] = topic._replace(partitions=wanted)
            elif found != wanted:
                raise _TopicsError(
                    TopicsStatus.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Existing topic {topic.name} has different number of partitions: expected "
                    f"{wanted}, found {found}",
                )
    return tuple(missing[name] for name in sorted(missing))


def _count(name: str, existing: Mapping[str, int], decided: Mapping[str, int]) -> int:
    """An existing topic keeps its number of partitions, whatever was decided, as in Kafka."""
    return existing[name] if name in existing else decided[name]


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.streams_invalid_topology, reason)


def summary(names: Collection[str]) -> str:
    shown = ", ".join(list(names)[:SHOWN_MAX])
    more = len(names) - SHOWN_MAX
    return f"{shown} and {more} additional topics" if more > 0 else shown
