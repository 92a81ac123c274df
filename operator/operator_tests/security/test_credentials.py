"""The Secret of a user: kept while it is usable, in the formats that clients read."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from odradek_cli.properties import parse_properties
from odradek_operator.security.credentials import (
    ClusterAccess,
    Credentials,
    NoCredentialsError,
    Randomness,
    Sources,
    Stored,
    decide,
    render,
)
from odradek_operator.security.pki import days, new_ca, read
from odradek_operator.security.users import DesiredUser
from odradek_protocol.security.jaas import parse_jaas
from odradek_protocol.security.stores import Stores
from operator_tests.security.test_users import user

NOW = 1_800_000_000.0
KEYS = ("client.properties", "librdkafka.conf", "sasl.jaas.config", "servicebinding", "pkcs12")


@pytest.fixture
def randomness() -> Randomness:
    numbers = itertools.count()
    return Randomness(lambda: f"made-{next(numbers)}", lambda below: next(numbers) % below)


def stored(wanted: DesiredUser, made: Credentials) -> Stored:
    data = render(wanted, made, ClusterAccess("a:1"), Stored())
    return Stored(data, wanted.owner, made.iterations, made.rotation)


def test_a_password_is_kept_until_a_rotation(randomness: Randomness) -> None:
    first = decide(user(), Stored(), Sources(), NOW, randomness)
    assert "made" not in repr(first)
    again = decide(user(), stored(user(), first), Sources(), NOW, randomness)
    assert again == first
    asked = replace(user(), rotation="2")
    second = decide(asked, stored(user(), first), Sources(), NOW, randomness)
    assert second.password != first.password
    assert second.iterations != first.iterations
    assert decide(asked, stored(asked, second), Sources(), NOW, randomness) == second


def test_a_password_follows_its_source(randomness: Randomness) -> None:
    wanted = user(authentication={"type": "scram-sha-512", "passwordFrom": {"name": "s"}})
    with pytest.raises(NoCredentialsError, match="Secret default/s does not exist"):
        decide(wanted, Stored(), Sources(), NOW, randomness)
    first = decide(wanted, Stored(), Sources("one"), NOW, randomness)
    assert decide(wanted, stored(wanted, first), Sources("one"), NOW, randomness) == first
    second = decide(wanted, stored(wanted, first), Sources("two"), NOW, randomness)
    assert second.password == "two"
    assert second.iterations != first.iterations


def test_iterations_differ_from_those_in_kafka(randomness: Randomness) -> None:
    every = frozenset(range(4097, 8191))
    made = decide(user(), Stored(), Sources(iterations_used=every), NOW, randomness)
    assert made.iterations == 8191


def test_a_certificate_is_renewed_in_time_and_when_the_ca_changes(randomness: Randomness) -> None:
    wanted = user(authentication={"type": "mtls"})
    with pytest.raises(NoCredentialsError, match="no CA of clients"):
        decide(wanted, Stored(), Sources(), NOW, randomness)
    ca = new_ca("clients 1", NOW, days(3650))
    sources = Sources(clients_ca=ca)
    first = decide(wanted, Stored(), sources, NOW, randomness)
    found = stored(wanted, first)
    assert first.certificate is not None
    assert read(first.certificate.certificate_pem).distinguished_name == "CN=alice"
    assert decide(wanted, found, sources, NOW + days(240), randomness) == first
    assert decide(wanted, found, sources, NOW + days(250), randomness) != first
    assert decide(replace(wanted, rotation="x"), found, sources, NOW, randomness) != first
    other = Sources(clients_ca=new_ca("clients 2", NOW, days(3650)))
    assert decide(wanted, found, other, NOW, randomness) != first
    renamed = replace(wanted, name="bob")
    assert decide(renamed, found, sources, NOW, randomness) != first


@pytest.mark.parametrize("password", ["simple", 'with "quotes" and \\ and = and #', " spaces "])
def test_scram_settings_are_read_back(password: str) -> None:
    ca = new_ca("cluster", NOW, days(10)).certificate_pem
    wanted = replace(user(), keys=KEYS)
    made = Credentials(password, 5000)
    data = render(wanted, made, ClusterAccess("a:1,b:2", "SASL_SSL", ca), Stored())
    settings = parse_properties(data["client.properties"].decode())
    assert settings["bootstrap.servers"] == "a:1,b:2"
    assert settings["security.protocol"] == "SASL_SSL"
    assert settings["sasl.mechanism"] == "SCRAM-SHA-512"
    assert settings["ssl.truststore.certificates"] == ca.decode()
    assert parse_jaas(settings["sasl.jaas.config"]).options == {
        "username": "alice", "password": password,
    }  # fmt: skip
    assert data["sasl.jaas.config"].decode() == settings["sasl.jaas.config"]
    assert (data["type"], data["saslMechanism"]) == (b"kafka", b"SCRAM-SHA-512")
    assert data["password"].decode() == password


def test_key_stores_are_read_back_and_kept(tmp_path: Any) -> None:
    ca = new_ca("clients", NOW, days(10))
    wanted = replace(user(authentication={"type": "mtls"}), keys=KEYS)
    made = decide(wanted, Stored(), Sources(clients_ca=ca), NOW, Randomness(str, lambda _: 0))
    access = ClusterAccess("a:1", "SSL", ca.certificate_pem)
    data = render(wanted, made, access, Stored())
    found = Stored(data, wanted.owner, 0, "")
    assert render(wanted, made, access, found) == data, "no new stores without a reason"
    for name in ("user.p12", "ca.p12"):
        (tmp_path / name).write_bytes(data[name])
    password = data["p12.password"].decode()
    stores = Stores.of(
        {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(tmp_path / "user.p12"),
            "ssl.keystore.password": password,
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(tmp_path / "ca.p12"),
            "ssl.truststore.password": password,
        }.get
    )
    assert stores is not None
    Stores.of(parse_properties(data["client.properties"].decode()).get)
    assert "sasl.jaas.config" not in data


def test_an_external_user_gets_no_credentials(randomness: Randomness) -> None:
    wanted = replace(user(authentication={"type": "external"}), keys=KEYS)
    made = decide(wanted, Stored(), Sources(), NOW, randomness)
    data = render(wanted, made, ClusterAccess("a:1", "SASL_SSL", b""), Stored())
    assert not {"password", "user.key", "sasl.jaas.config"} & data.keys()
