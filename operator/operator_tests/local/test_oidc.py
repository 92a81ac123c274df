"""A listener with tokens of an identity provider (OpenID Connect): a real issuer, made here.

The issuer serves its keys (JWKS) and a token endpoint for client credentials. A KafkaUser of type
external has the rights of the token's subject.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa

from odradek_protocol.client import ClientError, ClientSettings, KafkaClient
from odradek_protocol.client.security import SecuritySettings
from odradek_testkit.engines import kafka_jars
from operator_tests.local.local import KEY, Local

AUDIENCE = "kafka"


class Issuer:
    """Signs tokens for one client, and publishes the keys that it signs with."""

    def __init__(self) -> None:
        self.secret = "secret-of-robot"
        self.address = ""
        self.keys = {"first": rsa.generate_private_key(public_exponent=65537, key_size=2048)}
        self.signs_with = "first"
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def jwks_url(self) -> str:
        return f"{self.address}/keys"

    def token(self, audience: str = AUDIENCE, issuer: str = "") -> str:
        now = int(time.time())
        claims = {"sub": "robot", "iss": issuer or self.address, "aud": audience,
                  "iat": now, "exp": now + 600}  # fmt: skip
        key = self.keys[self.signs_with]
        return jwt.encode(claims, key, "RS256", headers={"kid": self.signs_with})

    async def _keys(self, _: web.Request) -> web.Response:
        found = []
        for name, key in self.keys.items():
            public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
            found.append({**public, "kid": name, "use": "sig", "alg": "RS256"})
        return web.json_response({"keys": found})

    async def _token(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization", "").removeprefix("Basic ") == "":
            return web.Response(status=401)
        return web.json_response({"access_token": self.token(), "expires_in": 600})

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._start())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._runner.cleanup())
        self._loop.close()

    async def _start(self) -> None:
        app = web.Application()
        app.router.add_get("/keys", self._keys)
        app.router.add_post("/token", self._token)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.address = f"http://{host}:{port}"

    def __enter__(self) -> Issuer:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as running:
        yield running


@pytest.fixture(params=["embedded", pytest.param("apache", marks=pytest.mark.java)])
def local(
    request: pytest.FixtureRequest,
    issuer: Issuer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Local]:
    if request.param == "apache":
        monkeypatch.setenv("ODRADEK_KAFKA_JARS", str(kafka_jars()))
    oauth = {"jwksUrl": issuer.jwks_url, "issuer": issuer.address, "audience": AUDIENCE}
    listener = {"name": "tokens", "port": 9092, "tls": True}
    listener["authentication"] = {"type": "oauth", "oauth": oauth}
    spec = {"engine": request.param, "brokers": 1, "security": "strict", "listeners": [listener]}
    with Local(tmp_path, **spec) as running:
        running.topic("orders", partitions=1)
        running.topic("hidden", partitions=1)
        acls = [{"resource": {"type": "topic", "name": "orders"}, "operations": ["read"]}]
        running.user("robot", authentication={"type": "external"}, acls=acls)
        running.settle()
        yield running


def connect(local: Local, token_file: Path) -> KafkaClient:
    secret = local.state / "secrets" / "default" / "robot"
    settings = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(secret / "ca.crt"),
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"file://{token_file}",
    }
    bootstrap = (secret / "bootstrap.servers").read_text()
    client = ClientSettings(security=SecuritySettings.from_properties(settings))
    return KafkaClient(bootstrap, client)


def test_tokens_of_the_issuer_and_no_others(local: Local, issuer: Issuer, tmp_path: Path) -> None:
    """A token logs in as its subject; one of another issuer, audience or key does not."""
    token = tmp_path / "token"
    token.write_text(issuer.token())

    def topics() -> set[str]:
        with connect(local, token) as client:
            return set(client.metadata().topics)

    local.wait_until(lambda: topics() == {"orders"}, "it sees its topic and no other")
    for wrong in (
        issuer.token(audience="other"),
        issuer.token(issuer="https://elsewhere.example"),
        jwt.encode({"sub": "robot"}, "x" * 32, "HS256"),
        jwt.encode(
            jwt.decode(issuer.token(), options={"verify_signature": False}),
            rsa.generate_private_key(public_exponent=65537, key_size=2048),
            "RS256",
            headers={"kid": "first"},
        ),
    ):
        token.write_text(wrong)
        with pytest.raises(ClientError):
            topics()
    assert local.runtime.report.clusters[KEY].users["default/robot"].principal == "User:robot"
