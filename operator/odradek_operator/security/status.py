"""The certificates of a cluster in its status: until when they are valid, and rotations."""

from __future__ import annotations

from odradek_api.base import instant
from odradek_api.kafka_cluster.status import CertificateStatus
from odradek_operator.security.certificates import Authority, CertificatePlan
from odradek_operator.security.material import Ca, Material, read_pair


def certificate_statuses(material: Material, plan: CertificatePlan) -> list[CertificateStatus]:
    """CAs, then the operator's certificate, then the one of each node."""
    pending = [*(one.reason for one in plan.waits), *(one.reason for one in plan.later)]
    cas = {
        Authority.CLUSTER.value: material.cluster_ca,
        Authority.CLIENTS.value: material.clients_ca,
    }
    phases = {name: _phase(ca) for name, ca in cas.items() if ca is not None}
    return [
        CertificateStatus(
            name=name,
            not_after=instant(not_after),
            phase=phases.get(name, ""),
            message="; ".join(reason for reason in pending if name in reason),
        )
        for name, not_after in expiries(material).items()
    ]


def expiries(material: Material) -> dict[str, float]:
    """Certificate, as in the status, → unix seconds of its end; for the metric."""
    found = {
        name.value: ca.certificate.not_after
        for name, ca in (
            (Authority.CLUSTER, material.cluster_ca),
            (Authority.CLIENTS, material.clients_ca),
        )
        if ca is not None
    }
    pairs = {"operator": material.operator}
    pairs |= {f"broker {node}": pair for node, pair in material.nodes.items()}
    pairs |= {f"listeners of broker {node}": pair for node, pair in material.listeners.items()}
    return found | {
        name: certificate.not_after
        for name, pair in pairs.items()
        if (certificate := read_pair(pair)) is not None
    }


def _phase(ca: Ca) -> str:
    if ca.next is not None:
        return "TrustBoth"
    return "IssueNew" if ca.old else ""
