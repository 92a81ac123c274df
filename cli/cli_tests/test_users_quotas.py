"""`odradek users` and `odradek quotas`, and that no password is ever shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cli_tests.conftest import Odradek
from odradek_testkit.engines import RunningBroker

SECRET = "correct horse battery staple"


def test_a_user_from_creation_to_deletion(
    broker: RunningBroker, odradek: Odradek, as_json: Callable[..., Any], tmp_path: Path
) -> None:
    said = odradek("users", "create", "alice", stdin=f"{SECRET}\n")
    assert said.stdout == "Created user alice (SCRAM-SHA-512).\n"
    assert as_json("users", "list") == [
        {"user": "alice", "mechanism": "SCRAM-SHA-512", "iterations": 8192}
    ]
    again = odradek("users", "create", "alice", stdin=f"{SECRET}\n", code=1)
    assert "odradek users password alice" in again.stderr
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")
    odradek("users", "create", "alice", "--mechanism", "SCRAM-SHA-256", "--iterations", "4096",
            "--password-file", str(file))  # fmt: skip
    changed = odradek("users", "password", "alice", "--password", SECRET)
    assert "visible in the process list" in changed.stderr
    assert SECRET not in changed.stdout + changed.stderr + broker.log()
    assert "SCRAM-SHA-256" in odradek("users", "list").stdout
    odradek("users", "delete", "alice", "--mechanism", "SCRAM-SHA-256", "--yes")
    assert (
        odradek("users", "delete", "alice", "-y").stdout == "Deleted user alice (SCRAM-SHA-512).\n"
    )
    assert "There are no users." in odradek("users", "list").stdout


def test_users_that_are_refused(odradek: Odradek) -> None:
    assert "is empty" in odradek("users", "create", "bob", stdin="\n", code=1).stderr
    missing = odradek("users", "password", "bob", stdin="x\n", code=1)
    assert "odradek users create bob" in missing.stderr
    assert "no such user" in odradek("users", "delete", "bob", "-y", code=1).stderr


def test_quotas_from_creation_to_removal(odradek: Odradek, as_json: Callable[..., Any]) -> None:
    odradek("quotas", "set", "--user", "alice", "--client-id", "app", "--producer-byte-rate",
            "1048576", "--request-percentage", "12.5")  # fmt: skip
    said = odradek("quotas", "set", "--default-user", "--controller-mutation-rate", "3")
    assert said.stdout == "Set controller_mutation_rate of user (default).\n"
    odradek("quotas", "set", "--ip", "10.0.0.7", "--connection-creation-rate", "5")
    listed = as_json("quotas", "list")
    assert {"entity": {"user": None}, "quotas": {"controller_mutation_rate": 3.0}} in listed
    table = odradek("quotas", "list").stdout
    assert "user alice, client-id app" in table
    assert "1048576" in table
    odradek("quotas", "remove", "--user", "alice", "--client-id", "app", "--key",
            "request_percentage")  # fmt: skip
    assert "request_percentage" not in odradek("quotas", "list").stdout
    odradek("quotas", "remove", "--user", "alice", "--client-id", "app")
    odradek("quotas", "remove", "--default-user")
    odradek("quotas", "remove", "--ip", "10.0.0.7")
    assert "There are no quotas." in odradek("quotas", "list").stdout


def test_quotas_that_are_refused(odradek: Odradek) -> None:
    nobody = odradek("quotas", "set", "--producer-byte-rate", "1", code=2)
    assert "name an entity" in nobody.stderr
    assert "nothing to set" in odradek("quotas", "set", "--user", "a", code=2).stderr
    both = odradek("quotas", "remove", "--user", "a", "--default-user", code=2)
    assert "not both" in both.stderr
    wrong = odradek("quotas", "set", "--ip", "10.0.0.7", "--producer-byte-rate", "1", code=1)
    assert "Invalid configuration key producer_byte_rate" in wrong.stderr
    assert "there is no quota" in odradek("quotas", "remove", "--user", "a", code=1).stderr
