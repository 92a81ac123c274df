"""Log in at an identity provider; each attack on the way there and back.

The issuer is made here, the broker verifies its tokens (OAUTHBEARER), Kafka's ACLs decide.
"""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from console_tests.conftest import Answer, Console, Kafka, Visitor
from console_tests.issuer import AUDIENCE, CLIENT, SECRET, Issuer, new_key
from odradek_cli.errors import UsageError
from odradek_console.cluster.oidc import Attempt, OidcError, OidcSettings, Provider
from odradek_console.command import console as console_command
from odradek_console.pages.oidc_login import ATTEMPTS_MAX, VALID_S, OidcLogins
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

LOGIN_COOKIE = "odradek-login-"


def rule(user: str) -> AclEntry:
    return AclEntry(AclResource.TOPIC, f"of-{user}", PatternType.LITERAL, f"User:{user}", "*",
                    AclOperation.ALL, AclPermission.ALLOW)  # fmt: skip


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Issuer, Console]]:
    own, clients = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    directory = tmp_path_factory.mktemp("oidc")
    secret = directory / "secret"
    secret.write_text(f"{SECRET}\n")
    with Issuer() as issuer:
        settings = {
            "listeners": f"PLAINTEXT://{own},CLIENTS://{clients}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": f"{issuer.url}/keys",
            "sasl.oauthbearer.expected.issuer": issuer.url,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:ANONYMOUS",
        }
        with (
            RunningBroker(settings, directory=directory / "broker"),
            KafkaClient(own) as client,
        ):
            kafka = Kafka(client)
            for user in ("alice", "bob"):
                kafka.produce(kafka.topic(f"of-{user}", 1), [f"for {user} only".encode()])
                add_acls(client, [rule(user)])
            options = ("--login", "OIDC", "--oidc-issuer", issuer.url, "--oidc-client", CLIENT,
                       "--oidc-secret-file", str(secret))  # fmt: skip
            with Console(clients, directory, *options) as console:
                yield issuer, console


@dataclass
class Login:
    """One browser's way to the issuer and back, step by step."""

    issuer: Issuer
    console: Console

    def __post_init__(self) -> None:
        self.visitor = Visitor(self.console)

    def begin(self, next_path: str = "/topics") -> dict[str, str]:
        """What the browser asks the issuer for."""
        answer = self.visitor.get(f"/login/start?next={next_path}")
        assert answer.status == 303, answer.text
        where = urlsplit(answer.headers["location"])
        assert answer.headers["location"].startswith(f"{self.issuer.url}/authorize?")
        return {name: values[0] for name, values in parse_qs(where.query).items()}

    def back(self, wanted: dict[str, str]) -> str:
        """The user agrees; the path of the callback."""
        parts = urlsplit(self.issuer.authorize(wanted))
        assert parts.netloc == f"127.0.0.1:{self.console.port}"
        return f"{parts.path}?{parts.query}"

    def run(self, next_path: str = "/topics") -> Answer:
        return self.visitor.get(self.back(self.begin(next_path)))

    @property
    def session(self) -> str | None:
        return self.visitor.cookies.get(f"odradek-console-{self.console.port}")


@pytest.fixture
def login(running: tuple[Issuer, Console]) -> Iterator[Login]:
    issuer, console = running
    before = {name: value for name, value in vars(issuer).items() if not name.startswith("_")}
    for name in ("claims", "access_claims", "answer", "document"):
        setattr(issuer, name, {})
    yield Login(issuer, console)
    for name, value in before.items():
        setattr(issuer, name, value)


# -- the way in ------------------------------------------------------------------------------------


def test_each_user_acts_with_their_own_token(login: Login) -> None:
    answer = login.run("/topics/of-alice/records")
    assert answer.headers["location"] == "/topics/of-alice/records"
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "SameSite=Lax" in answer.headers["set-cookie"]
    assert "for alice only" in login.visitor.get("/topics/of-alice/records").text
    assert ">alice<" in login.visitor.get("/topics").text
    bob = Login(login.issuer, login.console)
    login.issuer.user = "bob"
    bob.run()
    assert bob.visitor.get("/topics/of-alice").status == 502
    assert "of-alice" not in bob.visitor.get("/topics").text
    assert "for bob only" in bob.visitor.get("/topics/of-bob/records").text
    lines = [json.loads(line) for line in login.console.audit.read_text().splitlines()]
    assert {"alice", "bob"} <= {one["user"] for one in lines if one["outcome"] == "done"}


