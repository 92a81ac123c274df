"""The user and the connections with which the console talks to the cluster.

Kafka's ACLs decide what a user of the console sees and changes: each user has connections of their
own, made with their own credentials.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.security import SecuritySettings
from odradek_protocol.client.settings import ClientSettings
from odradek_protocol.security.errors import SecurityError
from odradek_protocol.security.sasl_client import MECHANISMS, OAUTHBEARER, Login

if TYPE_CHECKING:
    from odradek_console.cluster.certificates import ClientIdentity
    from odradek_console.cluster.oidc import TokenKeeper

CLIENT_ID = "odradek-console"
CONNECT_TIMEOUT_S = 5.0
DEADLINE_S = 15.0  # a person waits for the page

LOGIN_MECHANISMS = tuple(one for one in MECHANISMS if one != OAUTHBEARER)
OIDC, CERTIFICATE = "OIDC", "CERTIFICATE"
LOGINS = (*LOGIN_MECHANISMS, OIDC, CERTIFICATE)
ANONYMOUS = "anonymous"


@dataclass(frozen=True)
class Access:
    """Where the cluster is, and the credentials; repr() hides those."""

    bootstrap: str
    security: SecuritySettings = field(repr=False)
    name: str = ""  # of the user, if the credentials do not have it
    tokens: TokenKeeper | None = field(default=None, repr=False)  # of a user of OIDC

    @classmethod
    def from_properties(cls, bootstrap: str, properties: Mapping[str, str]) -> Access:
        """Raises SecurityError, whose text names the setting."""
        return cls(bootstrap, SecuritySettings.from_properties(properties))

    @cached_property
    def user(self) -> str:
        """For people; the principal is what the broker makes of it."""
        if self.name:
            return self.name
        login = self.security.login
        if login is not None:
            return login.user or login.mechanism
        return "client certificate" if self.security.tls is not None else ANONYMOUS

    def logged_in(self, mechanism: str, user: str, password: str) -> Access:
        """The same cluster as another user; raises SecurityError if that is impossible."""
        if mechanism not in LOGIN_MECHANISMS:
            raise SecurityError(f"mechanism {mechanism}: one of {', '.join(LOGIN_MECHANISMS)}")
        login = Login(mechanism, user, password)
        return replace(self, security=SecuritySettings(self.security.tls, login))

    def with_tokens(self, tokens: TokenKeeper, user: str) -> Access:
        """The same cluster as the user of these tokens."""
        login = Login(OAUTHBEARER, user, token=tokens.token)
        security = SecuritySettings(self.security.tls, login)
        return replace(self, security=security, name=user, tokens=tokens)

    def with_certificate(self, transport: Mapping[str, str], identity: ClientIdentity) -> Access:
        """The same cluster as the owner of this certificate; raises SecurityError."""
        properties = {**transport, **identity.properties, "security.protocol": "SSL"}
        return replace(
            self, security=SecuritySettings.from_properties(properties), name=identity.name
        )

    def client(self) -> KafkaClient:
        settings = ClientSettings(
            client_id=CLIENT_ID,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            request_timeout_s=DEADLINE_S,
            deadline_s=DEADLINE_S,
            security=self.security,
        )
        return KafkaClient(self.bootstrap, settings)
