"""Nodes of a world without processes that load their key stores late, one at a time.

`ask` is what a handshake with them would show (odradek_operator.admin.handshakes), and `outages`
are nodes that could not have connected to each other, which must never be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ssl import PEM_cert_to_DER_cert

from odradek_api.kafka_cluster.security import CLUSTER_BUNDLE, listener_store, node_store
from odradek_operator.kafka.routes import given_address, internal_address
from odradek_operator.security.pki import KeyPair, read
from odradek_testkit.bundles import read_bundle


@dataclass(frozen=True)
class Loaded:
    """The certificates that a node uses until it loads its files again."""

    certificate_pem: bytes
    trusted: frozenset[str]  # key ids
    given_pem: bytes = b""  # shown to clients, if another CA signed it


@dataclass
class FakeCertificates:
    """The key stores of all nodes of one cluster."""

    loaded: dict[int, Loaded] = field(default_factory=dict)
    addresses: dict[str, int] = field(default_factory=dict)
    for_clients: dict[str, int] = field(default_factory=dict)
    outages: list[str] = field(default_factory=list)

    def load(
        self, secrets: Mapping[str, Mapping[str, bytes]], nodes: Mapping[int, Mapping[str, str]]
    ) -> bool:
        """One node that is behind loads its files; whether there was one."""
        self.addresses = {a: n for n, s in nodes.items() if (a := internal_address(s))}
        self.for_clients = {a: n for n, s in nodes.items() if (a := given_address(s))}
        self.loaded = {n: one for n, one in self.loaded.items() if n in nodes}
        bundle = secrets.get("trust", {}).get(CLUSTER_BUNDLE, b"")
        trusted = frozenset(certificate.key_id for _, certificate in read_bundle(bundle))
        for node in sorted(self.addresses.values()):
            stores = secrets.get("brokers", {})
            own, given = stores.get(node_store(node), b""), stores.get(listener_store(node), b"")
            current = Loaded(_certificate(own), trusted, _certificate(given))
            if self.loaded.get(node) != current:
                self.loaded[node] = current
                self._check()
                return True
        return False

    def ask(self, address: str, identity: KeyPair | None) -> tuple[bytes | None, bool]:
        if (shown := self.loaded.get(self.for_clients.get(address, -1))) is not None:
            return PEM_cert_to_DER_cert(shown.given_pem.decode().strip()), False
        one = self.loaded.get(self.addresses.get(address, -1))
        if one is None:
            return None, False
        der = PEM_cert_to_DER_cert(one.certificate_pem.decode().strip())
        accepted = (
            identity is not None and read(identity.certificate_pem).issuer_key_id in one.trusted
        )
        return der, accepted

    def _check(self) -> None:
        for node, one in self.loaded.items():
            for other, peer in self.loaded.items():
                if read(peer.certificate_pem).issuer_key_id not in one.trusted:
                    self.outages.append(f"node {node} does not accept node {other}")


def _certificate(store: bytes) -> bytes:
    return store[store.find(b"-----BEGIN CERTIFICATE") :] if store else b""
