"""Old TLS versions, renegotiation, providers that rotate keys, open listeners, users' quotas."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import jwt
import pytest
from confluent_kafka import KafkaException, Producer
from cryptography.hazmat.primitives.asymmetric import rsa

from broker_tests.conftest import StartBroker
from broker_tests.security.strangers import log_in
from broker_tests.security.test_sasl import login, sasl_settings
from broker_tests.security.tls_support import (
    PASSWORD,
    Authority,
    client,
    listener,
    tls_settings,
    trusting,
)
from odradek_protocol.client import ApiKey, Struct
from odradek_testkit.engines import on_apache
from odradek_testkit.stranger import StrangerConnection

pytestmark = pytest.mark.skipif(on_apache(), reason="settings and logs of our broker")


@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1"])
def test_old_versions_of_tls_are_refused(
    start_broker: StartBroker, tmp_path: Path, version: str
) -> None:
    """The client offers nothing newer, with ciphers that its own library would not allow."""
    authority = Authority.make(tmp_path / "tls")
    broker = start_broker(listener("SSL", **tls_settings(authority, authority.issue("server"))))
    context = ssl.create_default_context(cafile=str(authority.trusted()))
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    with (
        socket.create_connection(("127.0.0.1", broker.port), 20) as raw,
        pytest.raises(ssl.SSLError, match=r"(?i)alert protocol version"),
    ):
        context.wrap_socket(raw, server_hostname="localhost")
    with client(broker.bootstrap, trusting(authority)) as kafka:
        assert kafka.metadata().brokers


def test_renegotiation_is_refused(start_broker: StartBroker, tmp_path: Path) -> None:
    authority = Authority.make(tmp_path / "tls")
    broker = start_broker(listener("SSL", **tls_settings(authority, authority.issue("server"))))
    command = ["openssl", "s_client", "-connect", broker.bootstrap, "-tls1_2"]
    done = subprocess.run(
        [*command, "-CAfile", str(authority.trusted())],
        input=b"R\n",
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert b"Verify return code: 0 (ok)" in done.stdout
    assert b"RENEGOTIATING" in done.stderr + done.stdout
    assert b"no renegotiation" in done.stderr
    with client(broker.bootstrap, trusting(authority)) as kafka:
        assert kafka.metadata().brokers


class Provider:
    """An identity provider on loopback that serves its public key over HTTP."""

    def __init__(self) -> None:
        self.rotate("one")
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(provider.jwks)

            def log_message(self, *_: object) -> None:
                """Not to the output of the test."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/jwks"

    def rotate(self, kid: str) -> None:
        self.kid = kid
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        jwk = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key()))
        key = jwk | {"kid": kid, "use": "sig", "alg": "RS256"}
        self.jwks = json.dumps({"keys": [key]}).encode()

    def token(self) -> tuple[str, float]:
        expires = time.time() + 600
        claims = {"sub": "carol", "iss": "https://idp.example", "aud": "kafka", "exp": int(expires)}
        return jwt.encode(claims, self._key, "RS256", headers={"kid": self.kid}), expires


@contextmanager
def running(provider: Provider) -> Iterator[Provider]:
    thread = threading.Thread(target=provider.server.serve_forever)
    thread.start()
    try:
        yield provider
    finally:
        provider.server.shutdown()
        thread.join()
        provider.server.server_close()


def test_librdkafka_with_tokens_of_a_provider_that_rotates_its_key(
    start_broker: StartBroker,
) -> None:
    """1. librdkafka gets its token from a callback; 2. the provider changes its key: a new token is
    accepted, 3. one that was signed with the old key is not."""
    with running(Provider()) as provider:
        broker = start_broker(
            sasl_settings(
                "SASL_PLAINTEXT",
                "PLAIN,OAUTHBEARER",
                **{
                    "sasl.oauthbearer.jwks.endpoint.url": provider.url,
                    "sasl.oauthbearer.jwks.endpoint.refresh.ms": "50",
                    "sasl.oauthbearer.expected.issuer": "https://idp.example",
                    "sasl.oauthbearer.expected.audience": "kafka",
                },
            )
        )

        def connected(token: tuple[str, float]) -> Producer:
            return Producer(
                {
                    "bootstrap.servers": broker.bootstrap,
                    "security.protocol": "SASL_PLAINTEXT",
                    "sasl.mechanism": "OAUTHBEARER",
                    "oauth_cb": lambda _: token,
                    "log_level": 0,
                }
            )

        old = provider.token()
        assert connected(old).list_topics(timeout=20).brokers
        provider.rotate("two")
        assert connected(provider.token()).list_topics(timeout=20).brokers
        with pytest.raises(KafkaException):
            connected(old).list_topics(timeout=5)
        assert "the key 'one' of the token is not known" in broker.log()


def test_an_open_listener_beyond_loopback_is_one_line_in_the_log(start_broker: StartBroker) -> None:
    warning = "anyone who reaches"
    opened = {
        "listeners": "PLAINTEXT://0.0.0.0:0",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:0",
    }
    broker = start_broker(opened)
    lines = [line for line in broker.log().splitlines() if warning in line]
    assert len(lines) == 1
    assert "WARNING" in lines[0]
    assert "no authentication" in lines[0]
    assert warning not in start_broker({"listeners": "PLAINTEXT://127.0.0.1:0"}).log()


def test_a_users_quota_applies_to_connections_of_that_user(
    start_broker: StartBroker, topic: str
) -> None:
    """Also: while any quota exists, logins work; they are not throttled."""
    broker = start_broker(sasl_settings("SASL_PLAINTEXT", "PLAIN"))
    with StrangerConnection.plain(broker.port) as raw:
        log_in(raw, "broker", f"{PASSWORD}-b")
        entity = [Struct(entity_type="user", entity_name="alice")]
        ops = [Struct(key="producer_byte_rate", value=1000.0, remove=False)]
        entry = Struct(entity=entity, ops=ops)
        answer = raw.call(
            ApiKey.ALTER_CLIENT_QUOTAS, 1, Struct(entries=[entry], validate_only=False)
        )
        assert answer is not None
        assert answer.entries[0].error_code == 0

    def throttled(user: str, password: str) -> bool:
        events: list[object] = []
        producer = Producer(
            login("PLAIN", user, password)
            | {"bootstrap.servers": broker.bootstrap, "throttle_cb": events.append}
        )
        for _ in range(3):
            producer.produce(topic, b"x" * 8000)
            assert producer.flush(30) == 0
        producer.poll(1)
        return bool(events)

    assert not throttled("broker", f"{PASSWORD}-b")
    assert throttled("alice", PASSWORD)
