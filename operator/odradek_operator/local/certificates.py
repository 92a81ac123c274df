"""Certificates of one cluster on this machine: in files, which its brokers load by themselves."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from odradek_api.base import Resource
from odradek_api.kafka_cluster.security import (
    CLIENTS_BUNDLE,
    CLUSTER_BUNDLE,
    brokers_secret,
    listener_store,
    node_store,
    trust_secret,
)
from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_operator.admin.handshakes import ask
from odradek_operator.admin.kafka_admin import AdminError, KafkaAdmin
from odradek_operator.kafka.desired import DesiredCluster
from odradek_operator.kafka.security_settings import KeyStores
from odradek_operator.local.secrets import LocalSecrets
from odradek_operator.reconcile.certificates import (
    CertificateKeeper,
    Certified,
    wanted_certificates,
)
from odradek_operator.security.material import InvalidSecretError, secret_names


class _Secrets:
    """The cluster's own Secrets in files, and the user's in the manifests."""

    def __init__(self, own: LocalSecrets, namespace: str, cluster: str) -> None:
        self.given: Mapping[str, Mapping[str, str]] = {}  # "namespace/name" → key → text
        self.write = own.write
        self._own, self._namespace = own, namespace
        self._own_names = frozenset(secret_names(cluster))

    def read(self, names: Iterable[str]) -> dict[str, Mapping[str, bytes]]:
        wanted = list(names)
        found = self._own.read(one for one in wanted if one in self._own_names)
        for name in set(wanted) - self._own_names:
            if content := self.given.get(f"{self._namespace}/{name}"):
                found[name] = {key: text.encode() for key, text in content.items()}
        return found


class LocalCertificates:
    def __init__(self, state_dir: Path, namespace: str, cluster: str) -> None:
        self.secrets = LocalSecrets(state_dir, namespace)
        self._store = _Secrets(self.secrets, namespace, cluster)
        self.keeper = CertificateKeeper(self._store, cluster)
        self._cluster = cluster

    def give(self, secrets: Mapping[str, Mapping[str, str]]) -> None:
        """The Secrets in the manifests."""
        self._store.given = secrets

    def stores(self, node: int, *, given: bool = False) -> KeyStores:
        trust, keys = trust_secret(self._cluster), brokers_secret(self._cluster)
        return KeyStores(
            str(self.secrets.path(keys, node_store(node))),
            str(self.secrets.path(trust, CLUSTER_BUNDLE)),
            str(self.secrets.path(trust, CLIENTS_BUNDLE)),
            str(self.secrets.path(keys, listener_store(node))) if given else "",
        )

    def assess(
        self,
        resource: Resource[KafkaClusterSpec],
        desired: DesiredCluster,
        running: Mapping[int, Mapping[str, str]],
    ) -> Certified | None:
        """The plan for the certificates; None if the cluster has no TLS."""
        if not desired.secured:
            return None
        nodes = {**running, **{n: node.settings for n, node in desired.nodes.items()}}
        wanted = wanted_certificates(resource, nodes, dns=("localhost",))
        return self.keeper.assess(wanted, running, time.time())

    def answers(self, address: str) -> bool:
        """Whether the node at an address with TLS answers the operator."""
        try:
            identity = self.keeper.material().operator
        except InvalidSecretError:
            return False
        return ask(address, identity)[1]

    def load_again(
        self, assessed: Certified, running: Mapping[int, Mapping[str, str]], admin: KafkaAdmin
    ) -> list[str]:
        try:
            return self.keeper.load_again(assessed, running, admin, time.time())
        except AdminError as error:
            return [f"load new certificates: {error}"]

    def act(self, assessed: Certified) -> None:
        self.keeper.act(assessed, time.time())
