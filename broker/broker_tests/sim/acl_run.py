"""One run of a cluster whose operator changes ACLs: the cluster's faults, an authorizer per node.

The invariants: at any time a node decides according to the ACLs in its own image (compared with a
model that checks all of them), and after the heal all nodes have the same ACLs.
"""

from __future__ import annotations

from random import Random
from typing import Any

from broker_tests.security.support import NAMES, USERS, naive
from broker_tests.sim.cluster_node import ClusterNode
from broker_tests.sim.cluster_run import ClusterRun, Outcome
from broker_tests.sim.faults import Fault
from broker_tests.sim.mutants import Mutant
from broker_tests.sim.raft_run import CALM_CONFIG
from broker_tests.sim.world import SimulationError
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.model.principal import Principal
from odradek_broker.security.authorizer import Authorizer, Client
from odradek_protocol.acl_codes import AclOperation, AclPermission, AclResource, PatternType
from odradek_protocol.messages.struct import Struct

HOST = "10.0.0.1"
OPERATIONS = (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL)


class AclNode(ClusterNode):
    """A node with the authorizer that `wiring.py` gives a broker."""

    authorizer: Authorizer

    def _make_partitions(self) -> None:
        super()._make_partitions()
        authorizer = self.authorizer = Authorizer()
        self.metadata.subscribe(lambda delta, _: authorizer.apply(delta))


class AclRun(ClusterRun):
    def __init__(
        self,
        seed: int | str,
        *,
        faults: tuple[Fault, ...] | None = None,
        keep_trace: bool = False,
    ) -> None:
        super().__init__(f"acl-{seed}", faults=faults, keep_trace=keep_trace)
        self._acl_rng = self.world.rng("acls")
        self.checks = 0

    def _make_node(self, node_id: int, **options: Any) -> ClusterNode:
        return AclNode(self.world, node_id, CALM_CONFIG, **options)

    def _consume(self) -> None:
        super()._consume()
        if self._loaded:
            self._change_acls()
            self._check_decisions()

    def _change_acls(self) -> None:
        rng = self._acl_rng
        if rng.random() < 0.6:
            self.operator.ask("create_acls", Struct(creations=[_some_acl(rng) for _ in range(2)]))
        else:
            self.operator.ask("delete_acls", Struct(filters=[_filter(rng.choice(NAMES))]))

    def _check_decisions(self) -> None:
        rng = self._acl_rng
        for node in self.nodes.values():
            assert isinstance(node, AclNode)
            if not self.world.hosts[node.node_id].up or not node.authorizer.is_ready:
                continue
            user, name = rng.choice(USERS), rng.choice(NAMES)
            self._check(node, user, rng.choice(OPERATIONS), name)

    def _check(self, node: AclNode, user: str, operation: AclOperation, name: str) -> None:
        client = Client(Principal("User", user), HOST)
        topics = node.authorizer.decisions(client, operation, AclResource.TOPIC)
        acls = node.metadata.image.acls.values()
        expected = naive(acls, f"User:{user}", HOST, operation, AclResource.TOPIC, name)
        self.checks += 1
        if topics.about(name).allowed is not expected:
            self.cluster.fail(
                f"node {node.node_id} at {node.metadata.image.offset}: {operation.name} of {name} "
                f"by {user} should be {'allowed' if expected else 'denied'}"
            )

    def _last_writes(self) -> None:
        super()._last_writes()
        for node in self.nodes.values():
            assert isinstance(node, AclNode)
            if node.metadata.image.acls != self.cluster.image.acls:
                raise SimulationError(f"node {node.node_id} has other ACLs than are committed")
            for user in USERS:
                for name in NAMES:
                    self._check(node, user, AclOperation.READ, name)
        if self.cluster.violation is not None:
            raise SimulationError(self.cluster.violation)

    def run(self) -> Outcome:
        outcome = super().run()
        outcome.reads = self.checks
        return outcome


def _some_acl(rng: Random) -> Struct:
    return Struct(
        resource_type=AclResource.TOPIC,
        resource_name=rng.choice(NAMES),
        resource_pattern_type=rng.choice((PatternType.LITERAL, PatternType.PREFIXED)),
        principal=f"User:{rng.choice(USERS)}",
        host="*",
        operation=rng.choice(OPERATIONS),
        permission_type=rng.choice((AclPermission.ALLOW, AclPermission.ALLOW, AclPermission.DENY)),
    )


def _filter(name: str) -> Struct:
    return Struct(
        resource_type_filter=1,
        resource_name_filter=name,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )


def _remembers(_: Authorizer) -> None:
    """Cached decisions are used after the ACLs have changed."""


def _adds_only(self: Authorizer, delta: MetadataDelta) -> None:
    """ACLs that were removed stay in force."""
    self._change({acl_id: acl for acl_id, acl in delta.changed_acls.items() if acl is not None})
    self.is_ready = True
    self._forget_decisions()


ACL_SEEDS_MAX = 10
ACL_MUTANTS: tuple[tuple[Mutant, int], ...] = (
    (Mutant("stale-authorizer-cache", ((Authorizer, "_forget_decisions", _remembers),)), 0),
    (Mutant("removed-acls-stay", ((Authorizer, "apply", _adds_only),)), 0),
)


def run_acl_seed(seed: int | str, *, keep_trace: bool = False) -> Outcome:
    return AclRun(seed, keep_trace=keep_trace).run()
