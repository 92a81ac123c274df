"""The senders of requests: users of SASL, each with an address of the loopback network.

The administrator is a super user; the others have what the ACLs of a round give them. Passwords
are new for each run and equal on both engines.
"""

from __future__ import annotations

import secrets
from typing import Final, NamedTuple

from odradek_protocol.messages.struct import Struct
from odradek_protocol.security.sasl_client import Login
from odradek_protocol.security.scram import salted_password

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
SCRAM: Final = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
ITERATIONS: Final = 4096
LISTENER: Final = "PLAINTEXT"  # the name of the engines' listener, whose protocol is SASL_PLAINTEXT


class Client(NamedTuple):
    """A user, and the address that it comes from."""

    login: Login
    host: str

    @property
    def principal(self) -> str:
        return f"User:{self.login.user}"


def _login(user: str, mechanism: str) -> Login:
    return Login(mechanism, user, secrets.token_urlsafe(16))


HOSTS: Final = ("127.0.0.2", "127.0.0.3")
ADMIN: Final = Client(_login("admin", "PLAIN"), "127.0.0.1")
USERS: Final = (
    _login("ann", "PLAIN"),
    _login("bob", "SCRAM-SHA-256"),
    _login("carol", "SCRAM-SHA-512"),
)
CLIENTS: Final = tuple(Client(user, host) for user in USERS for host in HOSTS)


def settings() -> dict[str, str]:
    """A listener with SASL, and an authorizer, for both engines."""
    plain = [ADMIN.login, *(user for user in USERS if user.mechanism == "PLAIN")]
    users = "".join(f' user_{one.user}="{one.password}"' for one in plain)
    own = f'username="{ADMIN.login.user}" password="{ADMIN.login.password}"'
    jaas = f"listener.name.{LISTENER.lower()}.%s.sasl.jaas.config"
    return {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # Apache Kafka's broker talks to its controller without a login, as ANONYMOUS.
        "super.users": f"{ADMIN.principal};User:ANONYMOUS",
        "listener.security.protocol.map": f"{LISTENER}:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": LISTENER,
        "sasl.enabled.mechanisms": ",".join(("PLAIN", *SCRAM)),
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        jaas % "plain": f"{PLAIN_MODULE} required {own}{users};",
        **{jaas % mechanism.lower(): f"{SCRAM_MODULE} required;" for mechanism in SCRAM},
        "auto.create.topics.enable": "true",
        "delegation.token.secret.key": secrets.token_urlsafe(16),
    }


def credentials() -> Struct:
    """A request of AlterUserScramCredentials that adds the users of SCRAM."""
    return Struct(deletions=[], upsertions=[_credential(u) for u in USERS if u.mechanism in SCRAM])


def _credential(user: Login) -> Struct:
    number, digest = SCRAM[user.mechanism]
    salt = secrets.token_bytes(16)
    return Struct(
        name=user.user, mechanism=number, iterations=ITERATIONS, salt=salt,
        salted_password=salted_password(digest, user.password, salt, ITERATIONS),
    )  # fmt: skip
