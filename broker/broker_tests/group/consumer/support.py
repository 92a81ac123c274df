"""A consumer group without a broker: topics as metadata, decisions replayed from bytes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from odradek_broker.group.consumer import heartbeat as beat
from odradek_broker.group.consumer import records as rec
from odradek_broker.group.consumer.config import ConsumerGroupConfig
from odradek_broker.group.consumer.context import (
    ConsumerDraft,
    Context,
    Decision,
    Timer,
    TimerKind,
)
from odradek_broker.group.consumer.group import ConsumerGroup
from odradek_broker.group.consumer.regex import resolve
from odradek_broker.group.consumer.subscription import regexes_resolved
from odradek_broker.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from odradek_protocol.ids import BrokerId
from odradek_protocol.messages.struct import Struct

CONFIG = ConsumerGroupConfig(assignment_interval_ms=0)


def image_of(topics: Mapping[str, int], offset: int = 1) -> MetadataImage:
    """Topics by name; the ids are UUIDs of their position."""
    broker = BrokerId(0)
    partition = PartitionRegistration((broker,), (broker,), (), (), broker, 0, 0, (UUID(int=9),))
    images = {
        name: TopicImage(name, topic_id(name), dict.fromkeys(range(count), partition))
        for name, count in topics.items()
    }
    by_id = {topic.id: topic for topic in images.values()}
    return MetadataImage(offset=offset, topics=images, topics_by_id=by_id)


def topic_id(name: str) -> UUID:
    return UUID(bytes=name.encode().rjust(16, b"\0"))


class GroupOnPaper:
    """Decides, writes as bytes, reads them back and replays; keeps what a log would keep."""

    def __init__(self, topics: Mapping[str, int], config: ConsumerGroupConfig = CONFIG) -> None:
        self.image = image_of(topics)
        self.config = config
        self.now_ms = 1_000_000
        self.group = ConsumerGroup("g")
        self.log: list[tuple[bytes, bytes | None]] = []
        self.timers: dict[tuple[TimerKind, str], Timer] = {}
        self.ids = 0

    @property
    def ctx(self) -> Context:
        return Context(self.image, self.config, self.now_ms, self._new_id)

    def _new_id(self) -> str:
        self.ids += 1
        return f"id{self.ids}"

    def set_topics(self, topics: Mapping[str, int]) -> None:
        self.image = image_of(topics, self.image.offset + 1)

    def settle(self, decision: Decision) -> Any:
        for record in decision.records:
            key, value = rec.encode(record)
            assert rec.decode(key, value) == record
            self.log.append((key, value))
            self.group.replay(rec.decode(key, value))
        self.group.validate()
        for timer in decision.timers:
            if timer.delay_ms is None:
                self.timers.pop((timer.kind, timer.member_id), None)
            elif not timer.if_absent or (timer.kind, timer.member_id) not in self.timers:
                self.timers[timer.kind, timer.member_id] = timer
        if decision.resolve:
            self.group.regexes_checked_ms = self.now_ms
            matched = resolve(decision.resolve, self.image.topics)
            self.settle(regexes_resolved(self.group, matched, self.image.offset, self.ctx))
        return decision.response

    def send(self, **fields: Any) -> Struct:
        request = Struct(
            group_id="g",
            member_id="",
            member_epoch=0,
            instance_id=None,
            rack_id=None,
            rebalance_timeout=-1,
            subscribed_topic_names=None,
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=None,
        )
        vars(request).update(fields)
        beat.validate(request, 0, self.config.assignors)
        if request.member_epoch < 0:
            left: Struct = self.settle(beat.leave(self.group, request, self.ctx))
            return left
        decision = beat.heartbeat(ConsumerDraft(self.group), request, "client", "/host", self.ctx)
        answer: Struct = self.settle(decision)
        return answer

    def reloaded(self) -> ConsumerGroup:
        """As a new coordinator reads it from a compacted log: the last record of each key."""
        last = {key: number for number, (key, _) in enumerate(self.log)}
        group = ConsumerGroup("g")
        for number, (key, value) in enumerate(self.log):
            if last[key] == number and value is not None:
                group.replay(rec.decode(key, value))
        return group


class Consumer:
    """A client: owns its assigned partitions, and revokes some before it gets others."""

    def __init__(self, paper: GroupOnPaper, member_id: str, **subscription: Any) -> None:
        self.paper = paper
        self.member_id = member_id
        self.subscription = subscription
        self.epoch = 0
        self.owned: dict[UUID, frozenset[int]] = {}
        self.missed_answer = False  # then the next heartbeat is a full one, as clients send it

    def _partitions(self) -> list[Struct]:
        return [Struct(topic_id=t, partitions=sorted(p)) for t, p in self.owned.items()]

    def join(self) -> Struct:
        self.epoch, self.owned = 0, {}
        return self._hear(
            self.paper.send(
                member_id=self.member_id,
                rebalance_timeout=60_000,
                topic_partitions=[],
                **self.subscription,
            )
        )

    def beat(self, **changes: Any) -> Struct:
        self.subscription |= changes
        says = {"rebalance_timeout": 60_000} | self.subscription if self.missed_answer else changes
        self.missed_answer = False
        return self._hear(
            self.paper.send(
                **{"instance_id": self.subscription.get("instance_id")} | says,
                member_id=self.member_id,
                member_epoch=self.epoch,
                topic_partitions=self._partitions(),
            )
        )

    def leave(self, epoch: int = -1) -> Struct:
        self.owned = {}
        return self.paper.send(
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.subscription.get("instance_id"),
        )

    def _hear(self, response: Struct) -> Struct:
        self.epoch = response.member_epoch
        self.member_id = response.member_id
        if response.assignment is not None:
            self.owned = {
                t.topic_id: frozenset(t.partitions) for t in response.assignment.topic_partitions
            }
        return response


def without_interval(config: ConsumerGroupConfig = CONFIG, **changes: Any) -> ConsumerGroupConfig:
    return replace(config, **changes)
