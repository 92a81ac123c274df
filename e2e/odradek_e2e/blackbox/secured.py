"""A server of either engine with TLS, SASL and ACLs, and the login of the suite's user.

All clients of the suite are one user of SCRAM-SHA-512, which is no super user: it has ALL on all
topics, groups and transactional ids and on the cluster by ACLs, so every request of the suite is
authorised. The brokers are another user, of PLAIN. kcat logs in with PLAIN, as the same user: the
kcat of Linux distributions has a librdkafka before 2.6.1, whose SCRAM Apache Kafka 4 refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from odradek.testing.security import BROKER, SCRAM_MODULE, Security, add_scram_user, allow
from odradek_protocol.client import ClientSettings, KafkaClient
from odradek_testkit.connecting import kcat_config, write_properties
from odradek_testkit.engines import RunningApacheKafka, RunningBroker, Server
from odradek_testkit.ports import free_port

MECHANISM = "SCRAM-SHA-512"
RESOURCES = {"topic": "*", "group": "*", "transactional_id": "*", "cluster": "kafka-cluster"}


@contextmanager
def secured(
    engine: type[RunningBroker] | type[RunningApacheKafka],
    settings: Mapping[str, str],
    directory: Path,
) -> Iterator[Server]:
    """A running server, whose `client_config` is the login of the suite's user."""
    security = Security(tls=True, sasl=MECHANISM, acls=True)
    security.directory = directory / "security"
    security.write_files()
    protocol = security.protocol
    scram = f"listener.name.{protocol.lower()}.{MECHANISM.lower()}.sasl.jaas.config"
    listeners = {
        "listeners": f"{protocol}://127.0.0.1:{free_port()}",
        scram: f"{SCRAM_MODULE} required;",
    }
    super_users = [BROKER]
    if engine is RunningApacheKafka:  # its broker talks to its controller in plain text
        super_users.append("ANONYMOUS")
        controller = f"127.0.0.1:{free_port()}"
        listeners["listeners"] += f",CONTROLLER://{controller}"
        listeners["controller.quorum.voters"] = f"1@{controller}"
        listeners["listener.security.protocol.map"] = f"{protocol}:{protocol},CONTROLLER:PLAINTEXT"
    given = {**settings, **security.broker_settings(), **listeners}
    assert security.user is not None
    plain = f"listener.name.{protocol.lower()}.plain.sasl.jaas.config"
    login = f'user_{security.user.user}="{security.user.password}"'
    given[plain] = f"{given[plain].removesuffix(';')} {login};"
    given["super.users"] = ";".join(f"User:{name}" for name in super_users)
    with engine(given, directory=directory) as server:
        _prepare(server, security)
        yield server


def _prepare(server: Server, security: Security) -> None:
    """Adds the user and its rights, and writes its login."""
    assert security.user is not None
    own = ClientSettings(security=security.own_client())
    with KafkaClient(server.bootstrap, own) as client:
        add_scram_user(client, security.user)
        for kind, name in RESOURCES.items():
            allow(client, security.user.user, (), **{kind: name})
    server.client_config = security.directory / "client.properties"
    login = security.client_settings("java", server.bootstrap, security.user)
    login.pop("bootstrap.servers")
    write_properties(server.client_config, login)
    for_kcat = security.client_settings(
        "confluent", server.bootstrap, replace(security.user, mechanism="PLAIN")
    )
    for_kcat.pop("bootstrap.servers")
    write_properties(kcat_config(server.client_config), for_kcat)