def test_without_a_login_there_is_nothing(login: Login) -> None:
    assert login.visitor.get("/topics").headers["location"] == "/login?next=/topics"
    page = login.visitor.get("/login?next=/topics/of-alice").text
    assert 'href="/login/start?next=%2Ftopics%2Fof-alice"' in page
    assert 'type="password"' not in page
    fields = {"user": "alice", "password": "x"}
    assert login.visitor.post("/login", fields).status == 404


@pytest.mark.parametrize("where", ["//evil.example", "https://evil.example", "/\\evil.example"])
def test_the_way_back_stays_in_the_console(login: Login, where: str) -> None:
    assert login.run(where).headers["location"] == "/"


def test_every_attempt_has_its_own_secrets(login: Login) -> None:
    first, second = login.begin(), login.begin()
    for name in ("state", "nonce", "code_challenge"):
        assert first[name] != second[name]
        assert len(first[name]) >= 43
    assert first["redirect_uri"] == f"{login.console.address}/login/callback"
    login.visitor.get(login.back(second))
    assert login.session is not None
    verifier = login.issuer.reports[-1]["code_verifier"]
    assert verifier not in str(second)  # it never went through the browser


# -- the attacks -----------------------------------------------------------------------------------


def test_a_code_of_an_attacker_logs_nobody_in(login: Login) -> None:
    """Login CSRF: the attacker's own callback address is opened by the victim's browser.

    The victim has begun no login, or another one, which goes on.
    """
    attacker = Login(login.issuer, login.console)
    trap = attacker.back(attacker.begin())
    answer = login.visitor.get(trap)
    assert answer.status == 400
    assert "was not begun in this browser" in answer.text
    own = login.begin()
    assert login.visitor.get(trap).status == 400
    assert login.session is None
    assert login.visitor.get(login.back(own)).status == 303


def test_a_stolen_callback_is_worth_nothing(login: Login) -> None:
    """Code interception: without the cookie, and after it was used."""
    address = login.back(login.begin())
    thief = Login(login.issuer, login.console)
    assert thief.visitor.get(address).status == 400
    assert login.visitor.get(address).status == 303
    again = Login(login.issuer, login.console)
    again.visitor.cookies = {
        name: value for name, value in login.visitor.cookies.items() if LOGIN_COOKIE in name
    }
    assert again.visitor.get(address).status == 400


def test_a_code_of_another_login_is_refused(login: Login) -> None:
    """Code injection: the victim's code in the attacker's own login; PKCE refuses it."""
    victim = urlsplit(login.back(login.begin()))
    code = parse_qs(victim.query)["code"][0]
    attacker = Login(login.issuer, login.console)
    own = attacker.begin()
    answer = attacker.visitor.get(f"/login/callback?code={code}&state={own['state']}")
    assert answer.status == 401
    assert "invalid_grant" in answer.text
    assert attacker.session is None


def test_an_answer_of_another_issuer_is_refused(login: Login) -> None:
    """Mix-up: RFC 9207."""
    address = login.back(login.begin())
    mixed = address.partition("&iss=")[0] + "&iss=https%3A%2F%2Fevil.example"
    assert login.visitor.get(mixed).status == 400
    assert login.session is None


def test_a_login_replaces_the_session(login: Login) -> None:
    """Session fixation: ids that were there before are worth nothing."""
    login.visitor.cookies[f"odradek-console-{login.console.port}"] = "0" * 43
    login.run()
    first = login.session
    assert first not in (None, "0" * 43)
    login.run()
    assert login.session != first
    old = Visitor(login.console, {f"odradek-console-{login.console.port}": str(first)})
    assert old.get("/topics").status == 303
    assert login.visitor.get("/topics").status == 200


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"nonce": "of-another-login"}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"aud": "another-client"}, "Audience"),
        ({"aud": [CLIENT, "another-client"]}, "azp"),
        ({"azp": "another-client"}, "azp"),
        ({"iss": "https://evil.example"}, "issuer"),
        ({"exp": 1_700_000_000}, "expired"),
        ({"exp": None}, "exp"),
        ({"sub": None}, "sub"),
        ({"sub": ""}, "claim sub"),
        ({"sub": "alice\u202ebob"}, "claim sub"),
        ({"iat": 9_999_999_999}, "not yet valid"),
    ],
)
def test_id_tokens_that_are_not_for_this_login(
    login: Login, claims: dict[str, Any], said: str
) -> None:
    login.issuer.claims = claims
    answer = login.run()
    assert answer.status == 401, answer.text
    assert said in answer.text
    assert login.session is None


