"""Certificates of one cluster on Kubernetes: Secrets, which the kubelet mounts into the pods."""

from __future__ import annotations

import time

from lightkube import Client

from odradek_api.base import Resource
from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_operator.admin.handshakes import ask
from odradek_operator.admin.kafka_admin import AdminError, KafkaAdmin
from odradek_operator.kafka.desired import DesiredCluster
from odradek_operator.kubernetes import names
from odradek_operator.kubernetes.issued import NoCertManagerError, request
from odradek_operator.kubernetes.platform import KubernetesPlatform
from odradek_operator.kubernetes.secrets import KubernetesSecrets
from odradek_operator.reconcile.certificates import (
    Ask,
    CertificateKeeper,
    Certified,
    wanted_certificates,
)
from odradek_operator.security.certificates import SecretWrite
from odradek_protocol.client.settings import PLAINTEXT, Security


class ClusterCertificates:
    """Lives as long as its cluster's worker: it remembers the material that nodes were seen to use.

    `connect` and `assess` begin a pass; `assess` changes nothing.
    """

    def __init__(self, client: Client, resource: Resource[KafkaClusterSpec], ask: Ask = ask):
        self._client = client
        self._secrets = KubernetesSecrets(client, resource)
        self._keeper = CertificateKeeper(self._secrets, resource.name, ask)

    def connect(
        self, resource: Resource[KafkaClusterSpec], platform: KubernetesPlatform, admin: KafkaAdmin
    ) -> None:
        """Sets how `admin` reaches the brokers: as the operator itself, where they have TLS."""
        self._secrets.next_pass(resource)
        admin.bootstrap, tls = platform.route()
        security: Security | None = self._keeper.client_security() if tls else None
        admin.security = security or PLAINTEXT

    def assess(self, desired: DesiredCluster, platform: KubernetesPlatform) -> Certified | None:
        """The plan for the certificates; None if the cluster has no TLS."""
        if not desired.secured:
            return None
        running = platform.running()
        nodes = {**running, **{n: node.settings for n, node in desired.nodes.items()}}
        service, namespace = names.bootstrap_service(desired.name), desired.namespace
        dns = [service, f"{service}.{namespace}", f"{service}.{namespace}.svc"]
        dns.append(f"{dns[-1]}.cluster.local")
        wanted = wanted_certificates(platform.resource, nodes, dns, platform.host_ips())
        return self._keeper.assess(wanted, running, time.time())

    def request(self, assessed: Certified, platform: KubernetesPlatform) -> str:
        """Asks cert-manager for the certificate that clients see; returns why it cannot."""
        if assessed.wanted.policy.issuer_ref is None:
            return ""
        try:
            request(self._client, platform.resource, assessed.wanted)
        except NoCertManagerError as error:
            return str(error)
        return ""

    def act(self, assessed: Certified) -> list[SecretWrite]:
        return self._keeper.act(assessed, time.time())

    def load_again(
        self, assessed: Certified, platform: KubernetesPlatform, admin: KafkaAdmin
    ) -> list[str]:
        """Engine apache: its nodes read files that changed. Returns the errors."""
        try:
            return self._keeper.load_again(assessed, platform.running(), admin, time.time())
        except AdminError as error:
            return [f"load new certificates: {error}"]
