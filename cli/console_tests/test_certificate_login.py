"""Log in with a certificate: the key makes the console's connections; what is refused, and why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from broker_tests.security.tls_support import Authority, tls_settings, trusting
from console_tests.conftest import Answer, Console, Kafka, Visitor
from odradek_cli.errors import UsageError
from odradek_console.cluster.certificates import CertificateError, ClientIdentity
from odradek_console.command import console as console_command
from odradek_protocol.acl_codes import (
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
)
from odradek_protocol.client import KafkaClient
from odradek_protocol.client.admin.acls import add_acls
from odradek_testkit.engines import RunningBroker
from odradek_testkit.ports import free_port
from odradek_testkit.secured import AUTHORIZER

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PASSWORD = b"store-secret"


@dataclass
class Secured:
    authority: Authority
    console: Console
    clients: str


def settings(own: str, clients: str, authority: Authority, client_auth: str) -> dict[str, str]:
    stores = tls_settings(authority, authority.issue("server"))
    return {
        "listeners": f"PLAINTEXT://{own},CLIENTS://{clients}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        **{f"listener.name.clients.{name}": value for name, value in stores.items()},
        "listener.name.clients.ssl.client.auth": client_auth,
        "listener.name.clients.ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/,DEFAULT",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",
    }


def rule(user: str) -> AclEntry:
    return AclEntry(AclResource.TOPIC, f"of-{user}", PatternType.LITERAL, f"User:{user}", "*",
                    AclOperation.ALL, AclPermission.ALLOW)  # fmt: skip


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    own, clients = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    directory = tmp_path_factory.mktemp("certificates")
    authority = Authority.make(directory / "ca")
    with (
        RunningBroker(settings(own, clients, authority, "required"), directory=directory / "b"),
        KafkaClient(own) as client,
    ):
        kafka = Kafka(client)
        for user in ("alice", "bob"):
            kafka.produce(kafka.topic(f"of-{user}", 1), [f"for {user} only".encode()])
            add_acls(client, [rule(user)])
        options = ("--login", "CERTIFICATE")
        with Console(clients, directory, *options, **trusting(authority)) as console:
            yield Secured(authority, console, clients)


def pem_of(authority: Authority, user: str) -> bytes:
    return authority.issue(user, f"{user}.example", common_name=user).read_bytes()


def parts_of(pem: bytes) -> tuple[Any, list[x509.Certificate]]:
    return serialization.load_pem_private_key(pem, None), x509.load_pem_x509_certificates(pem)


def encrypted(pem: bytes) -> bytes:
    key, chain = parts_of(pem)
    text: bytes = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(PASSWORD),
    )
    return text + b"".join(one.public_bytes(serialization.Encoding.PEM) for one in chain)


def pkcs12_of(pem: bytes) -> bytes:
    key, chain = parts_of(pem)
    return pkcs12.serialize_key_and_certificates(
        b"me", key, chain[0], chain[1:], serialization.BestAvailableEncryption(PASSWORD)
    )


def log_in(secured: Secured, store: bytes, password: bytes = b"") -> tuple[Visitor, Answer]:
    visitor = Visitor(secured.console)
    return visitor, visitor.upload({"store": store, "password": password, "next": b"/topics"})


def test_each_user_acts_with_their_own_key(secured: Secured) -> None:
    """Alice's key is PEM, then encrypted PEM; Bob's is in a PKCS12 store."""
    alice_pem, bob_pem = pem_of(secured.authority, "alice"), pem_of(secured.authority, "bob")
    for store, password in ((alice_pem, b""), (encrypted(alice_pem), PASSWORD)):
        alice, answer = log_in(secured, store, password)
        assert answer.headers["location"] == "/topics", answer.text
        assert "for alice only" in alice.get("/topics/of-alice/records").text
        assert alice.get("/topics/of-bob").status == 502
        assert "CN=alice" in alice.get("/topics").text
    bob, answer = log_in(secured, pkcs12_of(bob_pem), PASSWORD)
    assert answer.status == 303, answer.text
    assert "for bob only" in bob.get("/topics/of-bob/records").text
    assert "of-alice" not in bob.get("/topics").text
    lines = [json.loads(line) for line in secured.console.audit.read_text().splitlines()]
    assert any("CN=bob" in one["user"] and one["outcome"] == "done" for one in lines)


def test_a_certificate_of_another_authority_is_refused(secured: Secured, tmp_path: Path) -> None:
    mallory = pem_of(Authority.make(tmp_path / "other"), "alice")
    visitor, answer = log_in(secured, mallory)
    assert answer.status == 401
    assert "The cluster refused this certificate" in answer.text
    assert not visitor.cookies


def test_files_that_are_refused(tmp_path: Path) -> None:
    authority = Authority.make(tmp_path)
    alice, bob = pem_of(authority, "alice"), pem_of(authority, "bob")
    key_of_alice = alice[: alice.index(b"-----BEGIN CERTIFICATE")]
    certificate_of_bob = bob[bob.index(b"-----BEGIN CERTIFICATE") :]
    for store, password, said in (
        (b"nonsense", b"", "neither PEM nor a PKCS12"),
        (key_of_alice, b"", "no certificate next to its private key"),
        (certificate_of_bob, b"", "no private key that can be read"),
        (key_of_alice + certificate_of_bob, b"", "belongs to its private key"),
        (encrypted(alice), b"", "give its password"),
        (encrypted(alice), b"wrong", "is the password right?"),
        (pkcs12_of(alice), b"wrong", "neither PEM nor a PKCS12"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----", b"", "can be read"),
    ):
        with pytest.raises(CertificateError, match=said) as refused:
            ClientIdentity.of(store, password.decode())
        assert "AAAA" not in str(refused.value)


def test_the_order_of_a_chain_does_not_matter(tmp_path: Path) -> None:
    """Some tools write the authority first; a password for a plain key is not used."""
    authority = Authority.make(tmp_path)
    ca = authority.trusted().read_bytes()
    found = ClientIdentity.of(ca + pem_of(authority, "alice"), "not needed")
    assert "CN=alice" in found.name
    chain = found.properties["ssl.keystore.certificate.chain"]
    first, _ = x509.load_pem_x509_certificates(chain.encode())
    assert first.subject.rfc4514_string() == found.name
    assert "PRIVATE" not in repr(found)


def test_refusals_show_nothing_of_the_file(secured: Secured) -> None:
    store = pem_of(secured.authority, "alice")
    _, answer = log_in(secured, encrypted(store), b"wrong-password-of-mine")
    assert answer.status == 400
    assert "is the password right?" in answer.text
    assert "wrong-password" not in answer.text
    assert "BEGIN" not in answer.text
    _, answer = log_in(secured, b"")
    assert "Choose a file" in answer.text
    _, answer = log_in(secured, b"x" * (256 * 1024 + 1))
    assert "more than 256 KB" in answer.text
    visitor = Visitor(secured.console)
    assert visitor.post("/login", {"store": "x", "password": "y"}).status == 400
    forged = {"Origin": "http://evil.example", "Content-Type": "multipart/form-data; boundary=x"}
    assert visitor.post("/login", {}, forged).status == 403


def test_keys_are_in_no_page_log_or_process_list(secured: Secured) -> None:
    store = pem_of(secured.authority, "alice")
    alice, answer = log_in(secured, encrypted(store), PASSWORD)
    assert answer.status == 303, answer.text
    process = secured.console.process
    assert process is not None
    texts = [alice.get(path).text for path in ("/", "/security", "/login")]
    with open(f"/proc/{process.pid}/cmdline") as command:
        texts.append(command.read())
    texts += [secured.console.log_path.read_text(), secured.console.audit.read_text()]
    assert not [text for text in texts if "PRIVATE" in text or PASSWORD.decode() in text]


def test_logout_forgets_the_key(secured: Secured) -> None:
    alice, _ = log_in(secured, pem_of(secured.authority, "alice"))
    stolen = Visitor(secured.console, dict(alice.cookies))
    assert alice.post("/logout", {"csrf": alice.csrf()}).status == 303
    assert stolen.get("/topics").status == 303


def test_a_listener_that_lets_everybody_in_proves_nothing(tmp_path: Path) -> None:
    """
    Mallory makes a certificate with Alice's name. A broker that does not ask for certificates would
    not look at it, and pages and audit log would have the wrong name.
    """
    own, clients = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    authority = Authority.make(tmp_path / "ca")
    forged = pem_of(Authority.make(tmp_path / "other"), "alice")
    for client_auth in ("none", "requested"):
        with (
            RunningBroker(
                settings(own, clients, authority, client_auth), directory=tmp_path / client_auth
            ),
            Console(clients, tmp_path, "--login", "CERTIFICATE", **trusting(authority)) as console,
        ):
            visitor = Visitor(console)
            answer = visitor.upload({"store": forged, "next": b"/"})
            assert answer.status == 400, answer.text
            assert "ssl.client.auth=required" in answer.text
            assert not visitor.cookies
            assert "alice" not in console.audit.read_text()


def test_guessing_is_slowed_down(tmp_path: Path) -> None:
    authority = Authority.make(tmp_path)
    nowhere = f"127.0.0.1:{free_port()}"
    options = ("--login", "CERTIFICATE")
    with Console(nowhere, tmp_path, *options, **trusting(authority)) as console:
        answers = [
            Visitor(console).upload({"store": b"nonsense", "password": str(n).encode()}).status
            for n in range(12)
        ]
    assert answers[-1] == 429
    assert set(answers[:-1]) <= {400, 429}


def test_it_needs_tls_to_the_brokers() -> None:
    with pytest.raises(UsageError, match=r"security\.protocol=SSL"):
        console_command(bootstrap="127.0.0.1:1", login="CERTIFICATE")


@pytest.mark.long  # Chromium
def test_in_a_browser(browser: Browser, secured: Secured, tmp_path: Path) -> None:
    """The file is chosen and sent as a browser does it; the form fits a phone."""
    store = tmp_path / "alice.p12"
    store.write_bytes(pkcs12_of(pem_of(secured.authority, "alice")))
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.goto(f"{secured.console.address}/topics/of-alice/records")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator("input[type=file]").set_input_files(store)
    page.locator("input[type=password]").fill(PASSWORD.decode())
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/topics/of-alice/records")
    page.get_by_text("for alice only").first.wait_for()
    context.close()