def _part(value: object) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def with_public_key(key: rsa.RSAPrivateKey, claims: dict[str, Any]) -> str:
    """Signed with the published key as if it were a shared secret."""
    public = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())
    message = f"{_part({'alg': 'HS256', 'kid': 'one'})}.{_part(claims)}"
    mac = hmac.digest(public.encode(), message.encode(), "sha256")
    return f"{message}.{urlsafe_b64encode(mac).decode().rstrip('=')}"


def test_forged_id_tokens(login: Login) -> None:
    """All claims are right, also the nonce; the signature is not the issuer's."""
    issuer, stranger = login.issuer, new_key()
    forgers: dict[str, Callable[[dict[str, Any]], str]] = {
        "Signature verification failed": lambda claims: jwt.encode(
            claims, stranger, "RS256", headers={"kid": "one"}
        ),
        "is not known": lambda claims: jwt.encode(
            claims, stranger, "RS256", headers={"kid": "../../etc/passwd"}
        ),
        "has algorithm &#39;none&#39;": lambda claims: f"{_part({'alg': 'none'})}.{_part(claims)}.",
        "has algorithm &#39;HS256&#39;": lambda claims: with_public_key(issuer.key, claims),
        "the ID token is not accepted": lambda claims: issuer.signed(claims)[:-20],
        "Not enough segments": lambda _: "x",
    }
    for said, forge in forgers.items():
        issuer.forge = forge
        answer = login.run()
        assert answer.status == 401, answer.text
        assert said in answer.text
    assert login.session is None
    issuer.forge = None
    assert login.run().status == 303


@pytest.mark.parametrize(
    "answer",
    [
        {"access_token": None},
        {"access_token": "a\u0001b"},
        {"access_token": {"a": 1}},
        {"token_type": "mac"},
        {"id_token": None},
        {"refresh_token": 7},
    ],
)
def test_answers_that_no_issuer_gives(login: Login, answer: dict[str, Any]) -> None:
    login.issuer.answer = answer
    assert login.run().status == 401
    assert login.session is None


def test_kafka_refuses_a_token_that_is_not_for_it(login: Login) -> None:
    login.issuer.access_claims = {"aud": "another-service"}
    answer = login.run()
    assert answer.status == 401
    assert "The cluster refused the issuer" in answer.text
    assert login.session is None


def test_the_issuers_refusal_is_a_sentence_and_no_markup(login: Login) -> None:
    state = login.begin()["state"]
    answer = login.visitor.get(f"/login/callback?state={state}&error=access_denied")
    assert answer.status == 401
    assert "the issuer answered access_denied" in answer.text
    state = login.begin()["state"]
    script = "%3Cscript%3Ealert(1)%3C/script%3E"
    answer = login.visitor.get(
        f"/login/callback?state={state}&error={script}&error_description={script}"
    )
    assert "the issuer answered an error" in answer.text
    assert "alert(1)" not in answer.text


def test_secrets_are_in_no_page_log_or_process_list(login: Login) -> None:
    login.run()
    page = login.visitor.get("/").text
    process = login.console.process
    assert process is not None
    with open(f"/proc/{process.pid}/cmdline") as command:
        texts = [page, command.read(), login.console.log_path.read_text()]
    texts.append(login.console.audit.read_text())
    secrets = [SECRET, login.issuer.reports[-1]["code"], login.issuer.reports[-1]["code_verifier"]]
    for secret in secrets:
        assert not [text for text in texts if secret in text]
    assert not [text for text in texts if "eyJ" in text]  # how every JWT begins


# -- how long it lasts -----------------------------------------------------------------------------


def test_a_token_is_renewed_before_it_expires(login: Login) -> None:
    login.issuer.lifetime_s = 20  # within the console's margin: every request renews it
    login.run()
    assert login.visitor.get("/topics").status == 200
    assert login.issuer.reports[-1]["grant_type"] == "refresh_token"
    assert login.visitor.get("/topics/of-alice").status == 200


