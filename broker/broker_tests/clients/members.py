"""Members of groups for tests: librdkafka consumers that are polled until a condition holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaException

from odradek_testkit.clients import partition_of, value_of
from odradek_testkit.connecting import for_librdkafka

DEADLINE_S = 60.0


class Bootstrap(Protocol):
    """A server or a cluster."""

    @property
    def bootstrap(self) -> str: ...


class Member:
    """A consumer in a group, with the records that it has read and its partitions."""

    def __init__(
        self, server: Bootstrap, group: str, protocol: str = "consumer", **more: Any
    ) -> None:
        settings = {
            **for_librdkafka(server),
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        if protocol == "classic":
            settings |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
        self.consumer = Consumer(settings)
        self.read: list[tuple[int, bytes]] = []

    def subscribe(self, *topics: str) -> Member:
        self.consumer.subscribe(list(topics))
        return self

    def poll(self) -> None:
        for message in self.consumer.consume(500, 0.05):
            error = message.error()
            if error is None:
                self.read.append((partition_of(message), value_of(message)))
            elif not error.retriable():
                raise KafkaException(error)

    def owned(self) -> set[tuple[str, int]]:
        return {(place.topic, place.partition) for place in self.consumer.assignment()}

    def close(self) -> None:
        self.consumer.close()


def until(condition: Callable[[], bool], *members: Member, what: str = "") -> None:
    """Polls the members until the condition holds."""
    give_up = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < give_up, f"{what}: {[m.owned() for m in members]}"
        for member in members:
            member.poll()
        if not members:
            time.sleep(0.05)


def exclusive(*members: Member) -> bool:
    owned = [place for member in members for place in member.owned()]
    return len(owned) == len(set(owned))


def shared(count: int, *members: Member) -> Callable[[], bool]:
    """All `count` partitions have an owner, and every member has a fair share."""

    def condition() -> bool:
        sizes = [len(member.owned()) for member in members]
        return sum(sizes) == count and max(sizes) - min(sizes) <= 1 and exclusive(*members)

    return condition
