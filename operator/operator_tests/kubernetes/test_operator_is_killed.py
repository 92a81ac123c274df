"""The operator dies after any one of its writes; the next one goes on, and nobody is harmed.

Every run is a cluster in a namespace of its own. The write gets through, its answer does not: the
operator that follows knows nothing but what is at the API server. All runs of a scenario are
played side by side, a pass each in turn, because most of the time is spent waiting for the
controllers of Kubernetes.
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from odradek_api.base import RESTART_ANNOTATION
from odradek_operator.kubernetes.cluster_worker import Outcome
from odradek_testkit.kubernetes.control_plane import ControlPlane
from odradek_testkit.kubernetes.world import OperatorKilledError, World

PATIENCE_S = 110.0
RUNS_MAX = 12  # at a time
_NUMBERS = itertools.count()


@dataclass
class Scenario:
    change: Callable[[World], None]
    done: Callable[[World], bool]
    begin: int = 3  # brokers before it; 0: no cluster yet
    cluster: bool = True  # there is one after it


def _topics(world: World) -> None:
    world.topic("orders", partitions=4, replicationFactor=3)


def _create(world: World) -> None:
    world.cluster(brokers=3)
    _topics(world)


def _create_dedicated(world: World) -> None:
    world.cluster(engine="apache", brokers=3, controllers={"replicas": 3})
    _topics(world)


def _grow(world: World) -> None:
    world.cluster(brokers=4, rebalance="auto")


def _shrink(world: World) -> None:
    world.cluster(brokers=3, storage={"deletionPolicy": "Delete"})


def _roll(world: World) -> None:
    world.cluster({RESTART_ANNOTATION: "now"}, brokers=3)


def _delete_topic(world: World) -> None:
    args = ("delete", "topic", "orders", "-n", world.namespace, "--wait=false")
    world.kubernetes.kubectl(*args)


def _delete_all(world: World) -> None:
    args = ("delete", "kafkacluster,topic", "--all", "-n", world.namespace, "--wait=false")
    world.kubernetes.kubectl(*args)


def _nothing(world: World) -> bool:
    return world.get("Topic", "orders") is None and world.get("KafkaCluster") is None


SCENARIOS = {
    "create": Scenario(_create, lambda w: len(w.kafka.up) == 3 and "orders" in w.kafka.topics, 0),
    "create dedicated": Scenario(
        _create_dedicated,
        lambda w: (
            len(w.kafka.alive) == 6 and len(w.kafka.voters) == 3 and "orders" in w.kafka.topics
        ),
        0,
    ),
    "grow": Scenario(_grow, lambda w: sorted(w.kafka.registered) == [0, 1, 2, 3]),
    "shrink": Scenario(_shrink, lambda w: sorted(w.kafka.registered) == [0, 1, 2], 4),
    "roll": Scenario(_roll, lambda w: not set(w.first_uids) & set(w.pod_uids())),
    "delete topic": Scenario(_delete_topic, lambda w: "orders" not in w.kafka.topics),
    "delete all": Scenario(_delete_all, _nothing, cluster=False),
}


@dataclass
class Run:
    world: World
    scenario: Scenario
    die_after: int | None
    writes: int = 0
    killed_at: str = ""
    stage: str = "begin"
    quiet: int = field(default=0)

    def begin(self) -> None:
        if self.scenario.begin:
            self.world.cluster(brokers=self.scenario.begin)
            _topics(self.world)
        else:
            self._change()

    def _change(self) -> None:
        self.stage = "changed"
        self.world.first_uids = self.world.pod_uids()
        self.scenario.change(self.world)
        self.world.operator(self.die_after)

    def step(self) -> bool:
        """A pass and a moment; True at the end."""
        try:
            idle = self.world.try_pass() in (Outcome.IDLE, Outcome.GONE)
        except OperatorKilledError as killed:
            self.killed_at, idle = str(killed), False
            self.world.operator()
        moved = self.world.play()
        self.quiet = self.quiet + 1 if idle and not moved else 0
        if self.quiet < 3:
            return False
        if self.stage == "begin":
            self.quiet = 0
            self._change()
            return False
        self.writes = len(self.world.wire.writes)
        return True

    def check(self) -> None:
        where = f"killed after {self.killed_at}"
        assert self.scenario.done(self.world), where
        if not self.scenario.cluster:
            return
        assert self.world.kafka.away_max <= 1, f"two replicas away at once, {where}"
        assert self.world.condition("Ready") == "True AllBrokersReady", where
        left = self.world.leftovers()
        assert not left, f"{left}, {where}"
        before = len(self.world.wire.writes)
        self.world.one_pass()
        assert self.world.wire.writes[before:] == [], where


def play(runs: list[Run]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    try:
        for run in runs:
            run.begin()
        left = list(runs)
        while left:
            left = [run for run in left if not run.step()]
            assert time.monotonic() < deadline, "\n".join(
                f"killed after {run.killed_at}: {run.world.where()}" for run in left
            )
        for run in runs:
            run.check()
    finally:
        for run in runs:
            run.world.close()


def _runs(kubernetes: ControlPlane, name: str, points: list[int | None]) -> list[Run]:
    made = []
    for point in points:
        number = next(_NUMBERS)
        namespace = f"killed-{name.replace(' ', '-')}-{point or 'never'}-{number}"
        kubernetes.kubectl("create", "namespace", namespace)
        made.append(Run(World(kubernetes, namespace), SCENARIOS[name], point))
    return made


def _in_batches(kubernetes: ControlPlane, name: str, points: list[int | None]) -> None:
    killed = 0
    for first in range(0, len(points), RUNS_MAX):
        runs = _runs(kubernetes, name, points[first : first + RUNS_MAX])
        play(runs)
        for run in runs:  # timing may save some writes of the status
            assert run.killed_at or run.writes < (run.die_after or 0)
        killed += sum(bool(run.killed_at) for run in runs)
    assert killed >= 0.7 * len(points)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_at_each_write(kubernetes: ControlPlane, name: str) -> None:
    calm = _runs(kubernetes, name, [None])
    play(calm)
    print(f"{name}: killed after each of {calm[0].writes} writes")
    _in_batches(kubernetes, name, list(range(1, calm[0].writes + 1)))


@pytest.mark.parametrize(("name", "points"), [("create", [2, 9, 16]), ("roll", [2, 5, 9])])
def test_killed_at_some_writes(
    kubernetes: ControlPlane, name: str, points: list[int | None]
) -> None:
    _in_batches(kubernetes, name, points)
