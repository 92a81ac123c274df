"""Plans carried out on a model of a cluster, from any state to any spec: they end, safely.

The model behaves like brokers: started ones become ready and catch up, moves complete, leaders
are elected. Before every action it checks that it makes no writable partition unwritable.
The operator may be killed between any two actions: each pass starts from an observation, so
"killed" is the same as "planned again", and the model plans again after every action.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek_operator.kafka.actions import (
    Action,
    AddVoter,
    CreateTopics,
    Elect,
    GrowTopics,
    Reassign,
    Refuse,
    RemoveBroker,
    RemoveVoter,
    Restart,
    StartBrokers,
    StopBroker,
    UnregisterBroker,
    Wait,
)
from odradek_operator.kafka.desired import DesiredCluster, Known
from odradek_operator.kafka.explain import explain
from odradek_operator.kafka.make_plan import make_plan
from odradek_operator.kafka.observed import (
    BrokerSetting,
    Observed,
    ObservedBroker,
    ObservedKafka,
    ObservedTopic,
    Partition,
    Phase,
)
from odradek_operator.kafka.replicas import shares_rack
from odradek_protocol.ids import TopicPartition
from operator_tests.worlds import NOW, cluster, topic

STEPS_MAX = 2_000


class Model:
    """A cluster without faults; `random` decides the order of events."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.brokers: dict[int, ObservedBroker] = {}
        self.kept: dict[int, str] = {}
        self.formation: tuple[int, ...] = ()
        self.registered: dict[int, str] = {}
        self.voters: set[int] = set()
        self.partitions: dict[TopicPartition, Partition] = {}
        self.factor = 3
        self.said: list[str] = []

    # -- what is seen ------------------------------------------------------------------------------

    def known(self) -> Known:
        existing = {b: found.rack for b, found in self.brokers.items()}
        return Known(existing, self.kept, self.formation, "id")

    def ready(self) -> frozenset[int]:
        return frozenset(b for b, f in self.brokers.items() if f.phase is Phase.READY)

    def observe(self) -> Observed:
        counts: dict[str, int] = {}
        for partition in self.partitions:
            counts[partition.topic] = counts.get(partition.topic, 0) + 1
        kafka = ObservedKafka(
            cluster_id="id",
            controller=min(self.voters & self.ready(), default=-1),
            voters=frozenset(self.voters),
            registered=self.registered,
            live=self.ready() & self.registered.keys(),
            partitions=tuple(self.partitions.values()),
            topics={t: ObservedTopic(t, partitions=n) for t, n in counts.items()},
            settings={
                b: {n: BrokerSetting(v, read_only=True) for n, v in f.started_with.items()}
                for b, f in self.brokers.items()
                if f.phase is Phase.READY
            },
        )
        answers = len(self.voters & self.ready()) > len(self.voters) / 2
        managed = {t: f"default/{t}" for t in counts}
        return Observed(NOW + 1e6, self.brokers, kafka if answers else None, "no quorum",
                        managed_topics=managed)  # fmt: skip

    # -- what happens by itself --------------------------------------------------------------------

    def live_on(self) -> bool:
        """One event that happens by itself; False if none is left."""
        events: list[tuple[str, Any]] = [
            ("up", b) for b, f in self.brokers.items() if f.phase is Phase.STARTING
        ]
        for id_, p in self.partitions.items():
            behind = [r for r in p.replicas if r not in p.isr and r in self.ready()]
            events += [("catch up", (id_, r)) for r in behind]
            if p.moving and set(p.target) <= p.isr:
                events.append(("arrive", id_))
        gone = self.voters - self.registered.keys()
        if gone:
            events.append(("replace", min(gone)))
        if not events:
            return False
        what, about = self.rng.choice(events)
        if what == "up":
            self.brokers[about] = replace(self.brokers[about], phase=Phase.READY)
            self.registered[about] = self.brokers[about].rack
            if not self.voters or (len(self.voters) < 3 and about in self.formation):
                self.voters.add(about)  # the listed ones form the quorum
        elif what == "replace":  # the successor comes first
            others = self.ready() & self.registered.keys() - self.voters
            if others and len(self.voters) <= 3:
                self.voters.add(self.rng.choice(sorted(others)))
            else:
                self.voters.discard(about)
        elif what == "catch up":
            id_, replica = about
            self._isr(id_, self.partitions[id_].isr | {replica})
        else:
            p = self.partitions[about]
            leader = p.leader if p.leader in p.target else p.target[0]
            self.partitions[about] = replace(
                p, replicas=p.target, isr=frozenset(p.target), leader=leader,
                adding=frozenset(), removing=frozenset(),
            )  # fmt: skip
        return True

    def _isr(self, id_: TopicPartition, isr: frozenset[int]) -> None:
        p = self.partitions[id_]
        live = [r for r in p.replicas if r in isr and r in self.ready()]
        leader = p.leader if p.leader in live else (live[0] if live else -1)
        self.partitions[id_] = replace(p, isr=isr or p.isr, leader=leader)

    # -- what is done ------------------------------------------------------------------------------

    def do(self, action: Action, desired: DesiredCluster) -> None:
        self.said.append(explain(action))
        match action:
            case StartBrokers(brokers):
                for b in brokers:
                    self.kept.pop(b, None)
                    wanted = desired.brokers.get(b)
                    rack = wanted.rack if wanted else self.brokers[b].rack
                    with_ = wanted.settings if wanted else self.brokers[b].started_with
                    self.brokers[b] = ObservedBroker(b, rack, Phase.STARTING, NOW, with_)
            case Restart(brokers, _, unavailable):
                self._check(set(brokers), set(unavailable))
                for b in brokers:
                    self._down(b, Phase.STARTING)
                    self.brokers[b] = replace(
                        self.brokers[b], started_with=desired.brokers[b].settings
                    )
            case StopBroker(broker):
                assert not any(broker in p.replicas for p in self.partitions.values())
                self._down(broker, Phase.STOPPED)
                up = self.voters & self.ready()
                assert len(up) * 2 > len(self.voters), "the quorum is lost with its voter"
            case AddVoter(broker):
                self.voters.add(broker)
            case RemoveVoter(broker):
                self.voters.discard(broker)
                up = self.voters & self.ready()
                assert len(up) * 2 > len(self.voters), "the quorum is lost with its voter"
            case UnregisterBroker(broker):
                assert broker not in self.ready()
                del self.registered[broker]
            case RemoveBroker(broker):
                self.kept[broker] = self.brokers.pop(broker).rack
            case _:
                self._topics(action)

    def _topics(self, action: Action) -> None:
        match action:
            case Elect(partitions):
                for id_ in partitions:
                    p = self.partitions[id_]
                    self.partitions[id_] = replace(p, leader=p.replicas[0])
            case Reassign(moves):
                for id_, target in moves.items():
                    p = self.partitions[id_]
                    added = frozenset(target) - set(p.replicas)
                    gone = frozenset(p.replicas) - set(target)
                    union = (*target, *(r for r in p.replicas if r not in target))
                    self.partitions[id_] = replace(p, replicas=union, adding=added, removing=gone)
            case CreateTopics(topics):
                for new in topics:
                    self._add(new.name, 0, new.partitions)
            case GrowTopics(partitions):
                for name, count in partitions.items():
                    have = sum(p.topic == name for p in self.partitions)
                    self._add(name, have, count)
            case Wait() | Refuse():
                pass
            case _:
                raise AssertionError(action)

    def _add(self, name: str, first: int, count: int) -> None:
        live = sorted(self.ready())
        for n in range(first, count):
            start = self.rng.randrange(len(live))
            factor = min(self.factor, len(live))
            replicas = tuple(live[(start + k) % len(live)] for k in range(factor))
            id_ = TopicPartition(name, n)
            self.partitions[id_] = Partition(
                id_, replicas[0], replicas, frozenset(replicas), max(1, factor - 1)
            )

    def _down(self, broker: int, phase: Phase) -> None:
        self.brokers[broker] = replace(self.brokers[broker], phase=phase)
        for id_, p in self.partitions.items():
            if broker in p.isr:
                self._isr(id_, p.isr - {broker})

    def _check(self, going: set[int], named: set[TopicPartition]) -> None:
        assert len(self.voters & self.ready() - going) * 2 > len(self.voters) or (
            len(self.voters) <= 2
        ), "the quorum is lost"
        for id_, p in self.partitions.items():
            before, after = p.isr & self.ready(), (p.isr & self.ready()) - going
            if len(before) >= p.min_isr > len(after):
                assert id_ in named, f"{id_} is made unwritable in silence: {p}"
                assert len(p.settled) <= p.min_isr, f"{id_} is made unwritable: {p}"


