"""How users connect to a cluster: its listeners for clients, and its certificate authorities."""

from __future__ import annotations

from dataclasses import dataclass

from odradek_operator.reason import Reason
from odradek_operator.security.credentials import ClusterAccess
from odradek_operator.security.pki import KeyPair
from odradek_operator.security.users import DesiredUser

# The types of a listener's authentication that take a user of this type.
FITTING = {
    "scram-sha-512": ("scram-sha-512",),
    "scram-sha-256": ("scram-sha-256",),
    "mtls": ("mtls",),
    "external": ("oauth", "mtls", "none"),
}


@dataclass(frozen=True)
class ClientListener:
    name: str
    authentication: str  # the type in its spec
    protocol: str  # SASL_SSL, SSL, SASL_PLAINTEXT or PLAINTEXT
    bootstrap: str


@dataclass(frozen=True)
class Entrance:
    listeners: tuple[ClientListener, ...]
    ca_pem: bytes = b""  # the CAs that clients trust; empty without TLS
    clients_ca: KeyPair | None = None  # signs certificates of users
    reserved: frozenset[str] = frozenset()  # principals of the brokers and the operator


def way_in(user: DesiredUser, entrance: Entrance) -> tuple[ClusterAccess, Reason | None]:
    """The listener of this user; and the problem, if the user cannot log in there."""
    fitting = [
        one for one in entrance.listeners if one.authentication in FITTING[user.authentication]
    ]
    named = [one for one in entrance.listeners if one.name == user.listener]
    problem = None
    if user.listener is not None and not named:
        message = f"spec.listener: the cluster has no listener {user.listener}"
        problem = Reason("NoListener", message)
    elif user.listener is not None and named[0] not in fitting:
        message = (
            f"spec.listener: listener {user.listener} has authentication "
            f"{named[0].authentication}, and not {user.authentication}"
        )
        problem = Reason("NoListener", message)
    elif not fitting:
        message = (
            f"the cluster has no listener with authentication {user.authentication}: add one to "
            "its spec.listeners"
        )
        problem = Reason("NoListener", message)
    chosen = (named or fitting or list(entrance.listeners))[0]
    ca = entrance.ca_pem if chosen.protocol.endswith("SSL") else b""
    return ClusterAccess(chosen.bootstrap, chosen.protocol, ca), problem
