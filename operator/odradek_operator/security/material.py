"""The Secrets of a cluster with TLS, read into types and written back. Does no I/O.

    secrets: {"main-cluster-ca": {"ca.crt": b"…", "ca.key": b"…", "state": b"{…}"}, …}

The names and keys are in odradek_api/kafka_cluster/security.py and operator/adr/0003. A Secret with
content that cannot be read raises InvalidSecretError: it is never overwritten, because it may be
somebody's only copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from odradek_api.kafka_cluster.security import (
    CA_CERTIFICATE,
    CA_KEY,
    CERTIFICATE,
    CLIENTS_BUNDLE,
    CLUSTER_BUNDLE,
    KEY,
    LISTENERS_BUNDLE,
    brokers_secret,
    clients_ca_secret,
    cluster_ca_secret,
    listener_store,
    node_store,
    operator_secret,
    trust_secret,
)
from odradek_operator.security.pki import (
    Certificate,
    InvalidCertificateError,
    KeyPair,
    belongs,
    read,
)

Secret = Mapping[str, bytes]
Secrets = Mapping[str, Secret]

NEXT_CERTIFICATE, NEXT_KEY, OLD_CERTIFICATE, STATE = "next.crt", "next.key", "old.crt", "state"
_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"


class InvalidSecretError(Exception):
    """A Secret that cannot be used; the message names it and the remedy."""


class RotationState(msgspec.Struct, frozen=True):
    """Facts about a Secret that are not in its certificates."""

    since: float = 0.0  # of a CA: unix seconds when the phase of the rotation began
    handled: str = ""  # the last value of the annotation that requests a renewal or rotation


@dataclass(frozen=True)
class Ca:
    """A CA and its rotation: at most one of `next` (phase 1) and `old` (phase 2) is there."""

    pair: KeyPair
    next: KeyPair | None = None
    old: bytes = b""
    state: RotationState = field(default_factory=RotationState)

    @property
    def certificate(self) -> Certificate:
        return read(self.pair.certificate_pem)

    @property
    def bundle(self) -> bytes:
        """Everything to trust, the signing CA first."""
        following = self.next.certificate_pem if self.next else b""
        return self.pair.certificate_pem + following + self.old

    @property
    def secret(self) -> dict[str, bytes]:
        made = {CA_CERTIFICATE: self.pair.certificate_pem, CA_KEY: self.pair.key_pem}
        if self.next is not None:
            made |= {NEXT_CERTIFICATE: self.next.certificate_pem, NEXT_KEY: self.next.key_pem}
        if self.old:
            made[OLD_CERTIFICATE] = self.old
        return made | {STATE: msgspec.json.encode(self.state)}


@dataclass(frozen=True)
class Material:
    """All Secrets of a cluster that exist; None or empty: not made yet."""

    cluster_ca: Ca | None = None
    clients_ca: Ca | None = None
    cluster_bundle: bytes = b""
    clients_bundle: bytes = b""
    nodes: Mapping[int, KeyPair] = field(default_factory=dict)
    nodes_state: RotationState = field(default_factory=RotationState)
    listeners: Mapping[int, KeyPair] = field(default_factory=dict)  # of others, shown to clients
    listeners_ca: bytes = b""
    operator: KeyPair | None = None


def secret_names(cluster: str) -> tuple[str, ...]:
    return (
        cluster_ca_secret(cluster),
        clients_ca_secret(cluster),
        trust_secret(cluster),
        brokers_secret(cluster),
        operator_secret(cluster),
    )


def read_material(cluster: str, secrets: Secrets) -> Material:
    """Raises InvalidSecretError."""
    trust = secrets.get(trust_secret(cluster), {})
    brokers = secrets.get(brokers_secret(cluster), {})
    operator = secrets.get(operator_secret(cluster), {})
    return Material(
        _ca(cluster_ca_secret(cluster), secrets),
        _ca(clients_ca_secret(cluster), secrets),
        trust.get(CLUSTER_BUNDLE, b""),
        trust.get(CLIENTS_BUNDLE, b""),
        _stores(brokers, "broker-"),
        _state(brokers_secret(cluster), brokers),
        _stores(brokers, "listener-"),
        trust.get(LISTENERS_BUNDLE, b""),
        KeyPair(operator[CERTIFICATE], operator[KEY]) if {CERTIFICATE, KEY} <= operator.keys()
        else None,
    )  # fmt: skip


def brokers_content(
    nodes: Mapping[int, KeyPair], state: RotationState, listeners: Mapping[int, KeyPair]
) -> dict[str, bytes]:
    """For each node its private key, then its certificate: a key store of type PEM."""
    stores = {node_store(n): pair.key_pem + pair.certificate_pem for n, pair in nodes.items()}
    stores |= {listener_store(n): p.key_pem + p.certificate_pem for n, p in listeners.items()}
    return stores | {STATE: msgspec.json.encode(state)}


def read_pair(pair: KeyPair | None) -> Certificate | None:
    """The fields of the certificate; None if there is none that can be used with its key.

    Certificates of nodes and of the operator can be issued again, so a broken one is just missing.
    """
    try:
        return read(pair.certificate_pem) if pair is not None and belongs(pair) else None
    except InvalidCertificateError:
        return None


def _ca(name: str, secrets: Secrets) -> Ca | None:
    secret = secrets.get(name)
    if secret is None:
        return None
    following = None
    if NEXT_CERTIFICATE in secret:
        following = KeyPair(secret[NEXT_CERTIFICATE], secret.get(NEXT_KEY, b""))
    pair = KeyPair(secret.get(CA_CERTIFICATE, b""), secret.get(CA_KEY, b""))
    for what, one in ((CA_CERTIFICATE, pair), (NEXT_CERTIFICATE, following)):
        try:
            if one is not None and not (belongs(one) and read(one.certificate_pem).is_ca):
                raise InvalidCertificateError("it is not the certificate of a CA with this key")
        except InvalidCertificateError as error:
            raise InvalidSecretError(
                f"Secret {name}: {what}: {error}. Restore it, or delete the Secret: then a new CA "
                "is made, and clients have to trust that one"
            ) from None
    return Ca(pair, following, secret.get(OLD_CERTIFICATE, b""), _state(name, secret))


def _state(name: str, secret: Secret) -> RotationState:
    try:
        return msgspec.json.decode(secret.get(STATE, b"{}"), type=RotationState)
    except msgspec.DecodeError as error:
        raise InvalidSecretError(f"Secret {name}: {STATE}: {error}") from None


def _stores(brokers: Secret, prefix: str) -> dict[int, KeyPair]:
    return {
        int(key.removeprefix(prefix).removesuffix(".pem")): _split(value)
        for key, value in brokers.items()
        if key.startswith(prefix) and key.endswith(".pem")
    }


def _split(store: bytes) -> KeyPair:
    """The private key comes first, in any form, RSA PRIVATE KEY for example."""
    at = store.find(_CERTIFICATE)
    return KeyPair(store[at:], store[:at]) if at >= 0 else KeyPair(b"", store)
