"""odradek acls against a broker with an authorizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cli_tests.conftest import Odradek
from odradek_testkit.engines import RunningBroker

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """On a plaintext listener every client is ANONYMOUS, which is a super user here."""
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with RunningBroker(settings, directory=tmp_path_factory.mktemp("acls")) as running:
        yield running


def test_add_list_remove(odradek: Odradek, as_json: Callable[..., Any]) -> None:
    alice = ("--principal", "User:alice")
    added = as_json("acls", "add", *alice, "--operation", "read", "--operation", "write",
                    "--topic", "orders-", "--prefixed")  # fmt: skip
    assert [one["operation"] for one in added] == ["read", "write"]
    assert as_json("acls", "list", *alice) == added
    assert added[0] == {
        "resource": "topic",
        "name": "orders-",
        "pattern": "prefixed",
        "principal": "User:alice",
        "host": "*",
        "operation": "read",
        "permission": "allow",
    }
    odradek("acls", "add", *alice, "--operation", "cluster-action", "--cluster", "--deny")
    assert "cluster_action" in odradek("acls", "list", "--cluster").stdout
    read_only = "--operation", "read", "-y"
    removed = as_json("acls", "remove", "--topic", "orders-", "--prefixed", *read_only)
    assert removed == added[:1]
    odradek("acls", "remove", "--topic", "orders-", "--prefixed", "--yes")
    odradek("acls", "remove", "--cluster", "--yes")
    assert odradek("acls", "list").stdout == "No ACLs.\n"


def test_errors_say_what_to_do(odradek: Odradek) -> None:
    add = "acls", "add", "--operation", "read"
    cases = [
        ((*add, "--principal", "User:a"), "name the resource"),
        ((*add, "--principal", "User:a", "--topic", "t", "--group", "g"), "give one of"),
        ((*add, "--principal", "alice", "--topic", "t"), "--principal alice: must be TYPE:NAME"),
    ]
    for args, why in cases:
        assert why in odradek(*args, code=1).stderr
