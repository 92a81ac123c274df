"""`odradek tokens`: from creation to expiry, with logins by file, on a broker with users."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_tests.security.token_support import addresses, client_file, token_settings
from cli_tests.conftest import Odradek
from odradek_cli.errors import UsageError
from odradek_cli.librdkafka import security_settings
from odradek_cli.properties import read_properties
from odradek_testkit.engines import RunningBroker


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return token_settings(RunningBroker)


@pytest.fixture(scope="module")
def broker(
    settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningBroker]:
    with RunningBroker(settings, directory=tmp_path_factory.mktemp("cli")) as running:
        yield running


@pytest.fixture
def as_user(settings: dict[str, str], tmp_path: Path) -> Callable[[str], tuple[str, ...]]:
    """The global options of a login at the listener with users."""
    address = addresses(settings)[1]

    def options(user: str) -> tuple[str, ...]:
        file = client_file(tmp_path / f"{user}.properties", user)
        return "--bootstrap", address, "--client-config", str(file)

    return options


def test_a_token_from_creation_to_expiry(
    odradek: Odradek,
    as_json: Callable[..., Any],
    as_user: Callable[[str], tuple[str, ...]],
    settings: dict[str, str],
    tmp_path: Path,
) -> None:
    alice, bob, dave = map(as_user, ("alice", "bob", "dave"))
    file = tmp_path / "job.properties"
    made = odradek(
        *alice, "tokens", "create", "--renewer", "bob", "--max-lifetime", "2h",
        "--login-file", str(file),
    )  # fmt: skip
    assert "owner: User:alice" in made.stdout
    assert "hmac" not in made.stdout
    assert file.stat().st_mode & 0o777 == 0o600
    [token] = as_json(*bob, "tokens", "list", "--show-hmac")
    assert (token["owner"], token["renewers"]) == ("User:alice", "User:bob")
    assert token["hmac"] in file.read_text()
    assert token["hmac"] not in odradek(*alice, "tokens", "list").stdout
    assert odradek(*dave, "tokens", "list").stdout == "There are no tokens.\n"

    with_token = "--bootstrap", addresses(settings)[1], "--client-config", str(file)
    assert odradek(*with_token, "topics", "list").stdout
    refused = odradek(*with_token, "tokens", "create", code=1)
    assert "a client that has logged in with a token gets none" in refused.stderr
    with pytest.raises(UsageError, match="cannot log in with a delegation token"):
        security_settings(read_properties("--client-config", file))

    renewed = odradek(*bob, "tokens", "renew", token["token"], "--period", "1h").stdout
    assert renewed.startswith(f"Token {token['token']} expires at ")
    later = as_json(*alice, "tokens", "expire", token["token"], "--after", "90s")
    assert later["expires"] < token["max"]
    unknown = odradek(*dave, "tokens", "renew", token["token"], code=1)
    assert "there is no such token, or this user may not see it" in unknown.stderr
    odradek(*bob, "tokens", "expire", token["token"], "--yes")
    assert odradek(*alice, "tokens", "list").stdout == "There are no tokens.\n"
    assert "Authentication failed" in odradek(*with_token, "topics", "list", code=1).stderr


def test_a_token_of_another_user_needs_an_acl(
    odradek: Odradek, as_json: Callable[..., Any], as_user: Callable[[str], tuple[str, ...]]
) -> None:
    alice, carol, root = map(as_user, ("alice", "carol", "root"))
    refused = odradek(*alice, "tokens", "create", "--owner", "carol", code=1)
    assert "DELEGATION_TOKEN_AUTHORIZATION_FAILED" in refused.stderr
    acl = ("--user-principal", "User:carol", "--principal", "User:alice")
    odradek(*root, "acls", "add", *acl, "--operation", "create-tokens")
    made = as_json(*alice, "tokens", "create", "--owner", "carol")
    assert (made["owner"], made["requester"]) == ("User:carol", "User:alice")
    [listed] = as_json(*carol, "tokens", "list", "--owner", "carol", "--show-hmac")
    assert listed == made
    shown = as_json(*root, "acls", "list", "--user-principal", "User:carol")
    assert [one["operation"] for one in shown] == ["create_tokens"]
    odradek(*root, "acls", "remove", "--user-principal", "User:carol", "--yes")


def test_requests_that_are_refused(
    odradek: Odradek, as_user: Callable[[str], tuple[str, ...]], tmp_path: Path
) -> None:
    alice = as_user("alice")
    open_listener = odradek("tokens", "create", code=1)
    assert "log in with a user of SASL or with a client certificate" in open_listener.stderr
    assert "--max-lifetime 5x" in odradek(
        *alice, "tokens", "create", "--max-lifetime", "5x", code=2
    ).stderr  # fmt: skip
    file = tmp_path / "there"
    file.write_text("kept")
    exists = odradek(*alice, "tokens", "create", "--login-file", str(file), code=2)
    assert f"--login-file {file}: File exists; name a new file" in exists.stderr
    assert file.read_text() == "kept"
    failed = tmp_path / "failed"
    odradek(*alice, "tokens", "create", "--owner", "dave", "--login-file", str(failed), code=1)
    assert not failed.exists()
    assert "give --yes" in odradek(*alice, "tokens", "expire", "x", code=2).stderr
