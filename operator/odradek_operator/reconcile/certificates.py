"""Keeps the certificates of one cluster: reads its Secrets, asks its nodes, writes what is due.

    keeper = CertificateKeeper(store, "main")
    assessed = keeper.assess(wanted, running, now)      # changes nothing
    keeper.act(assessed, now)                           # writes Secrets, one after the other

Runs before the plan of the cluster in every pass, because nodes cannot start without their
certificates. Nodes are asked only while something is pending: during a rotation, and until each
one serves the certificate of its key store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Protocol

from odradek_api.base import Resource
from odradek_api.kafka_cluster.security import RENEW_ANNOTATION, ROTATE_CA_ANNOTATION
from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_operator.admin.handshakes import ask
from odradek_operator.admin.kafka_admin import KafkaAdmin
from odradek_operator.kafka.actions import listed
from odradek_operator.kafka.links import addresses
from odradek_operator.kafka.placement import is_controller
from odradek_operator.kafka.routes import (
    Settings,
    given_address,
    internal_address,
    mtls_address,
)
from odradek_operator.kafka.security_settings import key_store_settings
from odradek_operator.security.certificates import (
    CertificatePlan,
    Handshake,
    SecretWrite,
    WantedCertificates,
    not_serving,
    plan,
)
from odradek_operator.security.given import external_certificates, source_secrets
from odradek_operator.security.issuing import carry_out, node_subject, words
from odradek_operator.security.material import (
    Ca,
    InvalidSecretError,
    Material,
    Secrets,
    read_material,
    secret_names,
)
from odradek_operator.security.pki import KeyPair, Subject, Usage, from_der, issue, read
from odradek_protocol.client.security import SecuritySettings

WRITES_MAX = 20  # in one pass; a new cluster needs five
# A certificate that only asks whether a CA is accepted. It has no rights, and is never stored.
PROBE, PROBE_VALID_S = Subject("odradek-probe"), 3600.0
NOTHING = CertificatePlan()
LOAD_EVERY_S = 1.0


Ask = Callable[[str, KeyPair | None], tuple[bytes | None, bool]]


class SecretStore(Protocol):
    """Implemented by kubernetes/secrets.py and local/secrets.py."""

    def read(self, names: Iterable[str]) -> Secrets: ...

    def write(self, name: str, content: Mapping[str, bytes]) -> None: ...


@dataclass(frozen=True)
class Certified:
    """The existing certificates, and the steps and waits that follow from them."""

    wanted: WantedCertificates
    material: Material
    seen: Mapping[int, Handshake] = field(default_factory=dict)
    plan: CertificatePlan = NOTHING
    stale: tuple[int, ...] = ()  # nodes that do not use yet what is in the Secrets
    problem: str = ""
    warnings: tuple[str, ...] = ()  # about certificates that others make

    @property
    def lines(self) -> list[str]:
        """For `odradek plan` and the report."""
        waits = [f"wait: for {one.reason}" for one in self.plan.waits]
        if not waits and self.stale:
            waits = [f"wait: for {listed(self.stale, 'node')} to load new certificates"]
        return [*map(words, self.plan.steps), *waits]


class CertificateKeeper:
    def __init__(self, store: SecretStore, cluster: str, ask: Ask = ask) -> None:
        self.store = store
        self.cluster = cluster
        self._ask_node = ask
        # Node → the material that it was seen to use completely, and what was seen.
        self._confirmed: dict[int, tuple[Material, Handshake]] = {}
        self._security: tuple[Material, SecuritySettings | None] = (Material(), None)
        self._loaded: dict[int, tuple[Material, float]] = {}  # engine apache: when it was asked to

    def material(self) -> Material:
        """Raises InvalidSecretError."""
        return read_material(self.cluster, self.store.read(secret_names(self.cluster)))

    def client_security(self) -> SecuritySettings | None:
        """The operator's own identity; None until it has one. The same object until it changes."""
        try:
            found = self.material()
        except InvalidSecretError:
            return self._security[1]
        used = Material(cluster_bundle=found.cluster_bundle, operator=found.operator)
        if used != self._security[0]:
            self._security = used, _client_security(used)
        return self._security[1]

    def assess(
        self, wanted: WantedCertificates, running: Mapping[int, Settings], now: float
    ) -> Certified:
        """`running`: nodes → the settings that they run with."""
        try:
            material = self.material()
        except InvalidSecretError as error:
            return Certified(wanted, Material(), problem=str(error))
        policy, nodes = wanted.policy, wanted.brokers
        secrets = self.store.read(source_secrets(policy, self.cluster, nodes))
        external = external_certificates(policy, self.cluster, nodes, secrets, now)
        if external is not None:
            wanted = replace(wanted, external=external)
            if external.lacking(nodes, material.listeners):
                reason = "; ".join(external.problems)
                return Certified(wanted, material, problem=f"spec.certificates: {reason}")
        seen = self._ask(material, running, now)
        stale = tuple(n for n, one in seen.items() if not _is_complete(material, n, one))
        steps = plan(material, wanted, seen, now)
        warnings = external.problems if external is not None else ()
        return Certified(wanted, material, seen, steps, stale, warnings=warnings)

    def act(self, assessed: Certified, now: float) -> list[SecretWrite]:
        """Writes until only waiting is left; returns the steps that were carried out."""
        done: list[SecretWrite] = []
        if assessed.problem:
            return done
        material, steps = assessed.material, assessed.plan.steps
        while steps and len(done) < WRITES_MAX:
            name, content = carry_out(steps[0], material, assessed.wanted, now)
            self.store.write(name, content)
            done.append(steps[0])
            material = self.material()
            steps = plan(material, assessed.wanted, assessed.seen, now).steps
        return done

    def load_again(
        self, assessed: Certified, running: Mapping[int, Settings], admin: KafkaAdmin, now: float
    ) -> list[str]:
        """Asks Apache Kafka's nodes to read files that changed; returns the refusals.

        Our own brokers notice it by themselves. A node that does not use the files yet is asked
        again: on Kubernetes they appear in the pod some time after the Secret was written.
        """
        refused: list[str] = []
        for node in assessed.seen:
            before, at = self._loaded.get(node, (None, 0.0))
            due = before != assessed.material or node in assessed.stale
            if not due or now < at + LOAD_EVERY_S:
                continue
            files = key_store_settings(running[node])
            if is_controller(node):
                controllers = [internal_address(s) for n, s in running.items() if is_controller(n)]
                why = admin.load_controllers_files_again(node, files, controllers)
            else:
                why = admin.load_files_again(node, files)
            refused += [f"load certificates of node {node}: {text}" for text in why.values()]
            self._loaded[node] = assessed.material, now
        return refused

    def _ask(
        self, material: Material, running: Mapping[int, Settings], now: float
    ) -> dict[int, Handshake]:
        """The certificates that nodes serve and accept; nodes that use all are not asked again."""
        seen: dict[int, Handshake] = {}
        if material.operator is None or material.cluster_ca is None or material.clients_ca is None:
            return seen
        for node, settings in running.items():
            address = internal_address(settings)
            known = self._confirmed.get(node)
            if known is not None and known[0] == material:
                seen[node] = known[1]
                continue
            der = self._ask_node(address, material.operator)[0] if address else None
            if der is None:
                continue
            accepted = self._accepted(address, material.cluster_ca, now)
            if clients := mtls_address(settings):
                accepted |= self._accepted(clients, material.clients_ca, now)
            elif material.clients_ca.next is not None:  # no client has to have a certificate
                accepted |= {read(material.clients_ca.next.certificate_pem).key_id}
            shown = None
            if material.listeners and (at := given_address(settings)):
                shown = self._ask_node(at, None)[0]
            seen[node] = Handshake(from_der(der), accepted, from_der(shown) if shown else None)
            if _is_complete(material, node, seen[node]):
                self._confirmed[node] = material, seen[node]
        return seen

    def _accepted(self, address: str, ca: Ca, now: float) -> frozenset[str]:
        """The key id of the next CA, if the node accepts a certificate of it."""
        if ca.next is None:
            return frozenset()
        probe = issue(ca.next, PROBE, Usage.CLIENT, now, PROBE_VALID_S)
        _, accepted = self._ask_node(address, probe)
        return frozenset({read(ca.next.certificate_pem).key_id}) if accepted else frozenset()


