"""Which certificates to issue, and the phases of a CA's rotation. Does no I/O.

    steps, waits = plan(material, wanted, seen, now)
    name, secret = carry_out(steps[0], material, wanted, now)      # issuing.py: one Secret to write

A plan is computed from the Secrets and from what the nodes were observed to serve and to accept. So
it does not matter where an earlier operator was stopped. Every step writes one Secret.

A CA is rotated in three phases; `old`/`next` in its Secret say which one it is in:

    AddNext  →  phase 1: both are trusted, the current one signs
    Promote  →  phase 2: both are trusted, the new one signs; certificates are issued again
    DropOld  →  only the new one is trusted

Phase 1 ends when every node accepted a client certificate of the new CA, phase 2 when every node
serves a certificate of it. A CA that cannot be used any more (expired, or not valid yet) is
replaced at once: nothing could be observed through it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from odradek_api.base import instant
from odradek_api.kafka_cluster.security import Certificates
from odradek_operator.security.given import External
from odradek_operator.security.material import Ca, Material, read_pair
from odradek_operator.security.pki import Certificate, KeyPair, Subject, days, read

HOUR_S = 3600.0


class Authority(Enum):
    CLUSTER = "cluster CA"
    CLIENTS = "clients CA"


class WriteKind(Enum):
    CREATE = "create"  # a new CA, or one that replaces an unusable one
    ADD_NEXT = "add next"
    PROMOTE = "promote"
    DROP_OLD = "drop old"
    PUBLISH_TRUST = "publish trust"
    ISSUE_NODES = "issue nodes"
    ISSUE_OPERATOR = "issue operator"
    COPY_LISTENERS = "copy listeners"  # certificates for clients that another CA signed


@dataclass(frozen=True, slots=True)
class SecretWrite:
    """The write of one Secret, and why."""

    kind: WriteKind
    code: str  # a word for machines: CertificateExpires
    reason: str  # a sentence for people
    authority: Authority | None = None
    nodes: tuple[int, ...] = ()


@dataclass(frozen=True)
class WantedCertificates:
    cluster: str
    policy: Certificates
    nodes: Mapping[int, Subject]  # with all names that clients and brokers use
    renew: str = ""  # value of the annotation that requests new certificates
    rotate: str = ""  # value of the annotation that requests new CAs
    client_certificates: bool = False  # whether a listener asks for them
    controllers: frozenset[int] = frozenset()  # nodes without listeners for clients
    external: External | None = None  # what clients are shown, if the cluster CA does not sign it

    @property
    def brokers(self) -> dict[int, Subject]:
        return {n: one for n, one in self.nodes.items() if n not in self.controllers}


@dataclass(frozen=True, slots=True)
class Handshake:
    """The result of a handshake with a node. A node that did not answer has none."""

    served: Certificate | None = None
    accepted: frozenset[str] = frozenset()  # key ids of CAs whose client certificates it accepts
    shown: Certificate | None = None  # to clients, if the cluster CA did not sign it


@dataclass(frozen=True, slots=True)
class Later:
    """A time that a rotation waits for."""

    reason: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """Something that nodes have to do first."""

    reason: str
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CertificatePlan:
    steps: tuple[SecretWrite, ...] = ()
    waits: tuple[Waiting, ...] = ()
    later: tuple[Later, ...] = ()


def plan(
    material: Material, wanted: WantedCertificates, seen: Mapping[int, Handshake], now: float
) -> CertificatePlan:
    found = [
        one
        for authority in Authority
        for one in _rotation(authority, _of(material, authority), material, wanted, seen, now)
    ]
    steps = [one for one in found if isinstance(one, SecretWrite)]
    waits = tuple(one for one in found if isinstance(one, Waiting))
    later = tuple(one for one in found if isinstance(one, Later))
    if steps:  # what follows depends on the CAs
        return CertificatePlan(tuple(steps), waits, later)
    assert material.cluster_ca is not None
    assert material.clients_ca is not None
    listeners_ca = wanted.external.ca_pem if wanted.external is not None else b""
    bundles = material.cluster_ca.bundle, material.clients_ca.bundle, listeners_ca
    published = material.cluster_bundle, material.clients_bundle, material.listeners_ca
    if published != bundles:
        steps.append(
            SecretWrite(WriteKind.PUBLISH_TRUST, "TrustChanged", "the trusted CAs changed")
        )
    steps += _issue(material.cluster_ca, material, wanted, now)
    if wanted.external is not None:
        given = wanted.external.pairs
        changed = [n for n, pair in given.items() if material.listeners.get(n) != pair]
        if changed:
            why = f"{wanted.external.source} has another certificate"
            nodes = tuple(sorted(changed))
            steps.append(
                SecretWrite(WriteKind.COPY_LISTENERS, "CertificateGiven", why, nodes=nodes)
            )
    return CertificatePlan(tuple(steps), waits, later)


def not_serving(material: Material, seen: Mapping[int, Handshake]) -> tuple[int, ...]:
    """Nodes that answered, and serve another certificate than the one in their key store."""
    return tuple(
        node
        for node, one in seen.items()
        if _differs(one.served, material.nodes.get(node))
        or _differs(one.shown, material.listeners.get(node))
    )


def _differs(served: Certificate | None, store: KeyPair | None) -> bool:
    if served is None or (stored := read_pair(store)) is None:
        return False
    return served.fingerprint != stored.fingerprint


def is_usable(certificate: Certificate, now: float) -> bool:
    return certificate.not_before <= now < certificate.not_after


# -- CAs -------------------------------------------------------------------------------------------


def _of(material: Material, authority: Authority) -> Ca | None:
    return material.cluster_ca if authority is Authority.CLUSTER else material.clients_ca


def _rotation(
    authority: Authority,
    ca: Ca | None,
    material: Material,
    wanted: WantedCertificates,
    seen: Mapping[int, Handshake],
    now: float,
) -> Iterator[SecretWrite | Waiting | Later]:
    name, policy = authority.value, wanted.policy
    if ca is None:
        yield SecretWrite(WriteKind.CREATE, "CaMissing", f"there is no {name} yet", authority)
        return
    found = ca.certificate
    if not is_usable(found, now):
        if ca.next is not None and is_usable(read(ca.next.certificate_pem), now):
            kind, then = WriteKind.PROMOTE, "its successor replaces it at once"
        else:
            kind, then = (
                WriteKind.CREATE,
                "a new one replaces it at once, and clients must trust it",
            )
        why = f"{_outage(found, now)}, so connections fail until nodes and clients have the new one"
        yield SecretWrite(kind, "CaUnusable", f"the {name} {why}; {then}", authority)
        return
    overlap = ca.state.since + policy.ca_overlap_hours * HOUR_S
    if ca.next is not None:
        missing = _not_accepting(read(ca.next.certificate_pem), authority, wanted, seen)
        if missing:
            yield Waiting(f"{_nodes(missing)} to accept the new {name}", tuple(missing))
        elif now < overlap:
            yield Later(f"clients can learn to trust the new {name} until {instant(overlap)}")
        else:
            why = f"every node accepts the new {name}: certificates are issued by it from now on"
            yield SecretWrite(WriteKind.PROMOTE, "CaTrusted", why, authority)
    elif ca.old:
        behind = _not_issued_by(found, authority, material, wanted, seen)
        if behind:
            why = f"{_nodes(behind)} to serve a certificate of the new {name}"
            yield Waiting(why, tuple(behind))
        elif now < overlap:
            yield Later(f"the old {name} is trusted until {instant(overlap)}")
        else:
            why = f"nothing uses the old {name} any more"
            yield SecretWrite(WriteKind.DROP_OLD, "CaUnused", why, authority)
    elif wanted.rotate != ca.state.handled and wanted.rotate:
        yield SecretWrite(
            WriteKind.ADD_NEXT, "RotationRequested", f"a new {name} was requested", authority
        )
    elif now >= found.not_after - days(policy.ca_renew_before_days):
        why = f"the {name} expires at {instant(found.not_after)}"
        yield SecretWrite(WriteKind.ADD_NEXT, "CaExpires", why, authority)


def _outage(found: Certificate, now: float) -> str:
    if now >= found.not_after:
        return f"expired at {instant(found.not_after)}"
    return f"is valid only from {instant(found.not_before)} (the clock was ahead when it was made)"


def _not_accepting(
    following: Certificate,
    authority: Authority,
    wanted: WantedCertificates,
    seen: Mapping[int, Handshake],
) -> list[int]:
    if authority is Authority.CLIENTS and not wanted.client_certificates:
        return []  # no listener asks for a certificate
    return [n for n in wanted.nodes if following.key_id not in seen.get(n, Handshake()).accepted]


def _not_issued_by(
    ca: Certificate,
    authority: Authority,
    material: Material,
    wanted: WantedCertificates,
    seen: Mapping[int, Handshake],
) -> list[int]:
    if authority is Authority.CLIENTS:
        return []
    behind = not_serving(material, seen)
    return [
        n
        for n in wanted.nodes
        if (served := seen.get(n, Handshake()).served) is None
        or served.issuer_key_id != ca.key_id
        or n in behind
    ]


def _nodes(nodes: list[int]) -> str:
    return f"node{'s' if len(nodes) > 1 else ''} {', '.join(map(str, nodes))}"


# -- certificates ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Reasons:
    """Nodes by the reason why they need a certificate."""

    by_reason: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def add(self, node: int, reason: tuple[str, str]) -> None:
        self.by_reason.setdefault(reason, []).append(node)


def _issue(
    ca: Ca, material: Material, wanted: WantedCertificates, now: float
) -> Iterator[SecretWrite]:
    """One step for all nodes, with the first reason: all of them are in one Secret."""
    found = _Reasons()
    for node, subject in wanted.nodes.items():
        reason = _reason(material.nodes.get(node), subject, ca.certificate, wanted.policy, now)
        if reason is None and wanted.renew and wanted.renew != material.nodes_state.handled:
            reason = "RenewalRequested", "a renewal was requested"
        if reason is not None:
            found.add(node, reason)
    if found.by_reason:
        code, sentence = next(iter(found.by_reason))
        nodes = sorted(n for some in found.by_reason.values() for n in some)
        yield SecretWrite(WriteKind.ISSUE_NODES, code, sentence, nodes=tuple(nodes))
    own = _reason(material.operator, Subject(""), ca.certificate, wanted.policy, now)
    if own is not None:
        yield SecretWrite(WriteKind.ISSUE_OPERATOR, *own)


def _reason(
    pair: KeyPair | None, subject: Subject, ca: Certificate, policy: Certificates, now: float
) -> tuple[str, str] | None:
    found = read_pair(pair)
    if found is None:
        return "CertificateMissing", "there is no certificate yet"
    if not is_usable(found, now):
        return "CertificateUnusable", f"its certificate {_outage(found, now)}"
    if found.issuer_key_id != ca.key_id:
        return "CaChanged", "its certificate is of an earlier cluster CA"
    if not (set(subject.dns) <= found.dns and set(subject.ips) <= found.ips):
        return "NamesChanged", "the names that clients use changed"
    # A certificate never outlives its CA: a new one must be worth it, or it would never end.
    longer = min(now + days(policy.validity_days), ca.not_after) > found.not_after + HOUR_S
    if now >= found.not_after - days(policy.renew_before_days) and longer:
        return "CertificateExpires", f"its certificate expires at {instant(found.not_after)}"
    return None