def converge(model: Model, **spec: Any) -> DesiredCluster:
    for _ in range(STEPS_MAX):
        desired = cluster(model.known(), **spec)
        model.formation = desired.formation
        wanted = [topic("orders", partitions=6), topic("lonely", partitions=2)]
        plan = make_plan(desired, model.observe(), wanted)
        acting = [a for a in plan if not isinstance(a, Wait | Refuse)]
        if acting and model.rng.random() < 0.7:
            for action in acting[: model.rng.choice((1, 1, 2, 9))]:
                model.do(action, desired)  # then the operator dies, and plans again
        elif not model.live_on():
            if not acting:
                assert not any(isinstance(a, Wait) for a in plan), (plan, model.said[-9:])
                return desired
            model.do(acting[0], desired)
    raise AssertionError(f"no end: {model.said[-20:]}")


specs = st.fixed_dictionaries(
    {
        "brokers": st.integers(3, 8),
        "config": st.sampled_from([{}, {"num.partitions": 2}, {"num.partitions": 5}]),
        "rebalance": st.sampled_from(["manual", "auto"]),
        "racks": st.sampled_from(
            [{}, {"names": ["a", "b", "c"]}, {"names": ["c", "a"]}, {"names": ["d", "e", "f"]}]
        ),
        "rolling": st.sampled_from([{}, {"maxUnavailable": 3}]),
    }
)


@settings(max_examples=60, deadline=None)
@given(st.lists(specs, min_size=1, max_size=4), st.integers(0, 2**32))
def test_any_history_converges(life: list[dict[str, object]], seed: int) -> None:
    model = Model(seed)
    for spec in life:
        desired = converge(model, **spec)
        assert model.brokers.keys() == desired.brokers.keys()
        assert all(f.phase is Phase.READY for f in model.brokers.values())
        for broker in desired.brokers.values():
            found = model.brokers[broker.id]
            assert found.rack == broker.rack
            assert found.started_with["num.partitions" if spec["config"] else "node.id"]
        for p in model.partitions.values():
            assert set(p.replicas) <= desired.brokers.keys()
            assert p.isr == set(p.replicas)
            assert p.leader == p.replicas[0]
            if spec["rebalance"] == "auto":
                racks = {b: broker.rack for b, broker in desired.brokers.items()}
                assert not shares_rack(p.replicas, racks)
