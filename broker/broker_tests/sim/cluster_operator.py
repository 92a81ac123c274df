"""The operator of a simulated cluster: elects, moves, stops brokers, changes security, at random.

Each action is a request to a node that believes that it is the controller, as a real operator sends
one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from broker_tests.sim.cluster_checker import ClusterChecker
from broker_tests.sim.cluster_security import random_change
from broker_tests.sim.world import World
from odradek_broker.metadata.image import PartitionRegistration
from odradek_broker.model.principal import Principal
from odradek_protocol.messages.struct import Struct

if TYPE_CHECKING:
    from broker_tests.sim.cluster_node import ClusterNode

REPLICATION = 3
PREFERRED = 0  # the type of an election


class SimOperator:
    def __init__(
        self,
        world: World,
        nodes: Mapping[int, ClusterNode],
        cluster: ClusterChecker,
        topic: str,
        registrations: Callable[[], Sequence[PartitionRegistration]],
    ) -> None:
        self._world = world
        self._nodes = nodes
        self._cluster = cluster
        self._topic = topic
        self._registrations = registrations
        self.rng = world.rng("operator")
        self._security_rng = world.rng("security")
        self.changes_security = self._security_rng.random() < 0.2
        self.acts = False
        self.restless = False  # moves the leader all the time
        self._over = False

    def start(self, after_ms: int) -> None:
        self._world.after(after_ms, self._act)
        self._world.after(after_ms, self._change_security)

    def stop(self) -> None:
        self._over = True

    def draw_replicas(self) -> list[int]:
        return self.rng.sample(list(self._nodes), REPLICATION)

    def ask(self, kind: str, request: Struct, client: Principal | None = None) -> None:
        for node in self._nodes.values():
            if self._world.hosts[node.node_id].up and node.controller.active is not None:
                self._world.record(f"operator {kind} {node.node_id}")
                handle = partial(node.controller.handle, client=client)
                self._world.after_on(node.node_id, 0, handle, kind, request, lambda _: None)

    def _act(self) -> None:
        if self._over:
            return
        rng = self.rng
        if self.restless:
            self._move_leader()
            self._world.after(rng.randint(30, 120), self._act)
            return
        if self.acts:
            action = rng.choice((self._stop_a_broker, self._elect_preferred, self._reassign))
            action()
        self._world.after(rng.randint(100, 1200), self._act)

    def _change_security(self) -> None:
        if not self._over and self.changes_security:
            self.ask(*random_change(self._security_rng, self._cluster.image))
            self._world.after(self._security_rng.randint(50, 400), self._change_security)

    def _move_leader(self) -> None:
        """Another replica becomes the preferred leader, and the leader."""
        registrations = self._registrations()
        index = self.rng.randrange(len(registrations))
        registration = registrations[index]
        replicas = list(registration.replicas)
        others = [r for r in registration.isr if r != registration.leader]
        first = self.rng.choice(others or replicas)
        replicas.sort(key=lambda replica: replica != first)
        self._move(index, replicas)
        self._elect_preferred()

    def _stop_a_broker(self) -> None:
        node = self.rng.choice(list(self._nodes.values()))
        if self._world.hosts[node.node_id].up and not self._cluster.lost:
            self._world.record(f"operator stops {node.node_id}")
            self._world.after_on(node.node_id, 0, node.shut_down)

    def _elect_preferred(self) -> None:
        self.ask("elect_leaders", Struct(election_type=PREFERRED, topic_partitions=None))

    def _reassign(self) -> None:
        index = self.rng.randrange(len(self._registrations()))
        self._move(index, self.draw_replicas())

    def _move(self, index: int, replicas: Sequence[int]) -> None:
        asked = Struct(partition_index=index, replicas=replicas)
        topics = [Struct(name=self._topic, partitions=[asked])]
        request = Struct(allow_replication_factor_change=True, topics=topics)
        self.ask("alter_partition_reassignments", request)
