"""Certificates for clients that the cluster CA does not sign: of cert-manager, or the user's own.

    external = external_certificates(policy, "main", subjects, secrets, now)

Only what brokers show to clients comes from there. Between each other, nodes and the operator use
the cluster CA, so an issuer that is not available stops no broker. A Secret that cannot be used is
reported, and brokers keep the last one that could. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek_api.base import instant
from odradek_api.kafka_cluster.security import (
    CA_CERTIFICATE,
    CERTIFICATE,
    KEY,
    Certificates,
    issued_secret,
)
from odradek_operator.security.pki import (
    Certificate,
    InvalidCertificateError,
    KeyPair,
    Subject,
    as_pkcs8,
    belongs,
    days,
    read,
)

Secrets = Mapping[str, Mapping[str, bytes]]


@dataclass(frozen=True)
class External:
    source: str  # "Secret web", for people
    pairs: Mapping[int, KeyPair] = field(default_factory=dict)  # node → certificate chain and key
    ca_pem: bytes = b""  # the CA that clients have to trust; empty: clients trust it anyway
    problems: tuple[str, ...] = ()  # sentences: what is missing, wrong, or expires

    def lacking(self, nodes: Mapping[int, Subject], copied: Mapping[int, KeyPair]) -> list[int]:
        """Nodes that cannot start: there is no certificate for them, and never was one."""
        return sorted(n for n in nodes if n not in self.pairs and n not in copied)


def source_secrets(policy: Certificates, cluster: str, nodes: Mapping[int, Subject]) -> list[str]:
    """The names of the Secrets to read."""
    if policy.secret_name is not None:
        return [policy.secret_name]
    if policy.issuer_ref is not None:
        return [issued_secret(cluster, node) for node in nodes]
    return []


def external_certificates(
    policy: Certificates,
    cluster: str,
    nodes: Mapping[int, Subject],
    secrets: Secrets,
    now: float,
) -> External | None:
    """None if the cluster CA signs what clients are shown."""
    if not policy.external:
        return None
    own = policy.secret_name
    of_node = {n: own if own is not None else issued_secret(cluster, n) for n in nodes}
    pairs: dict[int, KeyPair] = {}
    cas: dict[bytes, None] = {}
    problems: dict[str, None] = {}
    for node, name in of_node.items():
        found = secrets.get(name, {})
        pair = KeyPair(found.get(CERTIFICATE, b""), found.get(KEY, b""))
        if problem := _unusable(name, pair, now):
            problems[problem] = None
            continue
        pairs[node] = as_pkcs8(pair)
        if ca := found.get(CA_CERTIFICATE, b"").strip():
            cas[ca + b"\n"] = None
        certificate = read(pair.certificate_pem)
        if problem := _doubtful(name, certificate, nodes[node], policy, now):
            problems[problem] = None
    source = f"Secret {own}" if own is not None else f"cert-manager ({_issuer(policy)})"
    return External(source, pairs, b"".join(cas), tuple(problems))


def _unusable(name: str, pair: KeyPair, now: float) -> str:
    if not pair.certificate_pem and not pair.key_pem:
        return f"Secret {name} does not exist, or has no {CERTIFICATE} and {KEY} yet"
    try:
        if not belongs(pair):
            return f"Secret {name}: {KEY} is not the private key of {CERTIFICATE}"
        found = read(pair.certificate_pem)
    except InvalidCertificateError as error:
        return f"Secret {name}: {error}"
    if now >= found.not_after:
        return f"Secret {name}: its certificate expired at {instant(found.not_after)}: replace it"
    return ""


def _doubtful(
    name: str, found: Certificate, subject: Subject, policy: Certificates, now: float
) -> str:
    if found.not_before > now:
        return f"Secret {name}: its certificate is valid only from {instant(found.not_before)}"
    missing = [one for one in subject.dns if not _covers(found.dns, one)]
    missing += sorted(set(subject.ips) - found.ips)
    if missing:
        listed = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if missing[3:] else "")
        return f"Secret {name}: its certificate lacks names that clients use: {listed}"
    expires = now >= found.not_after - days(policy.renew_before_days)
    if expires and policy.secret_name is not None:
        return f"Secret {name}: its certificate expires at {instant(found.not_after)}: replace it"
    return ""


def _covers(names: frozenset[str], host: str) -> bool:
    """As clients check it: *.example.com covers one label."""
    return host in names or f"*.{host.partition('.')[2]}" in names


def _issuer(policy: Certificates) -> str:
    assert policy.issuer_ref is not None
    return f"{policy.issuer_ref.kind} {policy.issuer_ref.name}"