def test_a_user_whose_login_was_revoked_is_out(login: Login) -> None:
    login.issuer.lifetime_s = 20
    login.run()
    login.issuer.revoked = True
    assert login.visitor.get("/topics").headers["location"].startswith("/login?")
    login.issuer.revoked = False
    assert login.visitor.get("/topics").status == 303  # and stays out
    assert "the session of alice ends" in login.console.log_path.read_text()


def test_an_issuer_that_changed_the_user_is_refused(login: Login) -> None:
    login.issuer.lifetime_s = 20
    login.run()
    login.issuer.answer = {
        "id_token": login.issuer.signed({"iss": login.issuer.url, "sub": "bob", "aud": CLIENT,
                                         "iat": 1, "exp": 9_999_999_999})}  # fmt: skip
    assert login.visitor.get("/topics").headers["location"].startswith("/login?")


def test_logout_ends_the_session(login: Login) -> None:
    login.run()
    stolen = Visitor(login.console, dict(login.visitor.cookies))
    token = login.visitor.csrf()
    assert login.visitor.post("/logout", {"csrf": token}).status == 303
    assert stolen.get("/topics").status == 303


# -- the parts -------------------------------------------------------------------------------------


def test_attempts_are_few_and_short() -> None:
    now = [0.0]
    logins = OidcLogins(Provider(OidcSettings("https://idp.example", "x")), lambda: now[0])
    attempts = [Attempt("/", f"state-{n}", "n", "v", 0.0) for n in range(ATTEMPTS_MAX + 1)]
    ids = [logins.begin(one) for one in attempts]
    assert logins.take(ids[0], "state-0") is None  # dropped for the last one
    assert logins.take(ids[1], "state-2") is None
    assert logins.take(ids[1], "state-1") is attempts[1]
    assert logins.take(ids[1], "state-1") is None
    now[0] = VALID_S + 1
    assert logins.take(ids[2], "state-2") is None


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"issuer": "https://evil.example"}, "the server there says that it is"),
        ({"token_endpoint": "http://evil.example/token"}, "token_endpoint is missing, or is no"),
        ({"token_endpoint": "file:///etc/passwd"}, "token_endpoint is missing, or is no"),
        ({"jwks_uri": None}, "jwks_uri is missing"),
    ],
)
def test_discovery_documents_that_are_refused(document: dict[str, Any], said: str) -> None:
    with Issuer(document=document) as issuer:
        provider = Provider(OidcSettings(issuer.url, CLIENT, SECRET))
        with pytest.raises(OidcError, match=said):
            log_in(provider, issuer)


def log_in(provider: Provider, issuer: Issuer) -> None:
    back, attempt = "http://127.0.0.1:1/login/callback", Attempt.new("/")
    asked = parse_qs(urlsplit(provider.authorization_url(back, attempt)).query)
    address = issuer.authorize({name: values[0] for name, values in asked.items()})
    provider.exchange(parse_qs(urlsplit(address).query)["code"][0], back, attempt)


def test_an_issuer_that_is_away_is_a_sentence() -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(OidcError, match="does not answer as an issuer does"):
        Provider(OidcSettings(nowhere, "x")).authorization_url("http://x/", Attempt.new("/"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "needs --oidc-issuer and --oidc-client"),
        ({"oidc_issuer": "http://idp.example", "oidc_client": "x"}, "must be an https URL"),
        ({"oidc_issuer": "https://u:p@idp.example", "oidc_client": "x"}, "must have no user"),
        ({"oidc_issuer": "https://idp.example", "oidc_client": "x", "oidc_scopes": "email"},
         "must contain openid"),
        ({"oidc_issuer": "https://idp.example", "oidc_client": "x",
          "oidc_secret_file": Path("/nowhere")}, "--oidc-secret-file /nowhere"),
        ({"login": "PLAIN", "oidc_client": "x"}, "need --login OIDC"),
    ],
)  # fmt: skip
def test_starts_that_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        console_command(**{"bootstrap": "127.0.0.1:1", "login": "OIDC", **options})
    assert "u:p" not in str(refused.value)


@pytest.mark.long  # Chromium
def test_in_a_browser(browser: Browser, login: Login) -> None:
    """Over the issuer and back, with the CSP and cookies as a browser handles them."""
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(60_000)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.goto(f"{login.console.address}/topics/of-alice/records")
    page.get_by_role("link", name="Log in").click()
    page.wait_for_url("**/topics/of-alice/records")
    page.get_by_text("for alice only").first.wait_for()
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()
    assert not complaints
