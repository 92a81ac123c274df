"""Users on real brokers of both engines: logins, ACLs and quotas, and their deletion.

The operator uses a second listener without authentication, on which ANONYMOUS is a super user here,
as the operator's certificate is in a secured cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import pytest

from odradek_cli.properties import parse_properties
from odradek_operator.admin.kafka_admin import KafkaAdmin
from odradek_operator.reconcile.users import act_on_user, assess_users, managed_after
from odradek_operator.security.credentials import Credentials, Stored
from odradek_operator.security.entrance import ClientListener, Entrance
from odradek_operator.security.users import DesiredUser
from odradek_protocol.client import BrokerError, ClientError, ClientSettings, KafkaClient
from odradek_protocol.client.admin import acls, quotas
from odradek_protocol.client.admin.topics import NewTopic, create_topics
from odradek_protocol.client.admin.users import SaltedPassword, delete_credentials, set_password
from odradek_protocol.client.security import SecuritySettings
from odradek_testkit.engines import RunningApacheKafka, RunningBroker
from odradek_testkit.ports import free_ports
from odradek_testkit.secured import secured_settings
from odradek_testkit.waiting import wait_until
from operator_tests.security.test_users import user

READ_ORDERS = [{"resource": {"type": "topic", "name": "orders"}, "operations": ["read"]}]


@dataclass
class MemorySecrets:
    """Secrets of a test."""

    kept: dict[str, Stored] = field(default_factory=dict)
    given: dict[str, str] = field(default_factory=dict)

    def find(self, name: str) -> Stored | None:
        return self.kept.get(name)

    def password(self, name: str, key: str) -> str | None:
        return self.given.get(f"{name}/{key}")

    def write(self, user: DesiredUser, data: Mapping[str, bytes], credentials: Credentials) -> None:
        made = Stored(dict(data), user.owner, credentials.iterations, credentials.rotation)
        self.kept[user.secret] = made

    def remove(self, name: str) -> None:
        del self.kept[name]


class World:
    """One broker, and passes over its users."""

    def __init__(self, own: str, clients: str) -> None:
        self.admin = KafkaAdmin(own)
        self.own = KafkaClient(own)
        self.secrets = MemorySecrets()
        self.managed: dict[str, str] = {}
        listener = ClientListener("clients", "scram-sha-512", "SASL_PLAINTEXT", clients)
        other = ClientListener("others", "scram-sha-256", "SASL_PLAINTEXT", clients)
        self.entrance = Entrance((listener, other))

    def one_pass(self, *users: DesiredUser) -> list[str]:
        """The changes that were made."""
        assessed = assess_users(users, self.managed, self.entrance, self.admin, self.secrets)
        self.managed = managed_after(self.managed, assessed)
        for one in assessed:
            assert act_on_user(one, self.admin, self.secrets) == []
        return [line for one in assessed for line in one.lines]

    def settle(self, *users: DesiredUser) -> None:
        """Passes until there is nothing to do: writes become visible a little later."""
        wait_until(lambda: not self.one_pass(*users), "the users are as declared")

    def log_in(self, wanted: DesiredUser) -> KafkaClient:
        data = self.secrets.kept[wanted.secret].data
        settings = parse_properties(data["client.properties"].decode())
        security = SecuritySettings.from_properties(settings)
        return KafkaClient(settings["bootstrap.servers"], ClientSettings(security=security))

    def topics_of(self, wanted: DesiredUser) -> set[str]:
        with self.log_in(wanted) as client:
            return set(client.metadata().topics)

    def refused(self, wanted: DesiredUser) -> bool:
        try:
            self.topics_of(wanted)
        except ClientError:
            return True
        return False

    def close(self) -> None:
        self.admin.close()
        self.own.close()


@pytest.fixture(scope="module", params=["embedded", pytest.param("apache", marks=pytest.mark.java)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    own, clients, controller = (f"127.0.0.1:{port}" for port in free_ports(3))
    engine: type[RunningApacheKafka] | type[RunningBroker] = RunningBroker
    settings = secured_settings(own, clients)
    if request.param == "apache":
        engine, settings = RunningApacheKafka, secured_settings(own, clients, controller)
    with engine(settings):
        found = World(own, clients)
        assert not create_topics(found.own, [NewTopic("orders", 1, 1), NewTopic("other", 1, 1)])
        yield found
        found.close()


@pytest.fixture(autouse=True)
def nobody_is_left(world: World) -> Iterator[None]:
    world.secrets.given.clear()
    yield
    gone = [
        DesiredUser(owner, principal.removeprefix("User:"), owner, "scram-sha-512", delete=True)
        for principal, owner in world.managed.items()
    ]
    world.settle(*gone)
    world.secrets.kept.clear()
    assert world.managed == {}


def test_a_user_logs_in_and_has_what_its_acls_give(world: World) -> None:
    wanted = user(acls=READ_ORDERS, quotas={"producerByteRate": 1e6})
    assert any("Secret default/alice" in line for line in world.one_pass(wanted))
    world.settle(wanted)
    wait_until(lambda: world.topics_of(wanted) == {"orders"}, "it may see its topic")
    listed = quotas.list_quotas(world.own)
    assert ({"user": "alice"}, {"producer_byte_rate": 1e6}) in listed
    assert world.secrets.kept["default/alice"].data["password"] not in b"".join(
        line.encode() for line in world.one_pass(wanted)
    )


def test_acls_change_without_a_new_login(world: World) -> None:
    wanted = user(acls=READ_ORDERS)
    world.settle(wanted)
    with world.log_in(wanted) as client:
        wait_until(lambda: set(client.metadata().topics) == {"orders"}, "it sees orders")
        both = [{"resource": {"type": "topic", "name": "o", "pattern": "prefix"},
                 "operations": ["describe"]}]  # fmt: skip
        world.settle(user(acls=both))
        wait_until(lambda: set(client.metadata().topics) == {"orders", "other"}, "it sees both")
        world.settle(user())
        wait_until(lambda: not client.metadata().topics, "it sees nothing")


def test_foreign_changes_of_a_user_are_reverted_and_other_users_left_alone(world: World) -> None:
    wanted = user(acls=READ_ORDERS)
    world.settle(wanted)
    (mine,) = wanted.acls
    stray = replace(mine, name="other")
    foreign = replace(mine, principal="User:bob")
    acls.add_acls(world.own, [stray, foreign])
    quotas.alter_quotas(world.own, {"user": "alice", "client-id": "x"}, {"consumer_byte_rate": 5.0})
    quotas.alter_quotas(world.own, {"user": "bob"}, {"consumer_byte_rate": 7.0})
    salted = SaltedPassword(1, 4096, b"salt-of-bob", b"x" * 32)
    set_password(world.own, "bob", salted)
    set_password(world.own, "alice", salted)
    wait_until(lambda: len(world.admin.observe_users().scram) == 2, "both passwords are there")
    wait_until(lambda: len(acls.list_acls(world.own, acls.AclSelection())) == 3, "3 ACLs")
    wait_until(lambda: len(quotas.list_quotas(world.own)) == 2, "both quotas are there")
    world.settle(wanted)
    found = world.admin.observe_users()
    assert found.acls == frozenset({mine, foreign})
    assert found.quotas == {(("user", "bob"),): {"consumer_byte_rate": 7.0}}
    assert found.scram["bob"] == {1: 4096}
    assert found.scram["alice"].keys() == {2}
    acls.remove_entries(world.own, [foreign])
    quotas.alter_quotas(world.own, {"user": "bob"}, {"consumer_byte_rate": None})
    delete_credentials(world.own, "bob", [1])


def test_a_password_is_rotated_and_the_old_one_is_refused(world: World) -> None:
    wanted = user()
    world.settle(wanted)
    wait_until(lambda: not world.refused(wanted), "it can log in")
    before = world.secrets.kept[wanted.secret]
    with world.log_in(wanted) as connected:
        connected.metadata()
        asked = replace(wanted, rotation="now")
        world.settle(asked)
        wait_until(lambda: not world.refused(asked), "the new password is accepted")
        connected.metadata()  # an open connection stays open
    after = world.secrets.kept[wanted.secret]
    assert after.data["password"] != before.data["password"]
    world.secrets.kept[wanted.secret] = before
    wait_until(lambda: world.refused(wanted), "the old password is refused")
    world.secrets.kept[wanted.secret] = after


def test_a_password_that_somebody_set_is_set_back(world: World) -> None:
    wanted = user()
    world.settle(wanted)
    set_password(world.own, "alice", SaltedPassword(2, 4096, b"salt", b"x" * 64))
    wait_until(lambda: world.refused(wanted), "the password is another one")
    world.settle(wanted)
    wait_until(lambda: not world.refused(wanted), "it can log in again")


def test_a_password_from_a_secret(world: World) -> None:
    source = {"type": "scram-sha-256", "passwordFrom": {"name": "mine", "key": "pw"}}
    wanted = user(authentication=source)
    assert world.one_pass(wanted) == [], "there is no such Secret yet"
    world.secrets.given["default/mine/pw"] = 'first "secret"'
    world.settle(wanted)
    wait_until(lambda: not world.refused(wanted), "it can log in")
    world.secrets.given["default/mine/pw"] = "second"
    world.settle(wanted)
    wait_until(lambda: not world.refused(wanted), "it can log in with the new one")
    assert world.secrets.kept["default/alice"].data["password"] == b"second"


def test_a_deleted_user_leaves_nothing(world: World) -> None:
    wanted = user(acls=READ_ORDERS, quotas={"consumerByteRate": 10})
    world.settle(wanted)
    login = world.log_in(wanted)
    world.settle(replace(wanted, delete=True))
    found = world.admin.observe_users()
    assert (dict(found.scram), found.acls, dict(found.quotas)) == ({}, frozenset(), {})
    assert world.secrets.kept == {}
    assert world.managed == {}
    with login, pytest.raises((BrokerError, ClientError)):
        login.metadata()


def test_a_secret_moves_with_its_name(world: World) -> None:
    world.settle(user())
    before = world.secrets.kept["default/alice"]
    moved = replace(user(secret={"name": "of-alice"}), previous_secret="default/alice")
    world.settle(moved)
    assert world.secrets.kept == {"default/of-alice": before}


def test_a_secret_of_somebody_else_is_not_overwritten(world: World) -> None:
    world.secrets.kept["default/alice"] = Stored({"token": b"x"})
    assert world.one_pass(user(acls=READ_ORDERS)) == []
    assert world.secrets.kept["default/alice"].data == {"token": b"x"}
    assert world.managed == {}
