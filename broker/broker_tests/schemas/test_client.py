"""The client against answers that real registries give rarely, or never."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme

from broker_tests.schemas.answering import Answer, Answering, ok
from odradek_schemas import (
    BadRecordError,
    Client,
    Decoder,
    Registry,
    RegistryError,
    SchemaNotFoundError,
    SettingsError,
    frame,
)

AVRO = {"schema": '{"type": "record", "name": "A", "fields": [{"name": "n", "type": "int"}]}'}
SECRET = "tell-nobody"
MISSING: Answer = (404, {}, b'{"error_code": 40403, "message": "Schema not found"}')


def client(server: Answering, **login: str) -> Client:
    return Client(Registry(server.url, **login))  # type: ignore[arg-type]


def test_ids_are_asked_for_once() -> None:
    with Answering(lambda *_: ok(AVRO)) as server:
        own = client(server)
        decoder = Decoder(own)
        for number in range(3):
            assert decoder.decode(frame(7, bytes([2 * number]))).value == {"n": number}
        assert own.by_id(7).kind == "AVRO"
        assert [path for _, path, _ in server.seen] == ["/schemas/ids/7"]


def test_an_id_that_does_not_exist_is_asked_for_again_later_only() -> None:
    now = 100.0
    with Answering(lambda *_: MISSING) as server:
        own = Client(Registry(server.url), clock=lambda: now)
        for _ in range(3):
            with pytest.raises(SchemaNotFoundError, match="schema id 9 is not in http"):
                own.by_id(9)
        assert len(server.seen) == 1
        now += 60
        with pytest.raises(SchemaNotFoundError):
            own.by_id(9)
        assert len(server.seen) == 2


def test_the_newest_version_is_kept_for_a_minute() -> None:
    now = 100.0
    versions = iter([1, 2, 3])

    def answer(method: str, path: str) -> Answer:
        version = next(versions)
        return ok({**AVRO, "version": version, "id": version})

    with Answering(answer) as server:
        own = Client(Registry(server.url), clock=lambda: now)
        assert [own.latest("a/b value").version for _ in range(2)] == [1, 1]
        now += 61
        assert own.latest("a/b value").version == 2
        assert own.version("a/b value", 2).id == 2  # seen as the newest one
        assert [path for _, path, _ in server.seen] == [
            "/subjects/a%2Fb%20value/versions/latest"
        ] * 2


@pytest.mark.parametrize(
    ("login", "sent"),
    [({"user": "ann", "password": SECRET}, "Basic YW5uOnRlbGwtbm9ib2R5"),
     ({"token": SECRET}, f"Bearer {SECRET}"), ({}, None)],
)  # fmt: skip
def test_logins_are_sent_and_never_shown(login: dict[str, str], sent: str | None) -> None:
    with Answering(lambda *_: (401, {}, b"no")) as server:
        own = client(server, **login)
        with pytest.raises(RegistryError) as refused:
            own.subjects()
    assert server.seen == [("GET", "/subjects", sent)]
    assert SECRET not in f"{refused.value!r} {own.registry!r}"
    assert ("no login was sent" in str(refused.value)) == (sent is None)


def test_a_redirect_does_not_take_the_login_to_another_host() -> None:
    with Answering(lambda *_: ok([])) as other:
        moved = (302, {"Location": f"{other.url}/subjects"}, b"")
        redirected = pytest.raises(RegistryError, match=f"redirects to {other.url}")
        with Answering(lambda *_: moved) as server, redirected:
            client(server, token=SECRET).subjects()
        assert other.seen == []


def test_certificates_are_checked_against_the_given_ca(tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    paths = {}
    for name, ca in (("right", authority), ("wrong", stranger)):
        paths[name] = tmp_path / f"{name}.pem"
        ca.cert_pem.write_to_path(str(paths[name]))
    with Answering(lambda *_: ok(["a"]), context) as server:
        assert Client(Registry(server.url, ca=paths["right"])).subjects() == ["a"]
        for trusted in (paths["wrong"], None):
            with pytest.raises(RegistryError, match="certificate verify failed"):
                Client(Registry(server.url, token=SECRET, ca=trusted)).subjects()
        assert len(server.seen) == 1
    with pytest.raises(SettingsError, match=r"ssl\.ca\.location: .*absent\.pem cannot"):
        Client(Registry(server.url, ca=tmp_path / "absent.pem"))


@pytest.mark.parametrize(
    "content", [b"<html>", b"[]", b'{"schema": 5}', b'{"schema": "{}", "schemaType": "XML"}', b""]
)
def test_answers_of_something_else_name_the_url(content: bytes) -> None:
    nonsense = pytest.raises(RegistryError, match="schema")
    with Answering(lambda *_: (200, {}, content)) as server, nonsense:
        client(server).by_id(1)


def test_an_endless_answer_is_cut_off() -> None:
    cut_off = pytest.raises(RegistryError, match="exceeds 16777216 bytes")
    with Answering(lambda *_: (200, {}, b" " * (17 * 1024 * 1024))) as server, cut_off:
        client(server).subjects()


def test_a_registry_that_is_away_is_named() -> None:
    with Answering(lambda *_: ok([])) as server:
        url = server.url
    with pytest.raises(RegistryError, match=f"{url} does not answer .the list of subjects.: "):
        Client(Registry(url)).subjects()


@pytest.mark.parametrize(
    ("url", "why"),
    [("registry:8081", "is not the URL"), ("file:///etc/passwd", "is not the URL"),
     (f"http://ann:{SECRET}@registry:8081", "contains a login"), ("http://", "is not the URL"),
     (f"ftp://ann:{SECRET}@registry", "is not the URL")],
)  # fmt: skip
def test_urls_that_are_refused(url: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why) as refused:
        Registry(url)
    assert SECRET not in str(refused.value)


def test_settings_have_confluents_names(tmp_path: Path) -> None:
    found = Registry.of("http://r:1", {"schema.registry.basic.auth.user.info": "ann:a:b"})
    assert (found.user, found.password) == ("ann", "a:b")
    found = Registry.of("http://r:1", {"bearer.auth.token": "t", "ssl.ca.location": "ca.pem"})
    assert (found.token, found.ca) == ("t", Path("ca.pem"))
    with pytest.raises(SettingsError, match=r"basic\.auth\.user\.info is not USER:PASSWORD") as no:
        Registry.of("http://r:1", {"basic.auth.user.info": SECRET})
    assert SECRET not in str(no.value)


def test_a_damaged_record_names_its_schema() -> None:
    with Answering(lambda *_: ok(AVRO)) as server:
        decoder = Decoder(client(server))
        for body in (b"", b"\x80", b"\x02more", b"\xff" * 40):
            with pytest.raises(BadRecordError, match="schema id 7: "):
                decoder.decode(frame(7, body))
