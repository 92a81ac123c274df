r"""OAUTHBEARER (RFC 7628): a JWT of an identity provider.

    n,[a=<user>],\x01auth=Bearer <token>\x01[name=value\x01…]\x01

`TokenVerifier` checks signature (keys from `jwks.py`), issuer, audience, times and subject; PyJWT
does the cryptography. A refused token is answered with a JSON reason, which the client confirms
with one byte before the login fails, as the RFC says. Unsigned tokens are accepted only by a
verifier that is made for them: `unsecured`.
"""

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from odradek_broker.security.sasl.mechanism import Conversation, Done, SaslError

_HEADER = re.compile(rb"n,(?:a=([^,]*))?,")
_PAIR = re.compile(rb"([A-Za-z]+)=(.*)", re.DOTALL)
_AUTH = re.compile(rb"[Bb]earer +([-A-Za-z0-9._~+/=]+)")
ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"),
)
# Of `exp`, `nbf` and `iat`: later times are no dates (year 33658) and do not fit into the protocol.
TIME_MAX_S = 1e12
INVALID_TOKEN = b'{"status":"invalid_token"}'


@dataclass(frozen=True)
class TokenChecks:
    issuer: str | None
    audience: tuple[str, ...]
    skew_s: int
    subject_claim: str = "sub"
    scope_claim: str = "scope"


class TokenError(Exception):
    """A token that is not accepted; for the log of the broker, not for the client."""


@dataclass(frozen=True)
class Accepted:
    user: str
    expires_at_ms: int


Verify = Callable[[str, int], Accepted]


class OauthBearer(Conversation):
    def __init__(self, verify: Verify, on_refused: Callable[[str], None], *, slow: bool) -> None:
        self._verify = verify
        self._on_refused = on_refused
        self._slow = slow
        self._refused = False

    @property
    def slow(self) -> bool:
        return self._slow

    def step(self, token: bytes, now_ms: int) -> bytes | Done:
        if self._refused:
            raise SaslError(INVALID_TOKEN.decode())
        asked_for, bearer = _parse(token)
        try:
            accepted = self._verify(bearer, now_ms)
        except TokenError as error:
            self._refused = True
            self._on_refused(str(error))
            return INVALID_TOKEN
        if asked_for and asked_for != accepted.user:
            raise SaslError(
                "Authentication failed: Client requested an authorization id that is different "
                "from the token's principal name"
            )
        return Done(accepted.user, b"", accepted.expires_at_ms)


def _parse(message: bytes) -> tuple[str, str]:
    """The user that is asked for, and the token. Raises SaslError.

    In steps that are linear in its length: strangers send half a megabyte, and an expression for
    all of it took minutes, in which nothing else ran.
    """
    header, _, rest = message.partition(b"\x01")
    found = _HEADER.fullmatch(header)
    pairs = [_PAIR.fullmatch(pair) for pair in rest[:-2].split(b"\x01")]
    values = [pair[2] for pair in pairs if pair is not None and pair[1] == b"auth"]
    auth = _AUTH.fullmatch(values[0]) if len(values) == 1 else None
    if found is None or auth is None or None in pairs or not rest.endswith(b"\x01\x01"):
        raise SaslError("Authentication failed: Invalid OAUTHBEARER client first message")
    return (found[1] or b"").decode(errors="replace"), auth[1].decode()


def signed(checks: TokenChecks, key_of: Callable[[str | None], Any]) -> Verify:
    """`key_of(kid)` is the public key; it raises TokenError if there is none."""
    import jwt

    options = {
        "require": ["exp", checks.subject_claim],
        "verify_aud": bool(checks.audience),
        "verify_iss": checks.issuer is not None,
        "verify_exp": False,  # with our own clock, below
        "verify_nbf": False,
        "verify_iat": False,
        "verify_sub": False,
    }

    def verify(token: str, now_ms: int) -> Accepted:
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in ALGORITHMS:
                raise TokenError(f"algorithm {header.get('alg')!r} is not accepted")
            claims = jwt.decode(
                token,
                key_of(header.get("kid")),
                algorithms=list(ALGORITHMS),
                audience=list(checks.audience) or None,
                issuer=checks.issuer,
                options=options,  # type: ignore[arg-type]  # a TypedDict in newer versions
            )
        except (jwt.PyJWTError, TypeError, ValueError, RecursionError) as error:
            # TypeError: the algorithm that the token names does not fit the key.
            raise TokenError(str(error)) from None
        return _accept(claims, checks, now_ms)

    return verify


def unsecured(checks: TokenChecks) -> Verify:
    """Tokens without a signature: only for tests, and only if explicitly enabled."""

    def verify(token: str, now_ms: int) -> Accepted:
        parts = token.split(".")
        try:
            header, claims = (json.loads(_base64(part)) for part in parts[:2])
        except (ValueError, TypeError, RecursionError):
            raise TokenError("malformed token") from None
        if len(parts) != 3 or parts[2] or not isinstance(header, dict):
            raise TokenError("an unsecured token has no signature")
        if header.get("alg") != "none" or not isinstance(claims, dict):
            raise TokenError("an unsecured token has the algorithm none")
        return _accept(claims, checks, now_ms)

    return verify


def _base64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _accept(claims: dict[str, Any], checks: TokenChecks, now_ms: int) -> Accepted:
    now_s, skew_s = now_ms / 1000, checks.skew_s
    expires_s = _number(claims, "exp")
    if expires_s is None:
        raise TokenError("the token has no expiry")
    if expires_s + skew_s <= now_s:
        raise TokenError("the token has expired")
    for name in ("nbf", "iat"):
        since_s = _number(claims, name)
        if since_s is not None and since_s - skew_s > now_s:
            raise TokenError(f"the token is not valid yet ({name})")
    user = claims.get(checks.subject_claim)
    if not isinstance(user, str) or not user.strip():
        raise TokenError(f"the token has no claim {checks.subject_claim}")
    if any("\ud800" <= letter <= "\udfff" for letter in user):
        raise TokenError(f"the token's claim {checks.subject_claim} is not Unicode")
    return Accepted(user, int(expires_s * 1000))


def _number(claims: dict[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenError(f"the token's claim {name} is not a number")
    if not abs(value) < TIME_MAX_S:  # nor NaN
        raise TokenError(f"the token's claim {name} is not a time")
    return float(value)
