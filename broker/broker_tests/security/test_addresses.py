"""One client, several texts of its address: ACLs and limits about it have to apply to all."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from broker_tests.clients import test_acls as acls
from broker_tests.security.support import allow, deny
from broker_tests.security.test_authorizer import with_acls
from odradek_broker.metadata.client_quotas import CONNECTION_CREATION_RATE, IP
from odradek_broker.model.hosts import canonical_host
from odradek_broker.model.principal import Principal
from odradek_broker.runtime.settings import Settings
from odradek_broker.security.authorizer import Client
from odradek_broker.security.connection_limits import ConnectionLimits, parse_overrides
from odradek_broker.security.rates import Windows
from odradek_protocol.acl_codes import AclOperation, AclResource
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct
from odradek_testkit.engines import engine, on_apache

MAPPED = "::ffff:10.0.0.7"


@pytest.mark.parametrize(
    ("host", "canonical"),
    [
        ("10.0.0.7", "10.0.0.7"),
        (MAPPED, "10.0.0.7"),
        ("::ffff:a00:7", "10.0.0.7"),
        ("0:0:0:0:0:0:0:1", "::1"),  # as Java writes it
        ("2001:DB8:0:0::0001", "2001:db8::1"),
        ("*", "*"),
        ("not:an:address", "not:an:address"),
        ("", ""),
    ],
)
def test_an_address_has_one_form(host: str, canonical: str) -> None:
    assert canonical_host(host) == canonical


@pytest.mark.parametrize(
    ("written", "seen"),
    [("0:0:0:0:0:0:0:1", "::1"), (MAPPED, "10.0.0.7"), ("2001:DB8::1", "2001:db8::1")],
)
def test_a_denied_address_is_denied_however_it_is_written(written: str, seen: str) -> None:
    read = AclOperation.READ
    authorizer = with_acls(allow(read), deny(allow(read, host=written)))
    alice = Principal("User", "alice")

    def may_read(host: str) -> bool:
        client = Client(alice, canonical_host(host))
        return authorizer.decisions(client, read, AclResource.TOPIC).about("a").allowed

    assert not may_read(seen)
    assert not may_read(written)
    assert may_read("10.0.0.8")


def test_limits_of_an_address_apply_to_its_other_form() -> None:
    assert parse_overrides(f"[{MAPPED}]:5,0:0:0:0:0:0:0:1:7") == {"10.0.0.7": 5, "::1": 7}
    limits = ConnectionLimits(Settings({"log.dirs": "unused"}), Windows(), ())
    limits.apply({((IP, MAPPED),): {CONNECTION_CREATION_RATE: 1.0}})
    waits = [limits.throttled_ms("10.0.0.7", 0.0) for _ in range(100)]
    assert any(waits)


def _binds_both() -> bool:
    try:
        with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True):
            return True
    except (OSError, ValueError):
        return False


@pytest.mark.skipif(on_apache(), reason="how our broker sees addresses")
@pytest.mark.skipif(not _binds_both(), reason="this machine has no IPv6")
def test_a_listener_on_all_addresses_of_ipv6_denies_an_address_of_ipv4(tmp_path: Path) -> None:
    """The attack: a client that an ACL denies by its address comes through `[::]`, where the kernel
    shows it as ::ffff:127.0.0.2."""
    settings = {
        **acls.SETTINGS,
        "listeners": "PLAINTEXT://[::]:0",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:0",
    }
    with engine()(settings, directory=tmp_path) as broker:
        topic = Struct(
            name="orders", num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        acls.ask(
            broker, acls.ADMIN, acls.CREATE_TOPICS, 7,
            topics=[topic], timeout=5000, validate_only=False,
        )  # fmt: skip
        kinds = ((acls.TOPIC, "*"), (acls.CLUSTER, "kafka-cluster"))
        acls.create(broker, *(acls.acl(kind, name, "*", acls.ALL) for kind, name in kinds))
        assert acls.produce(broker, acls.CLIENT, "orders") is ErrorCode.none
        acls.create(broker, acls.acl(acls.TOPIC, "orders", acls.CLIENT, acls.WRITE, acls.DENY))
        denied = acls.produce(broker, acls.CLIENT, "orders")
        assert denied is ErrorCode.topic_authorization_failed
        assert acls.produce(broker, acls.ADMIN, "orders") is ErrorCode.none
