"""Delegation tokens with Apache Kafka's own tool, and logins with tokens of its clients."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_tests.conftest import StartBroker
from broker_tests.security.token_support import (
    KEY,
    addresses,
    client_file,
    token_file,
    token_settings,
)
from odradek_testkit.engines import engine, kafka_tool
from odradek_testkit.waiting import wait_until

pytestmark = pytest.mark.java

TOOL = "org.apache.kafka.tools.DelegationTokenCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
HOUR_MS = "3600000"

Tool = Callable[..., str]


@pytest.fixture
def clients(start_broker: StartBroker) -> str:
    """The address of the listener with users."""
    settings = token_settings(engine())
    start_broker(settings)
    return addresses(settings)[1]


def tokens(address: str, config: Path, *args: str, check: bool = True) -> str:
    """The output of kafka-delegation-tokens.sh."""
    done = kafka_tool(
        TOOL, "--bootstrap-server", address, "--command-config", str(config), *args, check=check
    )
    return done.stdout + done.stderr


def list_topics(address: str, config: Path) -> tuple[int, str]:
    done = kafka_tool(
        TOPICS, "--bootstrap-server", address, "--command-config", str(config), "--list",
        check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def lines_of(output: str) -> list[list[str]]:
    """The rows of the tool's table: id, HMAC, owner, requester, renewers, dates."""
    return [line.split() for line in output.splitlines() if re.match(r"[\w-]{22} ", line)]


def described(address: str, config: Path, principal: str) -> list[list[str]]:
    """Without --owner-principal the tool asks for the tokens of nobody."""
    return lines_of(tokens(address, config, "--describe", "--owner-principal", principal))


def test_created_used_renewed_and_expired(clients: str, tmp_path: Path) -> None:
    alice, bob = (client_file(tmp_path / user, user) for user in ("alice", "bob"))
    created = tokens(
        clients, alice, "--create", "--max-life-time-period", "-1", "--renewer-principal",
        "User:bob",
    )  # fmt: skip
    [(token_id, hmac, owner, requester, renewers, *dates)] = lines_of(created)
    assert (owner, requester, renewers) == ("User:alice", "User:alice", "[User:bob]")
    assert len(dates) == 3

    wait_until(lambda: described(clients, alice, "User:alice") != [])
    [row] = described(clients, bob, "User:bob")
    assert row[:3] == [token_id, hmac, "User:alice"]

    config = token_file(tmp_path / "token", token_id, hmac)
    assert list_topics(clients, config)[0] == 0
    refused = tokens(clients, config, "--create", "--max-life-time-period", "-1", check=False)
    assert "DelegationTokenDisabledException" not in refused
    assert "Delegation Token requests are not allowed on" in refused
    wrong = token_file(tmp_path / "wrong", token_id, hmac[::-1])
    code, output = list_topics(clients, wrong)
    assert code != 0
    assert "Authentication failed" in output

    renewed = tokens(clients, bob, "--renew", "--renew-time-period", HOUR_MS, "--hmac", hmac)
    assert "Completed renew operation" in renewed
    tokens(clients, alice, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    wait_until(lambda: described(clients, alice, "User:alice") == [])
    code, output = list_topics(clients, config)
    assert code != 0
    assert "Authentication failed" in output
    gone = tokens(
        clients, bob, "--renew", "--renew-time-period", HOUR_MS, "--hmac", hmac, check=False
    )
    assert "Delegation Token is not found on server" in gone


def test_only_allowed_users_act_for_another_owner(clients: str, tmp_path: Path) -> None:
    alice, root = (client_file(tmp_path / user, user) for user in ("alice", "root"))
    for_carol = ("--create", "--max-life-time-period", "-1", "--owner-principal", "User:carol")
    refused = tokens(clients, alice, *for_carol, check=False)
    assert "Delegation Token authorization failed" in refused
    kafka_tool(
        "org.apache.kafka.tools.AclCommand", "--bootstrap-server", clients,
        "--command-config", str(root), "--add", "--allow-principal", "User:alice",
        "--operation", "CreateTokens", "--user-principal", "User:carol",
    )  # fmt: skip
    created: list[list[str]] = []

    def create() -> bool:
        created[:] = lines_of(tokens(clients, alice, *for_carol, check=False))
        return bool(created)

    wait_until(create)
    [(token_id, hmac, owner, requester, *_)] = created
    assert (owner, requester) == ("User:carol", "User:alice")
    config = token_file(tmp_path / "token", token_id, hmac)
    wait_until(lambda: list_topics(clients, config)[0] == 0)


def test_the_key_is_a_secret(clients: str, tmp_path: Path) -> None:
    root = client_file(tmp_path / "root", "root")
    shown = kafka_tool(
        "kafka.admin.ConfigCommand", "--bootstrap-server", clients, "--command-config", str(root),
        "--describe", "--all", "--entity-type", "brokers", "--entity-name", "1",
    ).stdout  # fmt: skip
    assert "delegation.token.secret.key=null sensitive=true" in shown
    assert KEY not in shown
