"""Attacks on the console's login, sessions and permissions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from console_tests.conftest import Console, Kafka, Visitor, add_user
from odradek_cli.errors import UsageError
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
from odradek_testkit.secured import secured_settings

PASSWORDS = {"alice": "wonderland-secret", "bob": "builder-secret"}


# -- without a login -------------------------------------------------------------------------------


def test_without_the_token_there_is_nothing(console: Console) -> None:
    stranger = Visitor(console)
    for path in ("/", "/topics", "/topics/x/records/stream", "/?token=", "/?token=guess"):
        answer = stranger.get(path)
        assert answer.status == 401
        assert "has a token" in answer.text
        assert console.url.rpartition("=")[2] not in answer.text
    assert stranger.post("/topics/-/create", {"name": "x"}).status == 403
    assert not stranger.cookies
    forged = Visitor(console, {f"odradek-console-{console.port}": "0" * 43})
    assert forged.get("/topics").status == 401
    assert stranger.get("/healthz").text == "ok\n"


def test_the_token_is_not_kept_in_the_address(console: Console) -> None:
    visitor = Visitor(console)
    token = console.url.rpartition("=")[2]
    answer = visitor.get(f"/topics?q=a&token={token}")
    assert answer.headers["location"] == "/topics?q=a"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert Visitor(console).get(f"//evil.example/?token={token}").headers["location"] == "/"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example:{port}", "",
             "127.0.0.1:1", "user@127.0.0.1:{port}"],
)  # fmt: skip
def test_another_host_name_is_refused(visitor: Visitor, host: str) -> None:
    """DNS rebinding: the browser believes that this is evil.example's server."""
    named = {"Host": host.format(port=visitor.console.port)}
    answer = visitor.get("/topics", named)
    assert answer.status == 421
    assert "Topics" not in answer.text
    assert visitor.get("/topics", {"Host": f"localhost:{visitor.console.port}"}).status == 200
    assert visitor.get("/healthz", named).text == "ok\n"  # as a kubelet asks


def test_forms_of_other_sites_are_refused(visitor: Visitor, kafka: Kafka) -> None:
    topic = kafka.topic("precious", 1)
    fields = {"action": "delete", "csrf": visitor.csrf()}
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{visitor.console.port + 1}"):
        assert visitor.post(f"/topics/{topic}", fields, {"Origin": origin}).status == 403
    for token in ("", "x", Visitor(visitor.console).enter().csrf()):  # the last: of another session
        assert visitor.post(f"/topics/{topic}", {**fields, "csrf": token}).status == 403
    assert visitor.get(f"/topics/{topic}").status == 200


def test_a_change_of_another_session_cannot_be_confirmed(visitor: Visitor, kafka: Kafka) -> None:
    topic = kafka.topic("waiting", 1)
    proposed = visitor.post(f"/topics/{topic}", {"action": "delete", "csrf": visitor.csrf()})
    where = proposed.headers["location"]
    other = Visitor(visitor.console).enter()
    assert other.get(where).headers["location"] == "/"
    assert other.post(where, {"csrf": other.csrf(), "typed": topic}).headers["location"] == "/"
    assert visitor.get(f"/topics/{topic}").status == 200


def test_headers_of_every_answer(visitor: Visitor) -> None:
    for path in ("/", "/nothing", "/topics/none", "/static/console.css", "/login"):
        headers = visitor.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy, path
        assert "unsafe" not in policy
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
    stream = visitor.get("/topics/none/records/stream")
    assert "default-src 'none'" in stream.headers["content-security-policy"]
    assert visitor.get("/topics").headers["cache-control"] == "no-store"


def test_pages_have_no_inline_script_or_style(visitor: Visitor, kafka: Kafka) -> None:
    topic = kafka.topic("inline", 1)
    kafka.produce(topic, [b'{"a": 1}'])
    for path in ("/", "/brokers", "/topics", f"/topics/{topic}", f"/topics/{topic}/records",
                 f"/topics/{topic}/settings?all=1", "/groups", "/security"):  # fmt: skip
        text = visitor.get(path).text
        assert " style=" not in text, path
        assert "<style" not in text, path
        assert " onclick=" not in text, path
        assert text.count("<script") == text.count('<script type="module" src="/static/'), path


