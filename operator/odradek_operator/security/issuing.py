"""Carries out a step of the certificates' plan: the new content of one Secret. Does no I/O.

The only place of the operator that makes keys; they go into the returned Secret and nowhere else.
"""

from __future__ import annotations

from dataclasses import replace

from odradek_api.kafka_cluster.security import (
    BROKER_NAME,
    CERTIFICATE,
    CLIENTS_BUNDLE,
    CLUSTER_BUNDLE,
    KEY,
    LISTENERS_BUNDLE,
    OPERATOR_NAME,
    ORGANIZATION,
    brokers_secret,
    clients_ca_secret,
    cluster_ca_secret,
    operator_secret,
    trust_secret,
)
from odradek_operator.security.certificates import (
    Authority,
    SecretWrite,
    WantedCertificates,
    WriteKind,
)
from odradek_operator.security.material import Ca, Material, RotationState, brokers_content
from odradek_operator.security.pki import (
    COMMON_NAME_MAX,
    KeyPair,
    Subject,
    Usage,
    days,
    issue,
    new_ca,
)

OPERATOR = Subject(OPERATOR_NAME, ORGANIZATION)


def carry_out(
    step: SecretWrite, material: Material, wanted: WantedCertificates, now: float
) -> tuple[str, dict[str, bytes]]:
    """The name of a Secret, and everything that it has to contain from now on."""
    cluster = wanted.cluster
    if step.authority is not None:
        secret = (cluster_ca_secret if step.authority is Authority.CLUSTER else clients_ca_secret)(
            cluster
        )
        return secret, _ca(step, material, wanted, now).secret
    assert material.cluster_ca is not None
    assert material.clients_ca is not None
    signer, valid_s = material.cluster_ca.pair, days(wanted.policy.validity_days)
    if step.kind is WriteKind.PUBLISH_TRUST:
        bundles = {
            CLUSTER_BUNDLE: material.cluster_ca.bundle,
            CLIENTS_BUNDLE: material.clients_ca.bundle,
        }
        if wanted.external is not None and wanted.external.ca_pem:
            bundles[LISTENERS_BUNDLE] = wanted.external.ca_pem
        return trust_secret(cluster), bundles
    if step.kind is WriteKind.ISSUE_OPERATOR:
        own = issue(signer, OPERATOR, Usage.CLIENT, now, valid_s)
        return operator_secret(cluster), {CERTIFICATE: own.certificate_pem, KEY: own.key_pem}
    if step.kind is WriteKind.COPY_LISTENERS:
        assert wanted.external is not None
        copied = {n: p for n, p in material.listeners.items() if n in wanted.nodes}
        stores = dict(sorted((copied | dict(wanted.external.pairs)).items()))
        content = brokers_content(material.nodes, material.nodes_state, stores)
        return brokers_secret(cluster), content
    assert step.kind is WriteKind.ISSUE_NODES, step
    kept = {n: pair for n, pair in material.nodes.items() if n in wanted.nodes}
    made = {
        node: issue(signer, wanted.nodes[node], Usage.SERVER_AND_CLIENT, now, valid_s)
        for node in step.nodes
    }
    nodes = dict(sorted((kept | made).items()))
    return brokers_secret(cluster), brokers_content(
        nodes, RotationState(handled=wanted.renew), material.listeners
    )


def node_subject(dns: tuple[str, ...], ips: tuple[str, ...]) -> Subject:
    """All nodes have the same common name, so that a new node changes no setting of the others."""
    return Subject(BROKER_NAME, ORGANIZATION, dns, ips)


def _ca(step: SecretWrite, material: Material, wanted: WantedCertificates, now: float) -> Ca:
    before = material.cluster_ca if step.authority is Authority.CLUSTER else material.clients_ca
    if step.kind is WriteKind.CREATE:
        made = _new(step.authority, wanted, now)
        # A CA that is merely not valid yet stays trusted: its certificates become valid later.
        old = before.pair.certificate_pem if before and before.certificate.not_after > now else b""
        return Ca(made, None, old, RotationState(now, wanted.rotate))
    assert before is not None
    if step.kind is WriteKind.ADD_NEXT:
        return Ca(
            before.pair, _new(step.authority, wanted, now), b"", RotationState(now, wanted.rotate)
        )
    if step.kind is WriteKind.PROMOTE:
        assert before.next is not None
        old = before.pair.certificate_pem if before.certificate.not_after > now else b""
        return Ca(before.next, None, old, RotationState(now, before.state.handled))
    assert step.kind is WriteKind.DROP_OLD, step
    return replace(before, old=b"", state=RotationState(now, before.state.handled))


def _new(authority: Authority | None, wanted: WantedCertificates, now: float) -> KeyPair:
    """The time is part of its name, so that no two CAs of a cluster have the same name."""
    assert authority is not None
    ending = f" {authority.value} {int(now)}"
    name = wanted.cluster[: COMMON_NAME_MAX - len(ending)] + ending
    return new_ca(name, now, days(wanted.policy.ca_validity_days))


def words(step: SecretWrite) -> str:
    """A step in one line, for `odradek plan`, Events and logs."""
    what = {
        WriteKind.CREATE: f"create the {step.authority and step.authority.value}",
        WriteKind.ADD_NEXT: f"add a new {step.authority and step.authority.value} to trust",
        WriteKind.PROMOTE: f"sign with the new {step.authority and step.authority.value}",
        WriteKind.DROP_OLD: f"drop the old {step.authority and step.authority.value}",
        WriteKind.PUBLISH_TRUST: "publish the trusted CAs",
        WriteKind.ISSUE_NODES: f"issue certificates of nodes {', '.join(map(str, step.nodes))}",
        WriteKind.COPY_LISTENERS: "copy what brokers show to clients into their key stores",
        WriteKind.ISSUE_OPERATOR: "issue the operator's certificate",
    }[step.kind]
    return f"{what}: {step.reason}"
