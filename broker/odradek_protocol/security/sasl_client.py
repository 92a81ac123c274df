"""The client's side of SASL: each mechanism is a generator of tokens.

    exchange = login.exchange()
    token = next(exchange)                     the first token to send
    token = advance(exchange, answer)          the next one; None: authenticated

Raises SecurityError if the server's tokens are wrong. Used by `odradek_protocol.client`, and by a
broker for its connections to other brokers.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from odradek_protocol.security.errors import SecurityError
from odradek_protocol.security.jaas import JaasConfig, parse_jaas
from odradek_protocol.security.scram import HASHES, TOKEN_OPTION, ScramClient
from odradek_protocol.security.stores import Get

PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (PLAIN, *HASHES, OAUTHBEARER)
TOKEN_TIMEOUT_S = 10.0
TOKEN_BYTES_MAX = 1024 * 1024

Exchange = Generator[bytes, bytes, None]


def advance(exchange: Exchange, answer: bytes) -> bytes | None:
    """The token that follows the server's `answer`; None at the end."""
    try:
        return exchange.send(answer)
    except StopIteration:
        return None


@dataclass(frozen=True)
class Login:
    """A client's credentials. `token` is for OAUTHBEARER; with `by_token` (SCRAM) the user is the
    id of a delegation token, and the password its HMAC in base64."""

    mechanism: str
    user: str = ""
    password: str = field(default="", repr=False)
    token: Callable[[], str] | None = field(default=None, repr=False)
    by_token: bool = False

    @property
    def slow(self) -> bool:
        """A step may take longer than an event loop should wait (PBKDF2, a request)."""
        return self.mechanism != PLAIN

    def exchange(self) -> Exchange:
        if self.mechanism == PLAIN:
            return _plain(self.user, self.password)
        if self.mechanism in HASHES:
            return _scram(self)
        assert self.token is not None, "checked by login_of"
        return _oauthbearer(self.token)


def login_of(mechanism: str, get: Get) -> Login:
    """From `sasl.jaas.config`, or `sasl.username` and `sasl.password` as in librdkafka."""
    mechanism = mechanism.upper()
    if mechanism not in MECHANISMS:
        raise SecurityError(
            f"sasl.mechanism {mechanism} is not supported: use one of {', '.join(MECHANISMS)}"
        )
    text = get("sasl.jaas.config")
    jaas = parse_jaas(text) if text else JaasConfig("", {})
    if mechanism == OAUTHBEARER:
        return Login(mechanism, token=_token_source(jaas, get))
    user = jaas.options.get("username") or get("sasl.username")
    password = jaas.options.get("password") or get("sasl.password")
    if not user or not password:
        raise SecurityError(
            f"{mechanism} needs a user: set username and password in sasl.jaas.config"
        )
    by_token = jaas.options.get(TOKEN_OPTION, "").lower() == "true"
    return Login(mechanism, user, password, by_token=by_token)


# --- mechanisms ----------------------------------------------------------------------------------


def _plain(user: str, password: str) -> Exchange:
    yield f"\0{user}\0{password}".encode()


def _scram(login: Login) -> Exchange:
    client = ScramClient(login.mechanism, login.user, login.password, by_token=login.by_token)
    first = yield client.first()
    final = yield client.final(first)
    client.finish(final)


def _oauthbearer(token: Callable[[], str]) -> Exchange:
    answer = yield f"n,,\x01auth=Bearer {token()}\x01\x01".encode()
    if answer:  # the server's reason, as JSON; it fails the login after this confirmation
        yield b"\x01"
        raise SecurityError(f"OAUTHBEARER: the server refused the token: {answer[:200]!r}")


# --- tokens --------------------------------------------------------------------------------------


def _token_source(jaas: JaasConfig, get: Get) -> Callable[[], str]:
    url = get("sasl.oauthbearer.token.endpoint.url")
    subject = jaas.options.get("unsecuredLoginStringClaim_sub")
    if url and url.startswith("file:"):
        path = unquote(urlsplit(url).path)
        return lambda: _token_of_file(path)
    if url:
        client = jaas.options.get("clientId") or get(
            "sasl.oauthbearer.client.credentials.client.id"
        )
        secret = jaas.options.get("clientSecret") or get(
            "sasl.oauthbearer.client.credentials.client.secret"
        )
        scope = jaas.options.get("scope") or get("sasl.oauthbearer.scope")
        if not client or not secret:
            raise SecurityError("OAUTHBEARER needs clientId and clientSecret in sasl.jaas.config")
        return lambda: _token_of_endpoint(url, client, secret, scope)
    if subject:
        return lambda: unsecured_token(subject, int(time.time()))
    raise SecurityError(
        "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url (https://… or file:///…), or "
        "unsecuredLoginStringClaim_sub in sasl.jaas.config for tests"
    )


def _token_of_file(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read(TOKEN_BYTES_MAX).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SecurityError(f"sasl.oauthbearer.token.endpoint.url {path}: {error}") from None


def _token_of_endpoint(url: str, client: str, secret: str, scope: str | None) -> str:
    """The OAuth 2 grant `client_credentials`."""
    from urllib.parse import quote_plus, urlencode
    from urllib.request import Request, urlopen

    if not url.startswith(("https:", "http:")):
        raise SecurityError(f"sasl.oauthbearer.token.endpoint.url {url}: must be https, http, file")
    fields = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
    basic = base64.b64encode(f"{quote_plus(client)}:{quote_plus(secret)}".encode()).decode()
    request = Request(url, urlencode(fields).encode(), {"Authorization": f"Basic {basic}"})
    try:
        with urlopen(request, timeout=TOKEN_TIMEOUT_S) as answer:
            token = json.loads(answer.read(TOKEN_BYTES_MAX))["access_token"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SecurityError(f"no token from {url}: {error}") from None
    return str(token)


def unsecured_token(subject: str, now_s: int, lifetime_s: int = 3600) -> str:
    """A token without a signature (RFC 7515, `alg: none`), for tests only."""
    claims = {"sub": subject, "iat": now_s, "exp": now_s + lifetime_s}
    return f"{_part({'alg': 'none'})}.{_part(claims)}."


def _part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
