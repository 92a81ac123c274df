"""A model of a Kafka cluster behind the interface of KafkaAdmin.

It has a controller, ISRs that shrink and grow, reassignments that complete, elections. It counts
how many replicas of a partition are unavailable at a time: more than one is a bug of the operator.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from odradek_operator.admin.kafka_admin import AdminError
from odradek_operator.kafka.balance.execution import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
)
from odradek_operator.kafka.links import CONTROLLERS, FURTHER_INTER_BROKER, INTER_BROKER
from odradek_operator.kafka.observed import (
    BrokerSetting,
    LogDir,
    LogSizes,
    ObservedKafka,
    ObservedTopic,
    Partition,
    SizedDir,
)
from odradek_operator.security.users import ObservedUsers, SetPassword, UserAction
from odradek_protocol.ids import TopicPartition
from odradek_testkit.kubernetes.fake_users import apply

DISK_BYTES = 10 << 30
MB = 1 << 20
DYNAMIC = ("log.cleaner.threads", "log.retention.ms")


class FakeKafka:
    """One cluster, with the methods of KafkaAdmin."""

    def __init__(self) -> None:
        self.bootstrap = ""
        self.up: dict[int, Mapping[str, str]] = {}  # broker → the settings that it started with
        self.registered: dict[int, str] = {}
        self.voters: set[int] = set()
        self.controllers: set[int] = set()  # dedicated ones that run
        self.dynamic: dict[str, str] = {}
        self.topics: dict[str, dict[str, str]] = {}
        self.partitions: dict[TopicPartition, Partition] = {}
        self.usable_bytes: dict[int, int] = {}  # of brokers whose disks fill up
        self.rates: dict[int, dict[str, str]] = {}  # broker → its replication throttle
        self.throttled_moves = 0  # partitions that began to move
        self.unthrottled_moves = 0  # the same, without a throttle
        self.users = ObservedUsers()
        self.passwords: dict[str, str] = {}  # as they were set last
        self.calls: list[str] = []
        self.away_max = 0  # the most replicas of one partition that were unavailable at a time

    def close(self) -> None:
        pass

    # -- what brokers do ---------------------------------------------------------------------------

    def set_up(self, nodes: Mapping[int, Mapping[str, str]]) -> None:
        dedicated = {n: s for n, s in nodes.items() if s.get("process.roles") == "controller"}
        self.controllers = set(dedicated)
        votes = {n: s for n, s in nodes.items() if "controller" in s.get("process.roles", "")}
        for settings in votes.values():  # engine apache: all of them form the cluster
            if len(votes) == len(settings["controller.quorum.bootstrap.servers"].split(",")):
                self.voters = self.voters or set(votes)
        up = {n: s for n, s in nodes.items() if n not in dedicated}
        gone = self.up.keys() - up.keys()
        self.up = dict(up)
        if up and not self.voters:
            voters = next((s["controller.quorum.voters"] for s in up.values()
                           if "controller.quorum.voters" in s), "")  # fmt: skip
            self.voters = {int(one.partition("@")[0]) for one in voters.split(",") if one}
        for broker, settings in up.items():
            self.registered[broker] = settings.get("broker.rack", "")
        for partition in self.partitions.values():
            away = [r for r in partition.settled if r not in self.up]
            self.away_max = max(self.away_max, len(away))
            if gone & set(partition.isr):
                self._isr(partition.id, partition.isr - gone)

    def live_on(self) -> bool:
        """Replicas catch up, reassignments complete; whether anything changed."""
        changed = False
        for id_, p in list(self.partitions.items()):
            behind = {r for r in p.replicas if r not in p.isr and r in self.up}
            if behind:
                self._isr(id_, p.isr | behind)
                changed = True
            elif p.moving and set(p.target) <= p.isr:
                target = p.target
                self.partitions[id_] = replace(
                    p, replicas=target, isr=frozenset(target), adding=frozenset(),
                    removing=frozenset(), leader=p.leader if p.leader in target else target[0],
                )  # fmt: skip
                changed = True
        return changed

    def _isr(self, id_: TopicPartition, isr: frozenset[int]) -> None:
        p = self.partitions[id_]
        live = [r for r in p.replicas if r in isr and r in self.up]
        leader = p.leader if p.leader in live else (live[0] if live else -1)
        self.partitions[id_] = replace(p, isr=isr or p.isr, leader=leader)

    # -- KafkaAdmin --------------------------------------------------------------------------------

    def observe(
        self, settings: Iterable[str] = (), topic_settings: Iterable[str] = ()
    ) -> ObservedKafka:
        self._ask()
        counts: dict[str, int] = dict.fromkeys(self.topics, 0)
        for id_ in self.partitions:
            counts[id_.topic] += 1
        return ObservedKafka(
            cluster_id="id",
            controller=min(self.voters & self.alive),
            voters=frozenset(self.voters),
            voter_listeners={n: _quorum_listeners(s) for n, s in self.up.items()},
            registered=dict(self.registered),
            live=frozenset(self.up.keys() & self.registered.keys()),
            partitions=tuple(self.partitions.values()),
            topics={
                name: ObservedTopic(name, f"id-{name}", False, counts[name], dict(config))
                for name, config in self.topics.items()
            },
            settings={
                b: self._settings({**started, **self.rates.get(b, {})}, settings)
                for b, started in self.up.items()
            },
            log_dirs={
                b: (LogDir("/data", False, DISK_BYTES, self.usable_bytes.get(b, DISK_BYTES)),)
                for b in self.up
            },
        )

    def _settings(
        self, started: Mapping[str, str], asked: Iterable[str]
    ) -> dict[str, BrokerSetting]:
        values = {**dict.fromkeys(DYNAMIC, "1"), **started, **self.dynamic}
        return {
            name: BrokerSetting(values[name], name not in DYNAMIC, name in self.dynamic)
            for name in asked
            if name in values
        }

    @property
    def alive(self) -> set[int]:
        return {*self.up, *self.controllers}

    def _ask(self) -> None:
        if not self.up:
            raise AdminError("no broker")
        if len(self.voters & self.alive) * 2 <= len(self.voters) or not self.voters:
            raise AdminError("no quorum")

    def _called(self, text: str) -> dict[str, str]:
        self._ask()
        self.calls.append(text)
        return {}

    def observe_users(self) -> ObservedUsers:
        self._ask()
        return self.users

    def carry_out_user(self, action: UserAction) -> None:
        self._called(type(action).__name__)
        self.users = apply([action], self.users)
        if isinstance(action, SetPassword):
            self.passwords[action.user] = action.password

    def create_topics(self, topics: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
        for name, asked in topics.items():
            if name not in self.topics:
                self.topics[name] = dict(asked["configs"])
                factor = asked["replication_factor"]
                self._add(name, 0, max(1, asked["num_partitions"]), factor if factor > 0 else 3)
        return self._called(f"create {len(topics)} topics")

    def grow_topics(self, partitions: Mapping[str, int]) -> dict[str, str]:
        for name, count in partitions.items():
            self._add(name, sum(p.topic == name for p in self.partitions), count, 3)
        return self._called("grow")

    def _add(self, name: str, first: int, count: int, factor: int) -> None:
        live = sorted(self.up)
        for n in range(first, count):
            replicas = tuple(live[(n + k) % len(live)] for k in range(min(factor, len(live))))
            id_ = TopicPartition(name, n)
            self.partitions[id_] = Partition(
                id_, replicas[0], replicas, frozenset(replicas), max(1, len(replicas) - 1)
            )

    def delete_topics(self, topics: Sequence[str]) -> dict[str, str]:
        for name in topics:
            self.topics.pop(name, None)
        self.partitions = {id_: p for id_, p in self.partitions.items() if id_.topic in self.topics}
        return self._called(f"delete {','.join(sorted(topics))}")

    def alter_topic_configs(
        self, changes: Mapping[str, Mapping[str, str | None]]
    ) -> dict[str, str]:
        for name, entries in changes.items():
            merged: dict[str, str | None] = {**self.topics[name], **entries}
            self.topics[name] = {n: v for n, v in merged.items() if v is not None}
        return self._called("alter topics")

    def alter_broker_configs(self, changes: Mapping[str, str | None]) -> dict[str, str]:
        merged: dict[str, str | None] = {**self.dynamic, **changes}
        self.dynamic = {n: v for n, v in merged.items() if v is not None}
        return self._called("alter brokers")

    def elect(self, partitions: Iterable[TopicPartition]) -> dict[str, str]:
        for id_ in partitions:
            p = self.partitions[id_]
            self.partitions[id_] = replace(p, leader=p.replicas[0])
        return self._called("elect")

    def reassign(self, moves: Mapping[TopicPartition, Sequence[int]]) -> dict[str, str]:
        for id_, target in moves.items():
            p = self.partitions[id_]
            added = frozenset(target) - set(p.replicas)
            gone = frozenset(p.replicas) - set(target)
            if added:
                self.unthrottled_moves += not (added <= self.rates.keys())
                self.throttled_moves += added <= self.rates.keys()
            union = (*target, *(r for r in p.replicas if r not in target))
            self.partitions[id_] = replace(p, replicas=union, adding=added, removing=gone)
        return self._called(f"move {len(moves)}")

    def cancel_moves(self, partitions: Iterable[TopicPartition]) -> dict[str, str]:
        for id_ in partitions:
            p = self.partitions[id_]
            old = p.settled
            self.partitions[id_] = replace(
                p, replicas=old, isr=p.isr & set(old), adding=frozenset(), removing=frozenset()
            )
        return self._called("cancel moves")

    def log_sizes(self) -> LogSizes:
        """A GB for each replica of a partition with number 0, else a MB."""
        self._ask()
        held: dict[int, dict[TopicPartition, int]] = {b: {} for b in self.up}
        for id_, p in self.partitions.items():
            for replica in p.replicas:
                if replica in held:
                    held[replica][id_] = MB if id_.partition else 1000 * MB
        dirs = {b: (SizedDir("/data", False, DISK_BYTES, its),) for b, its in held.items()}
        return LogSizes(time.monotonic(), dirs)

    def set_throttle(
        self, at: Iterable[int], rate: float, topics: Mapping[str, Mapping[str, str]]
    ) -> dict[str, str]:
        for broker in at:
            self.rates[broker] = {LEADER_RATE: str(int(rate)), FOLLOWER_RATE: str(int(rate))}
        for name, settings in topics.items():
            self.topics[name] |= settings
        return self._called("throttle")

    def remove_throttle(self, at: Iterable[int], names: Iterable[str]) -> dict[str, str]:
        for broker in at:
            self.rates.pop(broker, None)
        for name in names:
            for setting in (LEADER_REPLICAS, FOLLOWER_REPLICAS):
                self.topics[name].pop(setting, None)
        return self._called("unthrottle")

    @property
    def throttles(self) -> list[str]:
        """The throttles that are still set."""
        topics = [n for n, config in self.topics.items() if LEADER_REPLICAS in config]
        return [*map(str, self.rates), *topics]

    def unregister(self, broker: int) -> dict[str, str]:
        if broker in self.up:
            return {f"broker {broker}": "it is alive"}
        self.registered.pop(broker, None)
        if broker in self.voters:  # the controller chooses a successor
            self.voters = self.voters - {broker} | set(sorted(self.up.keys() - self.voters)[:1])
        return self._called(f"unregister {broker}")

    def add_voter(self, broker: int) -> dict[str, str]:
        self.voters.add(broker)
        return self._called(f"add voter {broker}")

    def remove_voter(self, broker: int) -> dict[str, str]:
        assert self.voters != {broker}, "the last voter"
        self.voters.discard(broker)
        return self._called(f"remove voter {broker}")


def _quorum_listeners(settings: Mapping[str, str]) -> frozenset[str]:
    """Where a node told the quorum that it can be reached."""
    inter = settings.get(INTER_BROKER, "PLAINTEXT")
    texts = (settings.get(CONTROLLERS) or inter, settings.get(FURTHER_INTER_BROKER, ""))
    return frozenset(name for text in texts for name in text.split(",") if name)
