"""Certificates that another CA signed: which are used, what is wrong with others."""

from __future__ import annotations

from dataclasses import replace

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from odradek_api.kafka_cluster.security import Certificates, IssuerRef
from odradek_operator.security.certificates import Handshake, WriteKind, not_serving, plan
from odradek_operator.security.given import External, external_certificates, source_secrets
from odradek_operator.security.issuing import carry_out
from odradek_operator.security.material import read_material
from odradek_operator.security.pki import KeyPair, Subject, Usage, days, issue, new_ca, read
from operator_tests.security.world import START, World

NODES = {n: Subject("b", dns=(f"kafka-{n}.example.com", "kafka.example.com")) for n in (0, 1)}
OWN = Certificates(secret_name="web")
CA = new_ca("somebody else", START, days(3650))
WILDCARD = issue(CA, Subject("web", dns=("*.example.com",)), Usage.SERVER, START, days(90))


def secret(pair: KeyPair, ca: bytes = CA.certificate_pem) -> dict[str, bytes]:
    made = {"tls.crt": pair.certificate_pem, "tls.key": pair.key_pem}
    return made | ({"ca.crt": ca} if ca else {})


def found(now: float = START, **secrets: dict[str, bytes]) -> External:
    external = external_certificates(OWN, "main", NODES, secrets, now)
    assert external is not None
    return external


def test_one_secret_is_for_all_brokers() -> None:
    external = found(web=secret(WILDCARD))
    assert external.problems == ()
    assert external.pairs == dict.fromkeys((0, 1), WILDCARD)
    assert external.ca_pem == CA.certificate_pem
    assert found(web=secret(WILDCARD, ca=b"")).ca_pem == b"", "clients trust it anyway"
    assert source_secrets(OWN, "main", NODES) == ["web"]
    assert external_certificates(Certificates(), "main", NODES, {}, START) is None


def test_an_old_form_of_key_is_converted() -> None:
    key = load_pem_private_key(WILDCARD.key_pem, None)
    old = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    assert old.startswith(b"-----BEGIN EC PRIVATE KEY-----")
    external = found(web=secret(KeyPair(WILDCARD.certificate_pem, old)))
    assert external.pairs[0] == WILDCARD


def test_unusable_certificates_are_named_and_not_used() -> None:
    other = issue(CA, Subject("x"), Usage.SERVER, START, days(90))
    for content, words in (
        ({}, "Secret web does not exist, or has no tls.crt and tls.key yet"),
        (secret(KeyPair(WILDCARD.certificate_pem, other.key_pem)),
         "Secret web: tls.key is not the private key of tls.crt"),
        (secret(KeyPair(b"?", other.key_pem)), "Secret web: it is not a certificate in PEM"),
    ):  # fmt: skip
        external = found(web=content)
        assert external.pairs == {}
        assert external.problems[0].startswith(words), external.problems
        assert external.lacking(NODES, {}) == [0, 1]
        assert external.lacking(NODES, {0: WILDCARD}) == [1], "node 0 keeps the last one"
    (late,) = found(START + days(91), web=secret(WILDCARD)).problems
    assert "expired at" in late


def test_certificates_that_clients_would_refuse_are_named_too() -> None:
    missing, _ = found(web=secret(issue(CA, Subject("x", dns=("a.b",)), Usage.SERVER, START,
                                        days(90)))).problems  # fmt: skip
    assert missing.endswith("lacks names that clients use: kafka-0.example.com, kafka.example.com")
    (soon,) = found(START + days(61), web=secret(WILDCARD)).problems
    assert soon.startswith("Secret web: its certificate expires at ")


def test_cert_manager_has_a_secret_per_broker() -> None:
    policy = Certificates(issuer_ref=IssuerRef(name="ca"))
    assert source_secrets(policy, "main", NODES) == ["main-listener-0", "main-listener-1"]
    made = {f"main-listener-{n}": secret(issue(CA, s, Usage.SERVER, START, days(90)))
            for n, s in NODES.items()}  # fmt: skip
    external = external_certificates(policy, "main", NODES, made, START)
    assert external is not None
    assert external.problems == ()
    assert read(external.pairs[1].certificate_pem).dns == set(NODES[1].dns)
    del made["main-listener-1"]
    external = external_certificates(policy, "main", NODES, made, START)
    assert external is not None
    assert external.lacking(NODES, {}) == [1]


def test_it_is_copied_into_the_key_stores_and_trusted_by_clients() -> None:
    """And a renewal of the brokers' own certificates leaves it alone."""
    world = World()
    world.settle()
    external = found(web=secret(WILDCARD))
    wanted = replace(world.wanted, external=external)
    kinds = []
    while steps := plan(world.material, wanted, {}, START).steps:
        name, content = carry_out(steps[0], world.material, wanted, START)
        world.secrets[name] = content
        kinds.append(steps[0].kind)
    assert kinds == [WriteKind.PUBLISH_TRUST, WriteKind.COPY_LISTENERS]
    material = read_material("main", world.secrets)
    assert material.listeners == external.pairs
    assert material.listeners_ca == CA.certificate_pem
    assert material.nodes.keys() == world.material.nodes.keys()
    (renewal, *_) = plan(material, replace(wanted, renew="1"), {}, START).steps
    _, content = carry_out(renewal, material, wanted, START)
    assert WILDCARD.certificate_pem in content["listener-0.pem"]
    own = read(material.nodes[0].certificate_pem)
    shown = read(WILDCARD.certificate_pem)
    assert not_serving(material, {0: Handshake(own, shown=shown)}) == ()
    assert not_serving(material, {0: Handshake(own, shown=own)}) == (0,), "it has to load the file"
