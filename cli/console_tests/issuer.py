"""An identity provider for tests: OpenID Connect's code flow with PKCE, and an attacker's lies.

with Issuer() as issuer:
    issuer.user = "alice"               # who is logged in at the issuer
    issuer.claims = {"aud": "other"}    # changes of the next ID tokens
    issuer.reports                      # what was asked of the token endpoint

The checks of a real one are made: registered redirect, code once, verifier, client secret.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT, SECRET, AUDIENCE = "console", "hidden-client-secret", "kafka"
LIFETIME_S = 600


def new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass
class Grant:
    user: str
    nonce: str
    challenge: str
    redirect_uri: str


@dataclass
class Issuer:
    user: str = "alice"
    claims: dict[str, Any] = field(default_factory=dict)  # of ID tokens; None removes one
    access_claims: dict[str, Any] = field(default_factory=dict)
    answer: dict[str, Any] = field(default_factory=dict)  # changes of the token endpoint's answer
    document: dict[str, Any] = field(default_factory=dict)  # changes of the discovery document
    lifetime_s: int = LIFETIME_S
    refreshes: bool = True
    revoked: bool = False
    forge: Callable[[dict[str, Any]], str] | None = None  # ID tokens with these claims
    key: rsa.RSAPrivateKey = field(default_factory=new_key)
    signs_with: rsa.RSAPrivateKey | None = None
    reports: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._codes: dict[str, Grant] = {}
        self._refresh: dict[str, str] = {}
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.get(self)

            def do_POST(self) -> None:
                issuer.post(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # -- requests ----------------------------------------------------------------------------------

    def get(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path == "/.well-known/openid-configuration":
            self._json(handler, self._discovery())
        elif parts.path == "/keys":
            public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
            self._json(handler, {"keys": [{**public, "kid": "one", "use": "sig"}]})
        elif parts.path == "/authorize":
            handler.send_response(302)
            handler.send_header("Location", self.authorize(query))
            handler.end_headers()
        else:
            handler.send_error(404)

    def authorize(self, query: dict[str, str]) -> str:
        """The user agrees: back to the client."""
        assert query["client_id"] == CLIENT
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(16)
        self._codes[code] = Grant(
            self.user, query["nonce"], query["code_challenge"], query["redirect_uri"]
        )
        back = {"code": code, "state": query["state"], "iss": self.url}
        return f"{query['redirect_uri']}?{urlencode(back)}"

    def post(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"])).decode()
        fields = {name: values[0] for name, values in parse_qs(body).items()}
        self.reports.append(fields)
        basic = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if handler.headers.get("Authorization") != f"Basic {basic}":
            self._json(handler, {"error": "invalid_client"}, 401)
            return
        if fields["grant_type"] == "refresh_token":
            user = self._refresh.pop(fields["refresh_token"], None)
            if user is None or self.revoked:
                self._json(handler, {"error": "invalid_grant"}, 400)
            else:
                self._json(handler, self._tokens(user, None))
            return
        grant = self._codes.pop(fields["code"], None)
        digest = hashlib.sha256(fields["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if (
            grant is None
            or grant.challenge != challenge
            or grant.redirect_uri != fields["redirect_uri"]
        ):
            self._json(handler, {"error": "invalid_grant"}, 400)
            return
        self._json(handler, self._tokens(grant.user, grant.nonce))

    @staticmethod
    def _json(handler: BaseHTTPRequestHandler, value: Any, status: int = 200) -> None:
        body = json.dumps(value).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    # -- tokens ------------------------------------------------------------------------------------

    def _discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            **self.document,
        }

    def _tokens(self, user: str, nonce: str | None) -> dict[str, Any]:
        now = int(time.time())
        common = {"iss": self.url, "sub": user, "iat": now, "exp": now + self.lifetime_s}
        found: dict[str, Any] = {
            "access_token": self.signed({**common, "aud": AUDIENCE, **self.access_claims}),
            "token_type": "Bearer",
            "expires_in": self.lifetime_s,
        }
        if nonce is not None:
            claims = {**common, "aud": CLIENT, "nonce": nonce, **self.claims}
            found["id_token"] = (self.forge or self.signed)(claims)
        if self.refreshes:
            found["refresh_token"] = secrets.token_urlsafe(16)
            self._refresh[found["refresh_token"]] = user
        return {**found, **self.answer}

    def signed(self, claims: dict[str, Any]) -> str:
        kept = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(kept, self.signs_with or self.key, "RS256", headers={"kid": "one"})
