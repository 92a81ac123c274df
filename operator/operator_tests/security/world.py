"""A simulated cluster that loads its key stores late, for tests of the plan of certificates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek_api.kafka_cluster.security import Certificates
from odradek_operator.security.certificates import (
    CertificatePlan,
    Handshake,
    SecretWrite,
    WantedCertificates,
    plan,
)
from odradek_operator.security.issuing import carry_out, node_subject
from odradek_operator.security.material import Material, Secrets, read_material
from odradek_operator.security.pki import Certificate, read
from odradek_testkit.bundles import read_bundle

START = 1_800_000_000.0


@dataclass(frozen=True)
class Loaded:
    """The material that one node has loaded: its certificate, the key ids of the CAs it trusts."""

    certificate: Certificate
    trusts: frozenset[str]

    def accepts(self, other: Certificate, now: float) -> bool:
        return other.issuer_key_id in self.trusts and other.not_before <= now < other.not_after


@dataclass
class World:
    policy: Certificates = field(default_factory=lambda: Certificates(ca_overlap_hours=0))
    node_ids: tuple[int, ...] = (0, 1, 2)
    renew: str = ""
    rotate: str = ""
    now: float = START
    secrets: dict[str, Mapping[str, bytes]] = field(default_factory=dict)
    loaded: dict[int, Loaded] = field(default_factory=dict)
    done: list[SecretWrite] = field(default_factory=list)

    @property
    def wanted(self) -> WantedCertificates:
        nodes = {n: node_subject((f"main-{n}", "localhost"), ("127.0.0.1",)) for n in self.node_ids}
        return WantedCertificates("main", self.policy, nodes, self.renew, self.rotate)

    @property
    def material(self) -> Material:
        found: Secrets = self.secrets
        return read_material("main", found)

    def seen(self) -> dict[int, Handshake]:
        return {n: Handshake(one.certificate, one.trusts) for n, one in self.loaded.items()}

    def plan(self) -> CertificatePlan:
        return plan(self.material, self.wanted, self.seen(), self.now)

    def write_one(self) -> bool:
        """Plans from the Secrets alone, and writes one of them; False if no write was planned."""
        steps = self.plan().steps
        if not steps:
            return False
        name, content = carry_out(steps[0], self.material, self.wanted, self.now)
        assert self.secrets.get(name) != content, f"{steps[0]} changes nothing"
        self.secrets[name] = content
        self.done.append(steps[0])
        return True

    def load(self, node: int) -> None:
        """The node notices that the files changed."""
        material = self.material
        if node in material.nodes:
            bundle = frozenset(c.key_id for _, c in read_bundle(material.cluster_bundle))
            self.loaded[node] = Loaded(read(material.nodes[node].certificate_pem), bundle)

    def settle(self) -> None:
        for _ in range(100):
            wrote = self.write_one()
            before = dict(self.loaded)
            for node in self.node_ids:
                self.load(node)
            if not wrote and before == self.loaded:
                return
        raise AssertionError(f"no end: {self.plan()}")

    def check(self) -> None:
        """Every node and the operator can connect to every node, as they are at this moment."""
        material = self.material
        if material.operator is None:
            return
        own = read(material.operator.certificate_pem)
        trusted = frozenset(c.key_id for _, c in read_bundle(material.cluster_bundle))
        for node, one in self.loaded.items():
            assert one.accepts(own, self.now), f"node {node} does not accept the operator"
            assert one.certificate.issuer_key_id in trusted, f"clients do not trust node {node}"
            for other, peer in self.loaded.items():
                assert one.accepts(peer.certificate, self.now), f"{node} does not accept {other}"
