"""KafkaUsers on the local runtime."""

from __future__ import annotations

import stat
from functools import partial
from pathlib import Path

import pytest

from odradek_api.kafka_user.rules import ROTATE_ANNOTATION
from odradek_cli.properties import parse_properties
from odradek_operator.local.users import LocalUserSecrets, load_secrets
from odradek_protocol.client import ClientSettings, KafkaClient
from odradek_protocol.client.security import SecuritySettings
from odradek_testkit.engines import kafka_jars
from odradek_testkit.load import Load
from operator_tests.local.local import KEY, Local
from operator_tests.local.test_under_load import TOPIC, costs, judge


def condition(local: Local, user: str) -> tuple[str, str, str]:
    (found,) = local.runtime.report.clusters[KEY].users[user].conditions
    return found.status, found.reason, found.message


def test_a_user_comes_and_goes(tmp_path: Path) -> None:
    """The cluster is open: its status reports that no listener authenticates users."""
    with Local(tmp_path, brokers=1) as local:
        local.user("alice", quotas={"producerByteRate": 1000})
        local.until(lambda report: bool(report.clusters[KEY].users), 60)
        local.until(lambda report: condition(local, "default/alice")[1] == "NoListener")
        local.until(lambda report: not report.clusters[KEY].plan)
        users = local.runtime.clusters[KEY].admin.observe_users()
        assert users.scram["alice"].keys() == {2}
        assert users.quotas == {(("user", "alice"),): {"producer_byte_rate": 1000.0}}
        files = LocalUserSecrets(local.state)
        first = files.find("default/alice")
        assert first is not None
        password = local.state / "secrets" / "default" / "alice" / "password"
        assert stat.S_IMODE(password.stat().st_mode) == 0o600
        assert stat.S_IMODE(password.parent.stat().st_mode) == 0o700
        said = (local.state / "status.json").read_text() + "".join(local.done)
        assert first.data["password"].decode() not in said
        local.die()  # all state is on disk
        local.until(lambda report: bool(report.clusters[KEY].users))
        assert files.find("default/alice") == first
        del local.users["alice"]
        local.settle()
        assert local.runtime.clusters[KEY].admin.observe_users().scram == {}
        assert files.find("default/alice") is None
        assert local.runtime.clusters[KEY].platform.ledger.users == {}


def test_secrets_in_manifests(tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text(
        "{apiVersion: v1, kind: Secret, metadata: {name: mine}, stringData: {a: x},\n"
        " data: {b: eQ==}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}\n"
    )
    assert load_secrets([tmp_path]) == {"default/mine": {"a": "x", "b": "y"}}


READ_WRITE = [
    {"resource": {"type": "topic", "name": "orders"}, "operations": ["read", "write"]},
]


def log_in(local: Local, user: str) -> KafkaClient:
    """As a program would that has only the client.properties of the user."""
    found = LocalUserSecrets(local.state).find(f"default/{user}")
    assert found is not None
    settings = parse_properties(found.data["client.properties"].decode())
    security = SecuritySettings.from_properties(settings)
    return KafkaClient(settings["bootstrap.servers"], ClientSettings(security=security))


def sees_orders_only(local: Local, user: str) -> bool:
    return topics_of(local, user) == {"orders"}


def topics_of(local: Local, user: str) -> set[str]:
    with log_in(local, user) as client:
        return set(client.metadata().topics)


@pytest.mark.parametrize("engine", ["embedded", pytest.param("apache", marks=pytest.mark.java)])
def test_a_strict_cluster_with_users(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From nothing: TLS, a user with a password, one with a certificate, ACLs, a rotation."""
    if engine == "apache":
        monkeypatch.setenv("ODRADEK_KAFKA_JARS", str(kafka_jars()))
    clients = {"name": "clients", "port": 9092, "tls": True}
    listeners = [
        {**clients, "authentication": {"type": "scram-sha-512"}},
        {**clients, "name": "machines", "port": 9094, "authentication": {"type": "mtls"}},
    ]
    spec = {"engine": engine, "brokers": 1, "security": "strict", "listeners": listeners}
    with Local(tmp_path, **spec) as local:
        local.topic("orders", partitions=1)
        local.topic("hidden", partitions=1)
        local.user("billing", acls=READ_WRITE)
        local.user("robot", authentication={"type": "mtls"}, acls=READ_WRITE)
        local.settle()
        pid = local.runtime.report.clusters[KEY].pids
        for user in ("billing", "robot"):
            assert condition(local, f"default/{user}")[0] == "True"
            local.wait_until(partial(sees_orders_only, local, user), user)
        first = LocalUserSecrets(local.state).find("default/billing")
        local.user_annotations["billing"] = {ROTATE_ANNOTATION: "1"}
        del local.users["robot"]
        local.settle()
        second = LocalUserSecrets(local.state).find("default/billing")
        assert first is not None
        assert second is not None
        assert first.data["password"] != second.data["password"]
        local.wait_until(partial(sees_orders_only, local, "billing"), "after the rotation")
        users = local.runtime.clusters[KEY].admin.observe_users()
        assert users.acls is not None
        assert {acl.principal for acl in users.acls} == {"User:billing"}
        assert local.runtime.report.clusters[KEY].pids == pid, "no broker was restarted"


def librdkafka_of(local: Local, user: str) -> dict[str, str]:
    found = LocalUserSecrets(local.state).find(f"default/{user}")
    assert found is not None
    lines = found.data["librdkafka.conf"].decode().splitlines()
    pairs = (line.partition("=") for line in lines)
    return {name: value.replace("\\n", "\n") for name, _, value in pairs}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ["embedded", pytest.param("apache", marks=pytest.mark.java)])
def test_passwords_and_acls_change_under_load(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three brokers under acks=all: connected clients see no error."""
    if engine == "apache":
        monkeypatch.setenv("ODRADEK_KAFKA_JARS", str(kafka_jars()))
    group = {"resource": {"type": "group", "name": "*"}, "operations": ["read"]}
    with Local(tmp_path, brokers=3, engine=engine, security="strict") as local:
        local.topic("orders", **TOPIC)
        local.user("billing", acls=[*READ_WRITE, group])
        before = local.settle(300)
        local.wait_until(partial(sees_orders_only, local, "billing"), "every broker knows it")
        security = librdkafka_of(local, "billing")
        with Load(local, "orders", partitions=6, per_second=200, security=security) as load:
            load.wait_for_acks(100)
            local.user_annotations["billing"] = {ROTATE_ANNOTATION: "1"}
            local.settle()
            load.wait_for_acks(100)
            wider = {"resource": {"type": "topic", "name": "o", "pattern": "prefix"},
                     "operations": ["all"]}  # fmt: skip
            local.users["billing"]["acls"] = [wider, group]
            local.settle()
            load.wait_for_acks(100)
            security.update(librdkafka_of(local, "billing"))  # for the reader at the end
        after = local.settle()
        judge(load)
        assert before.pids == after.pids, "a broker was restarted"
        print(f"\n{engine}: a new password and other ACLs, 0 restarts; {costs(load)}")