def wanted_certificates(
    resource: Resource[KafkaClusterSpec],
    nodes: Mapping[int, Settings],
    dns: Sequence[str] = (),
    ips: Mapping[int, tuple[str, ...]] | None = None,
) -> WantedCertificates:
    """`nodes`: of all nodes that run or are going to; `dns`: names that lead to any of them, in
    addition to the bootstrap names of proxies; `ips`: further addresses of single nodes."""
    listeners = resource.spec.listener_list
    dns = [*dns, *(one.host_of("bootstrap") for one in listeners if one.type == "passthrough")]
    return WantedCertificates(
        resource.name,
        resource.spec.certificates,
        {n: _subject(settings, dns, (ips or {}).get(n, ())) for n, settings in nodes.items()},
        resource.annotations.get(RENEW_ANNOTATION, ""),
        resource.annotations.get(ROTATE_CA_ANNOTATION, ""),
        any(one.authentication.type == "mtls" for one in listeners),
        frozenset(filter(is_controller, nodes)),
    )


def _subject(settings: Settings, dns: Sequence[str], more: Sequence[str]) -> Subject:
    """Every host that the node advertises, except those that only the pod knows (${env:…})."""
    hosts = {address.rpartition(":")[0] for address in addresses(settings).values()}
    ips = {host for host in (*hosts, *more) if _is_ip(host)}
    named = {host for host in hosts - ips if "$" not in host}
    return node_subject(tuple(sorted(named | set(dns))), tuple(sorted(ips)))


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _client_security(material: Material) -> SecuritySettings | None:
    own = material.operator
    if own is None or not material.cluster_bundle:
        return None
    return SecuritySettings.from_properties(
        {
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": own.key_pem.decode(),
            "ssl.keystore.certificate.chain": own.certificate_pem.decode(),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": material.cluster_bundle.decode(),
        }
    )


def _is_complete(material: Material, node: int, seen: Handshake) -> bool:
    """Whether the node serves what is in its key store and accepts the next CAs."""
    following = [
        read(ca.next.certificate_pem).key_id
        for ca in (material.cluster_ca, material.clients_ca)
        if ca is not None and ca.next is not None
    ]
    return not not_serving(material, {node: seen}) and seen.accepted.issuperset(following)