def test_files_of_the_package_and_no_others(visitor: Visitor) -> None:
    assert visitor.get("/static/console.js").status == 200
    for path in ("/static/..%2fapp.py", "/static/%2e%2e/app.py", "/static/nothing.js"):
        assert visitor.get(path).status == 404
    assert sum(len(visitor.get(f"/static/{one}").text) for one in
               ("console.css", "console.js", "records.js", "icon.svg")) < 60_000  # fmt: skip


# -- how it may be started -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"listen": "0.0.0.0:8080"}, "with this console's credentials"),
        ({"listen": "0.0.0.0:8080", "login": "SCRAM-SHA-512"}, "clear text"),
        ({"login": "OAUTHBEARER"}, "one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OIDC, CERTIFICATE"),
        ({"listen": "8080"}, "expected host:port"),
        ({"mask": ["a..b"]}, "expected a.b or topic:a.b"),
    ],
)
def test_starts_that_are_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        console_command(**{"bootstrap": "127.0.0.1:1", **options})  # type: ignore[arg-type]


# -- with a login ----------------------------------------------------------------------------------


@dataclass
class Secured:
    console: Console
    kafka: Kafka
    broker: RunningBroker


def entry(user: str, kind: AclResource, name: str, operation: AclOperation) -> AclEntry:
    return AclEntry(kind, name, PatternType.LITERAL, f"User:{user}", "*", operation,
                    AclPermission.ALLOW)  # fmt: skip


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    own, clients = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    directory = tmp_path_factory.mktemp("secured")
    settings = secured_settings(own, clients)
    with (
        RunningBroker(settings, directory=directory / "broker") as broker,
        KafkaClient(own) as client,
    ):
        for user, password in PASSWORDS.items():
            add_user(client, user, password)
        kafka = Kafka(client)
        kafka.produce(kafka.topic("of-alice", 1), [b"for alice only"])
        kafka.produce(kafka.topic("of-bob", 1), [b"for bob only"])
        add_acls(
            client,
            [
                entry("alice", AclResource.TOPIC, "of-alice", AclOperation.ALL),
                entry("bob", AclResource.TOPIC, "of-bob", AclOperation.READ),
                entry("bob", AclResource.CLUSTER, "kafka-cluster", AclOperation.DESCRIBE),
            ],
        )
        with Console(clients, directory, "--login", "SCRAM-SHA-512") as console:
            yield Secured(console, kafka, broker)


def logged_in(secured: Secured, user: str) -> Visitor:
    visitor = Visitor(secured.console)
    answer = visitor.login(user, PASSWORDS[user])
    assert answer.status == 303, answer.text
    return visitor


def test_each_user_sees_what_kafka_lets_them_see(secured: Secured) -> None:
    """At the same time, page by page: nothing of one is in the other's answers."""
    alice, bob = logged_in(secured, "alice"), logged_in(secured, "bob")
    for _ in range(2):
        assert "of-alice" in alice.get("/topics").text
        assert "of-bob" in bob.get("/topics").text
        for path in ("/", "/topics", "/groups", "/security"):
            assert "of-bob" not in alice.get(path).text, path
            if path != "/security":  # bob may describe the cluster: all ACLs are his to see
                assert "of-alice" not in bob.get(path).text, path
    assert "for alice only" in alice.get("/topics/of-alice/records").text
    for path in ("/topics/of-alice", "/topics/of-alice/records", "/topics/of-alice/settings",
                 "/topics/of-alice/records/export", "/topics/of-alice/produce"):  # fmt: skip
        answer = bob.get(path)
        assert answer.status == 502, path
        assert "for alice only" not in answer.text
    assert "for alice only" not in bob.get("/topics/of-alice/records/stream?start=oldest").text


def test_kafka_refuses_changes_too(secured: Secured) -> None:
    bob = logged_in(secured, "bob")
    page = bob.change("/topics/of-bob", {"action": "delete"}, typed="of-bob")
    assert "Nothing was changed" in page.text
    assert "AUTHORIZATION_FAILED" in page.text
    assert bob.get("/topics/of-bob").status == 200
    lines = [json.loads(line) for line in secured.console.audit.read_text().splitlines()]
    last = [one for one in lines if one["action"] == "delete topic"][-1]
    assert last["user"] == "bob"
    assert last["outcome"].startswith("refused")


