"""Logging in at an identity provider (OpenID Connect): authorization code with PKCE.

    attempt = Attempt.new("/topics")                  # kept for the browser that began
    provider.authorization_url(redirect_uri, attempt) # where the browser is sent
    granted = provider.exchange(code, redirect_uri, attempt)

The user's access token is what Kafka gets (OAUTHBEARER); Kafka verifies it itself. The console
verifies only the ID token, which says who came back: signature, issuer, audience, times, and the
nonce of this attempt. Blocks; safe for threads.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import secrets
import threading
import time
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote_plus, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

import jwt

from odradek_broker.security.sasl.jwks import Jwks
from odradek_broker.security.sasl.oauthbearer import ALGORITHMS, TokenError
from odradek_protocol.security.errors import SecurityError

logger = logging.getLogger(__name__)

TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 1024 * 1024
DISCOVERY_AGE_S = 3600.0
KEYS_AGE_MS = 3_600_000
SKEW_S = 60.0  # between the clocks of the issuer and of the console
LIFETIME_S = 300.0  # of an access token whose answer does not say it
RENEW_BEFORE_S = 30.0  # a request that is under way must not come with an expired token
TOKEN_CHARS_MAX = 64 * 1024
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class OidcError(SecurityError):
    """Why nobody can log in, or why this login was refused; a sentence without secrets."""


class OidcRefusedError(OidcError):
    """The issuer refused, or what came back is not what it should be."""


@dataclass(frozen=True)
class OidcSettings:
    issuer: str
    client_id: str
    secret: str | None = field(default=None, repr=False)  # None: a public client, PKCE alone
    scopes: str = "openid"
    user_claim: str = "sub"  # as the brokers' sasl.oauthbearer.sub.claim.name

    def check(self) -> None:
        """Raises ValueError, whose text names the option."""
        if not is_safe_url(self.issuer):
            raise ValueError(f"--oidc-issuer {self.issuer}: must be an https URL")
        parts = urlsplit(self.issuer)
        if parts.query or parts.fragment or parts.username is not None:
            raise ValueError("--oidc-issuer: must have no user, query or fragment")
        if not self.client_id:
            raise ValueError("--oidc-client: must not be empty")
        if "openid" not in self.scopes.split():
            raise ValueError(f"--oidc-scopes {self.scopes}: must contain openid")


def is_safe_url(url: object) -> bool:
    """https; http only on this machine, where nobody listens in."""
    if not isinstance(url, str):
        return False
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK))


@dataclass(frozen=True)
class Attempt:
    """One login that has begun. The browser that began it holds its id in a cookie."""

    next_path: str
    state: str = field(repr=False)
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)
    began: float

    @classmethod
    def new(cls, next_path: str) -> Attempt:
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        return cls(next_path, state, nonce, verifier, time.monotonic())

    def is_state(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.state.encode())

    @property
    def challenge(self) -> str:
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")


@dataclass(frozen=True)
class Granted:
    """The tokens of one user."""

    user: str
    subject: str
    access_token: str = field(repr=False)
    refresh_token: str | None = field(repr=False)
    expires_at: float  # time.monotonic


class _NoRedirects(HTTPRedirectHandler):
    """A redirect would send the code and the client's secret to another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Provider:
    def __init__(self, settings: OidcSettings) -> None:
        self.settings = settings
        self._http: OpenerDirector = build_opener(_NoRedirects)
        self._lock = threading.Lock()
        self._known: dict[str, Any] = {}
        self._read_at = -DISCOVERY_AGE_S
        self._keys: Jwks | None = None

    # -- the three steps ---------------------------------------------------------------------------

    def authorization_url(self, redirect_uri: str, attempt: Attempt) -> str:
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": redirect_uri,
            "scope": self.settings.scopes,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
        }
        where = self._endpoint("authorization_endpoint")
        return f"{where}{'&' if urlsplit(where).query else '?'}{urlencode(query)}"

    def exchange(self, code: str, redirect_uri: str, attempt: Attempt) -> Granted:
        """Raises OidcError."""
        answer = self._ask_for_tokens({
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": attempt.verifier,
        })  # fmt: skip
        claims = self._verified(answer.get("id_token"))
        given = claims.get("nonce")
        if not isinstance(given, str) or not hmac.compare_digest(
            given.encode(), attempt.nonce.encode()
        ):
            raise OidcRefusedError("the ID token is not of this login (nonce)")
        user = claims.get(self.settings.user_claim)
        if not isinstance(user, str) or not user.strip() or not user.isprintable():
            raise OidcRefusedError(f"the ID token has no claim {self.settings.user_claim}")
        return self._granted(answer, user, str(claims["sub"]), None)

    def renew(self, granted: Granted) -> Granted:
        """With the refresh token. Raises OidcError."""
        if granted.refresh_token is None:
            raise OidcRefusedError("the access token has expired, and there is no refresh token")
        answer = self._ask_for_tokens({
            "grant_type": "refresh_token", "refresh_token": granted.refresh_token,
        })  # fmt: skip
        if "id_token" in answer and self._verified(answer["id_token"])["sub"] != granted.subject:
            raise OidcRefusedError("the issuer renewed the login of another user")
        return self._granted(answer, granted.user, granted.subject, granted.refresh_token)

    @staticmethod
    def _granted(
        answer: dict[str, Any], user: str, subject: str, refresh_token: str | None
    ) -> Granted:
        access, renewed = answer.get("access_token"), answer.get("refresh_token", refresh_token)
        if not _is_token(access) or not (renewed is None or _is_token(renewed)):
            raise OidcRefusedError("the issuer gave no access token")
        if str(answer.get("token_type", "")).lower() != "bearer":
            raise OidcRefusedError("the issuer gave an access token that is no bearer token")
        lifetime = answer.get("expires_in", LIFETIME_S)
        if isinstance(lifetime, bool) or not isinstance(lifetime, int | float) or lifetime <= 0:
            lifetime = LIFETIME_S
        return Granted(user, subject, str(access), renewed, time.monotonic() + lifetime)

    # -- the issuer --------------------------------------------------------------------------------

    def _verified(self, id_token: object) -> dict[str, Any]:
        """The claims of an ID token of this issuer for this client."""
        if not _is_token(id_token):
            raise OidcRefusedError("the issuer gave no ID token")
        try:
            header = jwt.get_unverified_header(str(id_token))
            if header.get("alg") not in ALGORITHMS:
                raise OidcRefusedError(f"the ID token has algorithm {header.get('alg')!r}")
            claims: dict[str, Any] = jwt.decode(
                str(id_token),
                self._jwks().key(header.get("kid")),
                algorithms=list(ALGORITHMS),
                audience=self.settings.client_id,
                issuer=self.settings.issuer,
                leeway=SKEW_S,
                options={"require": ["iss", "sub", "aud", "exp", "iat"]},
            )
        except (jwt.PyJWTError, TokenError, TypeError, ValueError, RecursionError) as error:
            raise OidcRefusedError(f"the ID token is not accepted: {error}") from None
        party, audience = claims.get("azp"), claims["aud"]
        several = isinstance(audience, list) and len(audience) > 1
        if (several or party is not None) and party != self.settings.client_id:
            raise OidcRefusedError("the ID token is for another client (azp)")
        return claims

    def _ask_for_tokens(self, fields: dict[str, str]) -> dict[str, Any]:
        headers = {"Accept": "application/json"}
        if self.settings.secret is None:
            fields = {**fields, "client_id": self.settings.client_id}
        else:
            pair = f"{quote_plus(self.settings.client_id)}:{quote_plus(self.settings.secret)}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        where = self._endpoint("token_endpoint")
        return self._json(Request(where, urlencode(fields).encode(), headers))

    def _endpoint(self, name: str) -> str:
        url = self._discovered().get(name)
        if not is_safe_url(url):
            raise OidcError(f"{self.settings.issuer}: {name} is missing, or is no https URL")
        return str(url)

    def _jwks(self) -> Jwks:
        url = self._endpoint("jwks_uri")
        with self._lock:
            if self._keys is None:
                self._keys = Jwks(url, KEYS_AGE_MS)
            return self._keys

    def _discovered(self) -> dict[str, Any]:
        """The issuer's own description of itself; read again after an hour."""
        with self._lock:
            if self._known and time.monotonic() - self._read_at < DISCOVERY_AGE_S:
                return self._known
        issuer = self.settings.issuer
        try:
            found = self._json(Request(f"{issuer.rstrip('/')}/.well-known/openid-configuration"))
        except OidcRefusedError as error:
            raise OidcError(str(error)) from None
        if found.get("issuer") != issuer:  # otherwise tokens of another issuer would be verified
            raise OidcError(
                f"--oidc-issuer {issuer}: the server there says that it is "
                f"{str(found.get('issuer'))[:200]!r}; give exactly that address"
            )
        with self._lock:
            if found.get("jwks_uri") != self._known.get("jwks_uri"):
                self._keys = None
            self._known, self._read_at = found, time.monotonic()
        return found

    def _json(self, request: Request) -> dict[str, Any]:
        """Raises OidcRefusedError for an answer with an error, OidcError if there is none."""
        where = request.full_url.partition("?")[0]
        try:
            with self._http.open(request, timeout=TIMEOUT_S) as answer:
                found = json.loads(answer.read(ANSWER_BYTES_MAX))
        except HTTPError as error:
            with error:
                raise OidcRefusedError(f"{where} answered {error.code}{_reason(error)}") from None
        except (OSError, HTTPException, ValueError, RecursionError) as error:
            raise OidcError(f"{where} does not answer as an issuer does: {error}") from None
        if not isinstance(found, dict):
            raise OidcError(f"{where} does not answer as an issuer does: no JSON object")
        return found


