"""Topics: create, grow, configure, change replication, adopt, delete or retain, in batches.

A topic is managed by the resource that created or adopted it (`Observed.managed_topics`). This is
persisted before the topic is created (`claims`), so that an operator that dies in between
recognises the topic as its own later. Settings that the spec does not name are left alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from odradek_operator.kafka.actions import (
    AlterTopicConfigs,
    CreateTopics,
    DeleteTopics,
    GrowTopics,
    Plan,
    Reason,
    Reassign,
    Refuse,
    TopicToCreate,
    Wait,
    listed,
)
from odradek_operator.kafka.desired import DesiredTopic
from odradek_operator.kafka.differences import same_value
from odradek_operator.kafka.moves import MOVES_MAX
from odradek_operator.kafka.observed import (
    Observed,
    ObservedKafka,
    Partition,
    Phase,
)
from odradek_operator.kafka.replicas import Load, choose_replicas
from odradek_protocol.ids import TopicPartition

TOPICS_MAX = 200  # in one request to the controller
START_PATIENCE_S = 60.0  # how long new topics wait for starting brokers

T = TypeVar("T")


def claims(topics: Sequence[DesiredTopic], observed: Observed) -> dict[str, str]:
    """Topic name → resource that manages it, to be persisted before acting."""
    assert observed.kafka is not None
    owned: dict[str, str] = {}
    names = Counter(topic.name for topic in topics)
    for topic in topics:
        owner = observed.managed_topics.get(topic.name)
        mine = owner == topic.owner
        free = owner is None and names[topic.name] == 1 and not topic.delete
        if mine or (free and (topic.adopt or topic.name not in observed.kafka.topics)):
            owned[topic.name] = topic.owner
    return owned


def plan_topics(
    topics: Sequence[DesiredTopic], observed: Observed, brokers: Mapping[int, str]
) -> Plan:
    """`brokers`: id → rack, of brokers that may hold replicas."""
    kafka = observed.kafka
    assert kafka is not None
    owned = claims(topics, observed)
    rivals: dict[str, list[str]] = defaultdict(list)
    for topic in topics:
        rivals[topic.name].append(topic.owner)
    refused = [r for topic in topics if (r := _refusal(topic, owned, rivals, kafka, brokers))]
    blocked = {refusal.subject for refusal in refused}
    own = [t for t in topics if owned.get(t.name) == t.owner and t.owner not in blocked]
    keep = [t for t in own if not t.delete]
    here = [t for t in keep if t.name in kafka.topics]
    return (
        *refused,
        *_delete([t for t in own if t.delete], kafka),
        *_create([t for t in keep if t.name not in kafka.topics], _late(observed, brokers)),
        *_grow(here, kafka),
        *_configure(here, observed, kafka),
        *_replicate(here, kafka, brokers),
    )


def _refusal(
    topic: DesiredTopic,
    owned: Mapping[str, str],
    wanted_by: Mapping[str, list[str]],
    kafka: ObservedKafka,
    brokers: Mapping[int, str],
) -> Refuse | None:
    """Why this resource is refused; None if it is not."""

    def refuse(code: str, why: str) -> Refuse:
        return Refuse(Reason(code, why), topic.owner)

    if topic.delete:
        return None
    rivals = sorted(owner for owner in wanted_by[topic.name] if owner != topic.owner)
    if rivals and owned.get(topic.name) != topic.owner:
        return refuse("NameConflict", f"topic {topic.name} is also declared by {listed(rivals)}")
    found = kafka.topics.get(topic.name)
    if owned.get(topic.name) != topic.owner:
        why = f"topic {topic.name} already exists; set spec.adopt: true to manage it"
        return refuse("TopicExists", why)
    if found is not None and topic.partitions is not None and topic.partitions < found.partitions:
        why = f"topic {topic.name} has {found.partitions} partitions, which cannot be removed"
        return refuse("PartitionsShrink", why)
    if topic.replication_factor is not None and topic.replication_factor > len(brokers):
        why = (
            f"topic {topic.name} needs {topic.replication_factor} brokers for its replicas; there "
        )
        return refuse("TooFewBrokers", f"{why}are {len(brokers)}")
    return None


def _delete(topics: list[DesiredTopic], kafka: ObservedKafka) -> Iterator[DeleteTopics]:
    names = [t.name for t in topics if not t.retain and t.name in kafka.topics]
    for batch in batches(names, TOPICS_MAX):
        why = f"deletionPolicy is Delete: {listed(batch, 'topic')}"
        yield DeleteTopics(tuple(batch), Reason("TopicDeleted", why))


def _late(observed: Observed, brokers: Mapping[int, str]) -> list[int]:
    """Brokers that are starting. New topics wait for them, so that they use all brokers."""
    found = [observed.brokers[b] for b in brokers if b in observed.brokers]
    starting = [b for b in found if b.phase is Phase.STARTING]
    return [b.id for b in starting if observed.now - b.since < START_PATIENCE_S]


def _create(topics: list[DesiredTopic], late: list[int]) -> Iterator[CreateTopics | Wait]:
    if topics and late:
        why = f"{listed([t.name for t in topics], 'topic')} will be created when "
        why += f"{listed(late, 'broker')} {'have' if len(late) > 1 else 'has'} started"
        yield Wait(Reason("BrokersStarting", why), tuple(late))
        return
    for batch in batches(topics, TOPICS_MAX):
        new = tuple(
            TopicToCreate(t.name, t.partitions or -1, t.replication_factor or -1, t.config)
            for t in batch
        )
        why = f"{listed([t.name for t in batch], 'topic')} {_do(batch)} not exist yet"
        yield CreateTopics(new, Reason("TopicMissing", why))


def _do(items: Sequence[object]) -> str:
    return "do" if len(items) > 1 else "does"


def _grow(topics: list[DesiredTopic], kafka: ObservedKafka) -> Iterator[GrowTopics]:
    grown = {
        t.name: t.partitions
        for t in topics
        if t.partitions is not None and t.partitions > kafka.topics[t.name].partitions
    }
    for batch in batches(grown.items(), TOPICS_MAX):
        texts = [f"{name} from {kafka.topics[name].partitions} to {n}" for name, n in batch]
        yield GrowTopics(dict(batch), Reason("MorePartitions", listed(texts)))


def _configure(
    topics: list[DesiredTopic], observed: Observed, kafka: ObservedKafka
) -> Iterator[AlterTopicConfigs]:
    changes: dict[str, dict[str, str | None]] = {}
    for topic in topics:
        found = kafka.topics[topic.name].config
        wrong: dict[str, str | None] = {
            name: value
            for name, value in topic.config.items()
            if name not in found or not same_value(found[name], value)
        }
        ours = observed.managed_settings.get(topic.name, frozenset())
        wrong |= {name: None for name in sorted(ours - topic.config.keys()) if name in found}
        if wrong:
            changes[topic.name] = wrong
    for batch in batches(changes.items(), TOPICS_MAX):
        texts = [
            f"{topic}: {name} " + (f"is set to {value}" if value is not None else "is unset")
            for topic, wrong in batch
            for name, value in wrong.items()
        ]
        yield AlterTopicConfigs(dict(batch), Reason("ConfigDrift", listed(texts)))


def _replicate(
    topics: list[DesiredTopic], kafka: ObservedKafka, brokers: Mapping[int, str]
) -> Iterator[Reassign | Wait]:
    """Changes the replication factor by reassigning partitions that differ."""
    wanted = {t.name: t.replication_factor for t in topics if t.replication_factor is not None}
    by_topic: dict[str, list[Partition]] = defaultdict(list)
    for partition in kafka.partitions:
        if partition.id.topic in wanted:
            by_topic[partition.id.topic].append(partition)
    wrong = [p for t in wanted for p in by_topic[t] if len(p.target) != wanted[t] and not p.moving]
    room = MOVES_MAX - sum(p.moving for p in kafka.partitions)
    if not wrong or not brokers.keys() <= kafka.live:
        return
    if room <= 0:
        yield Wait(Reason("Moving", f"{len(wrong)} partitions wait for other moves to finish"))
        return
    load = Load(kafka.partitions)
    moves: dict[TopicPartition, tuple[int, ...]] = {}
    for partition in wrong[:room]:
        target = choose_replicas(partition.target, wanted[partition.id.topic], brokers, load)
        if target is not None:
            moves[partition.id] = target
    if moves:
        names = sorted({p.topic for p in moves})
        texts = [f"{name} gets {wanted[name]} replicas" for name in names]
        yield Reassign(moves, Reason("ReplicationFactor", listed(texts)))


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
