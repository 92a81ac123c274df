"""TLS, users and ACLs of a Kafka under test: settings of its brokers, and of every client's kind.

Brokers, and the fixture itself, log in as `broker`, who may do everything. Programs under test log
in as `kafka.user`. Passwords are new for each Kafka.
"""

from __future__ import annotations

import secrets
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek.testing.certificates import write_certificates
from odradek_protocol.acl_codes import AclOperation, AclPermission, AclResource, PatternType
from odradek_protocol.client import ApiKey, KafkaClient, Struct
from odradek_protocol.client.admin.acls import (
    AclEntry,
    AclSelection,
    add_acls,
    list_acls,
    remove_acls,
)
from odradek_protocol.client.admin.users import SaltedPassword, set_password
from odradek_protocol.client.security import SecuritySettings
from odradek_protocol.security.scram import salted_password
from odradek_testkit.waiting import wait_until

USER = "app"
BROKER = "broker"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
FORMS = ("java", "confluent", "aiokafka")
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
SCRAM = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
ITERATIONS = 4096
SALT_BYTES = 16
POLL_S = 0.005


@dataclass(frozen=True)
class Login:
    """A user of SASL, as clients need it."""

    user: str
    password: str = field(repr=False)
    mechanism: str


class Security:
    """The security options of a `Kafka`; files are in `directory` once `write_files` made them."""

    def __init__(self, *, tls: bool, sasl: str | None, acls: bool) -> None:
        if sasl is not None and sasl not in MECHANISMS:
            raise ValueError(f"sasl={sasl!r}: expected one of {', '.join(MECHANISMS)}")
        if acls and sasl is None:
            raise ValueError(
                'acls=True needs users, who have rights: also give sasl="SCRAM-SHA-512" or "PLAIN"'
            )
        self.tls, self.sasl, self.acls = tls, sasl, acls
        self._broker = Login(BROKER, secrets.token_urlsafe(16), "PLAIN")
        self.user = Login(USER, secrets.token_urlsafe(16), sasl) if sasl else None
        self.directory = Path()

    @property
    def protocol(self) -> str:
        layer = "SSL" if self.tls else "PLAINTEXT"
        return f"SASL_{layer}" if self.sasl else layer

    @property
    def ca_file(self) -> Path:
        return self.directory / "ca.pem"

    @property
    def _key_store(self) -> Path:
        return self.directory / "broker.pem"

    def write_files(self) -> None:
        if self.tls:
            write_certificates(self.ca_file, self._key_store)

    def broker_settings(self) -> dict[str, str]:
        settings = {}
        if self.protocol != "PLAINTEXT":
            settings["security.inter.broker.protocol"] = self.protocol
        if self.tls:
            settings |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self._key_store),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.ca_file),
            }
        if self.user is not None:
            # SCRAM users are in the log that brokers replicate, so brokers log in with PLAIN.
            plain = [self._broker, *([self.user] if self.user.mechanism == "PLAIN" else [])]
            users = "".join(f' user_{one.user}="{one.password}"' for one in plain)
            settings |= {
                "sasl.enabled.mechanisms": ",".join(dict.fromkeys(["PLAIN", self.user.mechanism])),
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                f"listener.name.{self.protocol.lower()}.plain.sasl.jaas.config": (
                    f'{PLAIN_MODULE} required username="{BROKER}" '
                    f'password="{self._broker.password}"{users};'
                ),
            }
        if self.acls:
            settings["authorizer.class.name"] = AUTHORIZER
            settings["super.users"] = f"User:{BROKER}"
        return settings

    # -- clients -----------------------------------------------------------------------------------

    def own_client(self) -> SecuritySettings:
        """For the fixture's client."""
        return SecuritySettings.from_properties(self._java(self._broker if self.sasl else None))

    def client_settings(self, form: str, bootstrap: str, login: Login | None) -> dict[str, Any]:
        if form == "java":
            return {"bootstrap.servers": bootstrap, **self._java(login)}
        if form == "confluent":
            return {"bootstrap.servers": bootstrap, **self._confluent(login)}
        if form == "aiokafka":
            return {"bootstrap_servers": bootstrap, **self._aiokafka(login)}
        raise ValueError(f"client_settings({form!r}): expected one of {', '.join(FORMS)}")

    def _java(self, login: Login | None) -> dict[str, str]:
        settings = {"security.protocol": self.protocol}
        if self.tls:
            settings["ssl.truststore.type"] = "PEM"
            settings["ssl.truststore.location"] = str(self.ca_file)
        if login is not None:
            module = PLAIN_MODULE if login.mechanism == "PLAIN" else SCRAM_MODULE
            settings["sasl.mechanism"] = login.mechanism
            settings["sasl.jaas.config"] = (
                f'{module} required username="{login.user}" password="{login.password}";'
            )
        return settings

    def _confluent(self, login: Login | None) -> dict[str, str]:
        settings = {"security.protocol": self.protocol}
        if self.tls:
            settings["ssl.ca.location"] = str(self.ca_file)
        if login is not None:
            settings["sasl.mechanism"] = login.mechanism
            settings["sasl.username"] = login.user
            settings["sasl.password"] = login.password
        return settings

    def _aiokafka(self, login: Login | None) -> dict[str, Any]:
        settings: dict[str, Any] = {"security_protocol": self.protocol}
        if self.tls:
            settings["ssl_context"] = ssl.create_default_context(cafile=str(self.ca_file))
        if login is not None:
            settings["sasl_mechanism"] = login.mechanism
            settings["sasl_plain_username"] = login.user
            settings["sasl_plain_password"] = login.password
        return settings


