"""`odradek local credentials` and `--user`: the command as a KafkaUser, on a broker with ACLs."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_tests.conftest import Odradek
from odradek_api.parse import load
from odradek_cli.properties import parse_properties
from odradek_operator.admin.kafka_admin import KafkaAdmin
from odradek_operator.local.users import LocalUserSecrets
from odradek_operator.reconcile.users import act_on_user, assess_users
from odradek_operator.security.entrance import ClientListener, Entrance
from odradek_operator.security.users import build_user
from odradek_protocol.client import KafkaClient
from odradek_protocol.client.admin.topics import NewTopic, create_topics
from odradek_testkit.engines import RunningBroker
from odradek_testkit.ports import free_ports
from odradek_testkit.secured import secured_settings
from odradek_testkit.waiting import wait_until

MANIFESTS = """
apiVersion: odradek.dev/v1alpha1
kind: KafkaUser
metadata: {name: billing}
spec:
  cluster: {name: main}
  acls:
    - resource: {type: topic, name: orders}
      operations: [read, write, describe]
    - resource: {type: group, name: "*"}
      operations: [read]
---
apiVersion: odradek.dev/v1alpha1
kind: KafkaUser
metadata: {name: later}
spec: {cluster: {name: main}}
"""


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory whose runtime has made the credentials of billing."""
    directory = tmp_path_factory.mktemp("users")
    (directory / "users.yaml").write_text(MANIFESTS)
    own, clients = (f"127.0.0.1:{port}" for port in free_ports(2))
    listener = ClientListener("clients", "scram-sha-512", "SASL_PLAINTEXT", clients)
    billing = build_user(load([directory])[0])
    secrets = LocalUserSecrets(directory / ".odradek")
    with RunningBroker(secured_settings(own, clients)), KafkaAdmin(own) as admin:
        with KafkaClient(own) as client:
            assert not create_topics(client, [NewTopic("orders", 1, 1), NewTopic("hidden", 1, 1)])

        def nothing_left() -> bool:
            (one,) = assess_users([billing], {}, Entrance((listener,)), admin, secrets)
            assert act_on_user(one, admin, secrets) == []
            return not one.lines

        wait_until(nothing_left, "the user is as declared")
        yield directory


def test_credentials_are_printed(odradek: Odradek, manifests: Path) -> None:
    where = ("-f", str(manifests))
    printed = odradek("local", "credentials", "billing", *where).stdout
    settings = parse_properties(printed)
    assert settings["sasl.mechanism"] == "SCRAM-SHA-512"
    password = odradek("local", "credentials", "default/billing", *where, "--key", "password")
    assert password.stdout in settings["sasl.jaas.config"]
    files = list((manifests / ".odradek" / "secrets").rglob("*"))
    assert {stat.S_IMODE(f.stat().st_mode) for f in files if f.is_file()} == {0o600}


def test_every_command_logs_in_as_a_user(odradek: Odradek, manifests: Path) -> None:
    billing = ("--user", "billing", "-f", str(manifests))
    assert "hidden" not in odradek(*billing, "topics", "list").stdout
    odradek(*billing, "produce", "orders", stdin="hello\n")
    consumed = odradek(*billing, "consume", "orders", "--from-beginning", "--until-end")
    assert consumed.stdout == "hello\n"
    refused = odradek(*billing, "topics", "create", "more", code=1)
    assert "AUTHORIZATION_FAILED" in refused.stderr


def test_mistakes_are_named(odradek: Odradek, manifests: Path) -> None:
    where = ("-f", str(manifests))
    unknown = odradek("local", "credentials", "biling", *where, code=2)
    assert "they have: default/billing, default/later" in unknown.stderr
    early = odradek("local", "credentials", "later", *where, code=1)
    assert "has no credentials yet" in early.stderr
    other = odradek("local", "credentials", "billing", *where, "--key", "user.p12", code=1)
    assert "add it to spec.secret.keys" in other.stderr
    alone = odradek("--user", "billing", "topics", "list", code=2)
    assert "--user needs --file" in alone.stderr