def test_the_question_names_the_rule(secured: Secured) -> None:
    bob = logged_in(secured, "bob")
    page = bob.get("/security?principal=alice&operation=WRITE&kind=topic&name=of-alice").text
    assert "Yes" in page
    assert "operation=ALL" in page
    page = bob.get("/security?principal=bob&operation=WRITE&kind=topic&name=of-bob").text
    assert "No ACL allows it" in page


def test_wrong_passwords_and_forged_logins(secured: Secured) -> None:
    visitor = Visitor(secured.console)
    assert visitor.get("/topics?q=a").headers["location"] == "/login?next=/topics?q%3Da"
    answer = visitor.login("alice", "wrong")
    assert answer.status == 401
    assert "refused this name or password" in answer.text
    assert not visitor.cookies
    unknown = visitor.login("nobody", "wrong")
    assert unknown.text.replace("nobody", "alice") == answer.text  # who exists is not told
    fields = {"user": "alice", "password": PASSWORDS["alice"]}
    assert visitor.post("/login", fields, {"Origin": "http://evil.example"}).status == 403
    for where in ("//evil.example", "https://evil.example", "/\\evil.example", "javascript:x"):
        assert visitor.post("/login", {**fields, "next": where}).headers["location"] == "/"


def test_logout_ends_the_session_on_the_server(secured: Secured) -> None:
    alice = logged_in(secured, "alice")
    stolen = Visitor(secured.console, dict(alice.cookies))
    assert alice.post("/logout", {"csrf": alice.csrf()}).status == 303
    assert stolen.get("/topics").headers["location"].startswith("/login")


def test_a_login_replaces_the_session(secured: Secured) -> None:
    """Session fixation: an id that was there before the login is worth nothing after it."""
    visitor = logged_in(secured, "alice")
    before = dict(visitor.cookies)
    visitor.login("bob", PASSWORDS["bob"])
    assert visitor.cookies != before
    assert Visitor(secured.console, before).get("/topics").status == 303
    assert ">bob<" in visitor.get("/topics").text


def test_passwords_are_in_no_page_log_or_process_list(secured: Secured) -> None:
    alice = logged_in(secured, "alice")
    texts = [alice.get(path).text for path in ("/", "/security?tab=users", "/brokers/1?all=1")]
    process = secured.console.process
    assert process is not None
    with open(f"/proc/{process.pid}/cmdline") as command:
        texts.append(command.read())
    texts += [secured.console.log_path.read_text(), secured.console.audit.read_text()]
    for password in PASSWORDS.values():
        assert not [text for text in texts if password in text]
    assert oct(secured.console.audit.stat().st_mode)[-3:] == "600"


def test_guessing_is_slowed_down(secured: Secured) -> None:
    """Last in this file: the address of the tests is refused for a minute."""
    visitor = Visitor(secured.console)
    answers = [visitor.login("alice", f"guess-{n}").status for n in range(12)]
    assert answers[-1] == 429
    assert set(answers[:-1]) <= {401, 429}


def test_read_only_refuses_every_change(
    broker: RunningBroker, kafka: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> None:
    topic = kafka.topic("kept", 1)
    with Console(broker.bootstrap, tmp_path_factory.mktemp("ro"), "--read-only") as console:
        visitor = Visitor(console).enter()
        page = visitor.get(f"/topics/{topic}").text
        assert "Delete topic" not in page
        token = visitor.csrf("/topics/-/create")
        for path, fields in (
            (f"/topics/{topic}", {"action": "delete"}),
            (f"/topics/{topic}/produce", {"value": "x"}),
            (f"/topics/{topic}/settings", {"name": "retention.ms", "value": "1"}),
            ("/topics/-/create", {"name": "new"}),
            ("/groups/g", {"action": "delete"}),
            ("/security/acls", {"action": "add"}),
            ("/brokers/-/elect", {}),
            ("/brokers/1/settings", {"name": "log.retention.ms", "value": "1"}),
            ("/rebalance/apply", {"proposal": "x"}),
            ("/rebalance/cancel", {}),
            ("/changes/x", {}),
        ):
            answer = visitor.post(path, {**fields, "csrf": token})
            assert answer.status == 403, path
            assert "read-only" in answer.text