# -- users and ACLs of running brokers: each returns when every broker knows it --------------------


def add_scram_user(client: KafkaClient, login: Login) -> None:
    number, digest = SCRAM[login.mechanism]
    salt = secrets.token_bytes(SALT_BYTES)
    salted = salted_password(digest, login.password, salt, ITERATIONS)
    set_password(client, login.user, SaltedPassword(number, ITERATIONS, salt, salted))

    def known() -> bool:
        request = Struct(users=[Struct(name=login.user)])
        answers = client.each_broker(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, request)
        return all(
            isinstance(one, Struct) and one.results and one.results[0].error_code == 0
            for one in answers.values()
        )

    wait_until(known, f"every broker knows user {login.user}", poll_s=POLL_S)


def allow(client: KafkaClient, user: str, operations: tuple[str, ...], **resource: str) -> None:
    """`resource` is topic="orders", group="billing" …; "orders*" is a prefix, "*" is all."""
    if len(resource) != 1:
        raise ValueError('allow() takes one resource, such as topic="orders" or group="*"')
    ((kind, name),) = resource.items()
    names = {one.name.lower(): one for one in AclResource if one > AclResource.ANY}
    if kind not in names:
        raise ValueError(f"allow({kind}=…): expected one of {', '.join(names)}")
    prefixed = name != "*" and name.endswith("*")
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    entries = [
        AclEntry(
            names[kind],
            name.removesuffix("*") if prefixed else name,
            pattern,
            f"User:{user}",
            "*",
            _operation(operation),
            AclPermission.ALLOW,
        )
        for operation in operations or ("ALL",)
    ]
    add_acls(client, entries)
    _wait_for_acls(client)


def remove_all_acls(client: KafkaClient) -> None:
    if list_acls(client, AclSelection()):
        remove_acls(client, AclSelection())
        _wait_for_acls(client)


def _operation(name: str) -> AclOperation:
    if name.upper() not in AclOperation.__members__:
        raise ValueError(f"there is no operation {name!r}; operations are for example READ, WRITE")
    return AclOperation[name.upper()]


def _wait_for_acls(client: KafkaClient) -> None:
    """Until all brokers have the same ACLs as the controller's broker, which applied them first."""
    everything = Struct(
        resource_type_filter=AclResource.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=AclPermission.ANY,
    )

    def same() -> bool:
        answers = client.each_broker(ApiKey.DESCRIBE_ACLS, everything).values()
        seen = {repr(one.resources) if isinstance(one, Struct) else "" for one in answers}
        return len(seen) == 1 and "" not in seen

    wait_until(same, "every broker has the same ACLs", poll_s=POLL_S)