class TokenKeeper:
    """The access token of one session, renewed when it is about to expire."""

    def __init__(self, provider: Provider, granted: Granted) -> None:
        self._provider = provider
        self._granted = granted
        self._lock = threading.Lock()

    @property
    def is_due(self) -> bool:
        return time.monotonic() > self._granted.expires_at - RENEW_BEFORE_S

    def renew(self) -> None:
        """Raises OidcError when the login is over at the issuer, too.

        An issuer that does not answer is no reason to end a session while its token is valid.
        """
        with self._lock:
            if not self.is_due:
                return
            try:
                self._granted = self._provider.renew(self._granted)
            except OidcError as error:
                if time.monotonic() >= self._granted.expires_at:
                    raise
                if isinstance(error, OidcRefusedError) and self._granted.refresh_token is not None:
                    raise
                logger.info("a token is not renewed yet: %s", error)

    def token(self) -> str:
        """For a new connection to a broker. Raises OidcError."""
        if self.is_due:
            self.renew()
        return self._granted.access_token


def _is_token(value: object) -> bool:
    """Nothing that could end a SASL message or a header."""
    return (
        isinstance(value, str)
        and 0 < len(value) <= TOKEN_CHARS_MAX
        and value.isascii()
        and value.isprintable()
        and " " not in value
    )


def _reason(error: HTTPError) -> str:
    """The issuer's error code (RFC 6749, 5.2), and nothing else of its answer."""
    try:
        code = json.loads(error.read(ANSWER_BYTES_MAX)).get("error")
    except (OSError, HTTPException, ValueError, AttributeError, RecursionError):
        return ""
    known = isinstance(code, str) and len(code) < 100 and code.isascii() and code.isprintable()
    return f": {code}" if known else ""
