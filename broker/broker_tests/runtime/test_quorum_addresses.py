"""Addresses of the quorum, and lists of voters that are refused."""

import pytest

from odradek_broker.model.config_table import ConfigError
from odradek_broker.runtime.quorum_addresses import (
    Address,
    parse_bootstrap_servers,
    parse_voters,
)
from odradek_broker.runtime.settings import Settings


def test_voters_and_servers() -> None:
    assert parse_voters(["1@a:9092", "2@[::1]:9093"]) == {
        1: Address("a", 9092),
        2: Address("::1", 9093),
    }
    assert [str(a) for a in parse_bootstrap_servers(["b-1.svc:9092", "[::1]:1"])] == [
        "b-1.svc:9092",
        "[::1]:1",
    ]
    settings = Settings({"controller.quorum.voters": "1@a:1,2@b:2"})
    assert settings.quorum_voters == {1: ("a", 1), 2: ("b", 2)}
    assert settings.quorum_bootstrap_servers == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a:9092", "must be <id>@<host>:<port>"),
        ("x@a:9092", "must be <id>@<host>:<port>"),
        ("-1@a:9092", "must be <id>@<host>:<port>"),
        ("1@a", "must be <host>:<port>"),
        ("1@a:0", "must be <host>:<port>"),
        ("1@a:70000", "must be <host>:<port>"),
        ("1@a:9092,1@b:9092", "node 1 is named twice"),
        ("1@a:9092,2@a:9092", "a:9092 is named twice"),
    ],
)
def test_invalid_voters_are_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        Settings({"controller.quorum.voters": text})
    assert "controller.quorum.voters" in str(refused.value)


def test_invalid_bootstrap_servers_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"controller\.quorum\.bootstrap\.servers"):
        Settings({"controller.quorum.bootstrap.servers": "1@a:9092"})
