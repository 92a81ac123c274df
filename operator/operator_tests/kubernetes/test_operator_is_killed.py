"""The operator dies after any one of its writes; the next one continues, without harm.

Every run is a cluster in a namespace of its own. The write arrives, its answer does not: the
next operator has only what the API server has. All runs of a scenario are made at the same time,
one pass each in turn, because most of the time is spent waiting for the
controllers of Kubernetes.
"""

import base64
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from lightkube.resources.core_v1 import Secret

from odradek_api.base import RESTART_ANNOTATION
from odradek_api.kafka_cluster.security import RENEW_ANNOTATION, ROTATE_CA_ANNOTATION
from odradek_api.kafka_user.rules import ROTATE_ANNOTATION
from odradek_operator.kafka.links import FURTHER_INTER_BROKER, INTER_BROKER
from odradek_operator.kafka.observed import Partition
from odradek_operator.kubernetes.cluster_worker import Outcome
from odradek_operator.kubernetes.user_secrets import ITERATIONS_ANNOTATION, ROTATION_ANNOTATION
from odradek_operator.security.pki import read
from odradek_protocol.ids import TopicPartition
from odradek_testkit.kubernetes.control_plane import ControlPlane
from odradek_testkit.kubernetes.world import OperatorKilledError, World

PATIENCE_S = 110.0
RUNS_MAX = 12  # at a time
TOPIC_REPLICAS = 3
_NUMBERS = itertools.count()


@dataclass
class Scenario:
    change: Callable[[World], None]
    done: Callable[[World], bool]
    begin: int = 3  # brokers before it; 0: no cluster yet
    cluster: bool = True  # there is one after it
    prepare: Callable[[World], None] = lambda _: None  # in addition to cluster and topic
    spec: dict[str, Any] = field(default_factory=dict)  # of the cluster before it


def _topics(world: World) -> None:
    world.topic("orders", partitions=4, replicationFactor=TOPIC_REPLICAS)


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


def _user(world: World, rotation: str = "1") -> None:
    acls = [{"resource": {"type": "topic", "name": "orders"}, "operations": ["read", "write"]}]
    world.user("alice", {ROTATE_ANNOTATION: rotation}, acls=acls, quotas={"producerByteRate": 9})


def _delete_user(world: World) -> None:
    args = ("delete", "kafkauser", "alice", "-n", world.namespace, "--wait=false")
    world.kubernetes.kubectl(*args)


def _user_is_complete(world: World) -> bool:
    """Its Secret and Kafka agree."""
    secret = world.own.get(Secret, "alice", namespace=world.namespace)
    annotations = (secret.metadata.annotations if secret.metadata else None) or {}
    password = base64.b64decode((secret.data or {})["password"]).decode()
    users = world.kafka.users
    return (
        users.scram == {"alice": {2: int(annotations[ITERATIONS_ANNOTATION])}}
        and world.kafka.passwords["alice"] == password
        and len(users.acls or ()) == 2
        and len(users.quotas) == 1
    )


def _user_is_rotated(world: World) -> bool:
    secret = world.own.get(Secret, "alice", namespace=world.namespace)
    annotations = (secret.metadata.annotations if secret.metadata else None) or {}
    return annotations[ROTATION_ANNOTATION] == "2" and _user_is_complete(world)


def _no_user(world: World) -> bool:
    users = world.kafka.users
    names = [s.metadata.name for s in world.own.list(Secret, namespace=world.namespace)
             if s.metadata]  # fmt: skip
    nothing = (users.scram, users.acls, users.quotas) == ({}, frozenset(), {})
    return nothing and "alice" not in names and world.get("KafkaUser", "alice") is None


def _skew(world: World) -> None:
    """A topic whose replicas are all on brokers 0 and 1, as if it was created before the others."""
    if world.kafka.topics and "skewed" not in world.kafka.topics:
        world.kafka.topics["skewed"] = {}
        for n in range(6):
            id_ = TopicPartition("skewed", n)
            pair = (n % 2, 1 - n % 2)
            world.kafka.partitions[id_] = Partition(id_, pair[0], pair, frozenset(pair))


def _rebalance(world: World) -> None:
    _skew(world)
    world.kafka.unthrottled_moves = 0  # a new Topic may have moved replicas to brokers that started
    world.rebalance("even", autoApprove=True, throttle="10M")


def _rebalanced(world: World) -> bool:
    """Broker 2 has its share, every move was throttled, and no throttle is left."""
    held = [p for id_, p in world.kafka.partitions.items() if id_.topic == "skewed"]
    found = {
        "phase": world.status("KafkaRebalance", "even").get("phase"),
        "broker 2": any(2 in p.replicas for p in held),
        "moving": any(p.moving for p in held),
        "throttled": world.kafka.throttled_moves > 0,
        "unthrottled": world.kafka.unthrottled_moves,
        "left": world.kafka.throttles,
    }
    wanted = {"phase": "Done", "broker 2": True, "moving": False, "throttled": True,
              "unthrottled": 0, "left": []}  # fmt: skip
    assert found == wanted, (found, world.status("KafkaRebalance", "even"), world.kafka.calls)
    return True


