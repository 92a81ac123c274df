"""OAUTHBEARER: tokens that no provider makes, and providers that do not answer."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from broker_tests.conftest import StartBroker
from broker_tests.security.test_sasl import login, sasl_settings
from broker_tests.security.tls_support import PASSWORD
from odradek_broker.security.sasl.jwks import Jwks
from odradek_broker.security.sasl.oauthbearer import TokenChecks, TokenError, signed, unsecured
from odradek_protocol.client import ApiKey, ClientSettings, KafkaClient, Struct
from odradek_protocol.client.admin.topics import NewTopic, create_topics
from odradek_protocol.client.security import SecuritySettings
from odradek_testkit.engines import on_apache
from odradek_testkit.stranger import StrangerConnection

pytestmark = pytest.mark.skipif(on_apache(), reason="code and settings of our broker")

CHECKS = TokenChecks(None, (), 30)
NOW_MS = 1_800_000_000_000
STRANGERS = 20  # more than the event loop has threads
DEEP = b"[" * 100_000


@cache
def key() -> rsa.RSAPrivateKey:
    """Made by the first test that needs it: every test process imports this module."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def part(content: Any) -> str:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "ES256"},  # the key is RSA
        {"alg": "EdDSA"},
        {"alg": ["RS256"]},
        {"alg": "RS256", "kid": ["one"]},
        {"alg": "RS256", "crit": ["exp"]},
        DEEP,
        b"null",
        b"\xff",
    ],
)
def test_headers_that_no_provider_makes(header: Any) -> None:
    token = ".".join((part(header), part({"sub": "alice", "exp": NOW_MS}), part(b"x" * 256)))
    for verify in (signed(CHECKS, lambda _: key().public_key()), unsecured(CHECKS)):
        with pytest.raises(TokenError):
            verify(token, NOW_MS)


@pytest.mark.parametrize(
    "claims",
    [
        b'{"sub": "alice", "exp": 1e999}',
        b'{"sub": "alice", "exp": NaN}',
        b'{"sub": "alice", "exp": -Infinity}',
        {"sub": "alice", "exp": 10**400},
        {"sub": "alice", "exp": True},
        {"sub": ["alice"], "exp": NOW_MS / 1000 + 60},
        b'{"sub": "\\ud800", "exp": 1800000060}',
        [],
        DEEP,
    ],
)
def test_claims_that_no_provider_makes(claims: Any) -> None:
    header, content = part({"alg": "none"}), part(claims)
    with pytest.raises(TokenError):
        unsecured(CHECKS)(f"{header}.{content}.", NOW_MS)
    message = f"{part({'alg': 'RS256'})}.{content}".encode()
    signature = jwt.get_algorithm_by_name("RS256").sign(message, key())
    token = f"{message.decode()}.{part(signature)}"
    with pytest.raises(TokenError):
        signed(CHECKS, lambda _: key().public_key())(token, NOW_MS)


class SlowProvider:
    """Publishes its key; while `hangs` it sends a byte from time to time, and never the rest."""

    def __init__(self) -> None:
        self.hangs, self.asked, self.released = False, threading.Event(), threading.Event()
        provider = self
        jwk = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key().public_key()))
        content = json.dumps({"keys": [jwk | {"kid": "one", "alg": "RS256"}]}).encode()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                provider.asked.set()
                with suppress(OSError):
                    while provider.hangs and not provider.released.wait(1.0):
                        self.wfile.write(b" ")
                    self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Not to the output of the test."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/jwks"


@pytest.fixture
def provider() -> Iterator[SlowProvider]:
    made = SlowProvider()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.released.set()
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def test_a_provider_that_hangs_holds_up_no_login_with_a_known_key(provider: SlowProvider) -> None:
    """1. A key is read. 2. Unknown keys make the broker ask again, and the provider hangs: the
    known key is still there at once. 3. The provider answers, and the key is still the same."""
    keys = Jwks(provider.url, refresh_ms=0)
    known = keys.key("one")
    provider.hangs = True
    provider.asked.clear()
    with ThreadPoolExecutor(STRANGERS) as strangers:
        asked = [strangers.submit(keys.key, f"made up {n}") for n in range(STRANGERS)]
        provider.asked.wait()
        assert keys.key("one") is known
        assert not all(one.done() for one in asked)
        provider.released.set()
        for one in asked:
            with pytest.raises(TokenError, match="is not known"):
                one.result()
    assert keys.key("one").public_numbers() == known.public_numbers()


def test_logins_that_wait_for_a_provider_hold_up_nothing_else(
    start_broker: StartBroker, provider: SlowProvider
) -> None:
    """Strangers send tokens, and the provider never answers. The metadata log, which is written in
    threads, goes on: a topic is created."""
    provider.hangs = True
    url = {"sasl.oauthbearer.jwks.endpoint.url": provider.url}
    broker = start_broker(sasl_settings("SASL_PLAINTEXT", "PLAIN,OAUTHBEARER", **url))
    token = f"{part({'alg': 'RS256', 'kid': 'two'})}.{part({})}.{part(b'x')}"
    with flood(broker.port, f"n,,\x01auth=Bearer {token}\x01\x01".encode()):
        provider.asked.wait()
        security = SecuritySettings.from_properties(login("PLAIN", "alice", PASSWORD))
        with KafkaClient(broker.bootstrap, ClientSettings(security=security)) as client:
            assert not create_topics(client, [NewTopic("orders", 1, 1)])
            assert "orders" in client.metadata().topics
        provider.released.set()


@contextmanager
def flood(port: int, message: bytes) -> Iterator[None]:
    """Strangers that log in with the message at the same time, and wait for the answer."""
    connections = [StrangerConnection.plain(port) for _ in range(STRANGERS)]
    request = Struct(auth_bytes=message)
    with ThreadPoolExecutor(STRANGERS) as threads:
        for one in connections:
            one.call(ApiKey.SASL_HANDSHAKE, 1, Struct(mechanism="OAUTHBEARER"))
            threads.submit(one.call, ApiKey.SASL_AUTHENTICATE, 2, request)
        yield
    for one in connections:
        one.close()