def _cancel(world: World) -> None:
    """It is deleted while replicas move: a throttle and moves are there."""
    _rebalance(world)
    for _ in range(200):
        world.try_pass()
        if any(p.moving for p in world.kafka.partitions.values()):
            break
        time.sleep(0.05)
    assert world.kafka.throttles
    args = ("delete", "kafkarebalance", "even", "-n", world.namespace, "--wait=false")
    world.kubernetes.kubectl(*args)


def _cancelled(world: World) -> bool:
    moving = any(p.moving for p in world.kafka.partitions.values())
    gone = world.get("KafkaRebalance", "even") is None
    return gone and not moving and world.kafka.throttles == []


STRICT: dict[str, Any] = {"security": "strict", "certificates": {"caOverlapHours": 0}}


def _create_strict(world: World) -> None:
    world.cluster(brokers=3, **STRICT)
    _topics(world)


def _rotate(world: World) -> None:
    world.cluster({ROTATE_CA_ANNOTATION: "1", RENEW_ANNOTATION: "1"}, brokers=3, **STRICT)


def _rotated(world: World) -> bool:
    """One CA is left, which was not there before, all nodes serve it, and no pod was restarted."""
    loaded = world.certificates.loaded.values()
    trusted = {one.trusted for one in loaded}
    issuers = {read(one.certificate_pem).issuer_key_id for one in loaded}
    phases = [one.get("phase", "") for one in world.status()["certificates"]]
    return (
        len(loaded) == 3
        and trusted == {frozenset(issuers)}
        and not any(phases)
        and set(world.first_uids) == set(world.pod_uids())
        and read(next(iter(loaded)).certificate_pem).issuer_key_id not in world.first_issuers
    )


LISTENERS: list[dict[str, Any]] = [
    {"name": "plaintext", "port": 9092},
    {"name": "clients", "port": 9095, "tls": True, "authentication": {"type": "scram-sha-512"}},
]


def _secure(world: World) -> None:
    """TLS is added to an open cluster: three rolls."""
    world.cluster(brokers=3, listeners=LISTENERS)


def _secured(world: World) -> bool:
    return all(
        settings.get(INTER_BROKER) == "REPLICATION" and FURTHER_INTER_BROKER not in settings
        for settings in world.kafka.up.values()
    )


def _open(world: World) -> None:
    world.cluster(brokers=3, listeners=LISTENERS[:1])


def _opened(world: World) -> bool:
    return not any("REPLICATION" in s["listeners"] for s in world.kafka.up.values())


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
    "create strict": Scenario(
        _create_strict,
        lambda w: len(w.certificates.loaded) == 3 and "orders" in w.kafka.topics,
        0,
    ),
    "rotate": Scenario(_rotate, _rotated, spec=STRICT),
    "secure": Scenario(_secure, _secured),
    "open": Scenario(_open, _opened, spec={"listeners": LISTENERS}),
    "grow": Scenario(_grow, lambda w: sorted(w.kafka.registered) == [0, 1, 2, 3]),
    "shrink": Scenario(_shrink, lambda w: sorted(w.kafka.registered) == [0, 1, 2], 4),
    "roll": Scenario(_roll, lambda w: not set(w.first_uids) & set(w.pod_uids())),
    "delete topic": Scenario(_delete_topic, lambda w: "orders" not in w.kafka.topics),
    "create user": Scenario(_user, _user_is_complete, 1),
    "rotate user": Scenario(lambda w: _user(w, "2"), _user_is_rotated, 1, prepare=_user),
    "delete user": Scenario(_delete_user, _no_user, 1, prepare=_user),
    "rebalance": Scenario(_rebalance, _rebalanced),
    "cancel rebalance": Scenario(_cancel, _cancelled),
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
            self.world.cluster(brokers=self.scenario.begin, **self.scenario.spec)
            if self.scenario.begin >= TOPIC_REPLICAS:
                _topics(self.world)
            self.scenario.prepare(self.world)
        else:
            self._change()

    def _change(self) -> None:
        self.stage = "changed"
        self.world.first_uids = self.world.pod_uids()
        loaded = self.world.certificates.loaded.values()
        self.world.first_issuers = {read(one.certificate_pem).issuer_key_id for one in loaded}
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
        assert self.world.certificates.outages == [], where
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


@pytest.mark.parametrize(
    ("name", "points"),
    [
        ("create", [2, 9, 16]),
        ("roll", [2, 5, 9]),
        ("rotate", [1, 4, 7]),
        ("secure", [5, 14]),
        ("create user", [1, 2, 3, 4, 5]),
        ("rebalance", [1, 2, 3, 4, 5, 6]),
    ],
)
def test_killed_at_some_writes(
    kubernetes: ControlPlane, name: str, points: list[int | None]
) -> None:
    _in_batches(kubernetes, name, points)
