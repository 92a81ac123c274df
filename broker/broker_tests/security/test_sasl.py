"""SASL listeners: logins of real clients, and attacks on them, against a broker process."""

from __future__ import annotations

import base64
import hmac
import json
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import jwt
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.asymmetric import rsa

from broker_tests.conftest import StartBroker
from broker_tests.security.tls_support import (
    JAAS_PLAIN,
    PASSWORD,
    Authority,
    client,
    listener,
    tls_settings,
    trusting,
)
from odradek_protocol.client import ApiKey, Struct
from odradek_protocol.client.errors import AuthenticationError, ClientError, NoBrokerError
from odradek_protocol.security.sasl_client import unsecured_token
from odradek_testkit.engines import Server, on_apache
from odradek_testkit.stranger import StrangerConnection
from odradek_testkit.waiting import wait_until

pytestmark = pytest.mark.skipif(on_apache(), reason="settings and logs of our broker")

REFUSED = (AuthenticationError, NoBrokerError, ClientError)


def sasl_settings(protocol: str, mechanism: str, **more: str) -> dict[str, str]:
    name = f"listener.name.{protocol.lower()}."
    return listener(
        protocol,
        **{
            "sasl.enabled.mechanisms": mechanism,
            "sasl.mechanism.inter.broker.protocol": mechanism.split(",")[0],
            f"{name}plain.sasl.jaas.config": JAAS_PLAIN,
            **more,
        },
    )


def login(mechanism: str, user: str, password: str, **more: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        **more,
    }


def add_scram(broker: Server, user: str, password: str) -> None:
    """Through the admin API, as `kafka-configs --alter --add-config` does."""
    from confluent_kafka.admin import (
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    admin = AdminClient(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": PASSWORD,
        }
    )
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        done = admin.alter_user_scram_credentials(
            [
                UserScramCredentialUpsertion(
                    user, ScramCredentialInfo(mechanism, 4096), password.encode()
                )
            ]
        )
        done[user].result(20)


def test_plain_over_tls_and_wrong_passwords(start_broker: StartBroker, tmp_path: Path) -> None:
    authority = Authority.make(tmp_path / "tls")
    stores = tls_settings(authority, authority.issue("server"))
    broker = start_broker(sasl_settings("SASL_SSL", "PLAIN", **stores))
    properties = trusting(authority, "SASL_SSL") | {
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="alice" password="{PASSWORD}";',
    }
    with client(broker.bootstrap, properties) as kafka:
        assert kafka.metadata().brokers
    for user, password in (("alice", "wrong"), ("nobody", PASSWORD)):
        bad = trusting(authority, "SASL_SSL") | login("PLAIN", user, password)
        bad["security.protocol"] = "SASL_SSL"
        with pytest.raises(REFUSED, match="Invalid username or password"):
            client(broker.bootstrap, bad).metadata()
    assert PASSWORD not in broker.log()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_of_two_implementations(start_broker: StartBroker, mechanism: str) -> None:
    broker = start_broker(sasl_settings("SASL_PLAINTEXT", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"))
    add_scram(broker, "bob", "secret-of-bob")
    with client(broker.bootstrap, login(mechanism, "bob", "secret-of-bob")) as kafka:
        assert kafka.metadata().brokers
    librdkafka = AdminClient(
        {**login(mechanism, "bob", "secret-of-bob"), "bootstrap.servers": broker.bootstrap}
    )
    assert librdkafka.list_topics(timeout=20).brokers
    for user in ("bob", "nobody"):
        with pytest.raises(REFUSED, match="invalid credentials with SASL mechanism"):
            client(broker.bootstrap, login(mechanism, user, "wrong")).metadata()


def test_an_unknown_mechanism_is_answered_with_those_that_are_offered(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(sasl_settings("SASL_PLAINTEXT", "PLAIN"))
    with pytest.raises(REFUSED, match="it offers PLAIN"):
        client(broker.bootstrap, login("SCRAM-SHA-256", "alice", PASSWORD)).metadata()


# --- OAUTHBEARER ---------------------------------------------------------------------------------


def provider(directory: Path) -> tuple[rsa.RSAPrivateKey, str]:
    """A key, and the URL of its public half."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    jwk = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
    path = directory / "jwks.json"
    path.write_text(json.dumps({"keys": [jwk | {"kid": "one", "use": "sig", "alg": "RS256"}]}))
    return key, path.as_uri()


def signed_with_secret(claims: dict[str, object], secret: str) -> str:
    """HS256 with the public key as its secret, which a verifier that trusts the header accepts."""

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    head = part(json.dumps({"alg": "HS256", "kid": "one"}).encode())
    message = f"{head}.{part(json.dumps(claims).encode())}"
    return f"{message}.{part(hmac.digest(secret.encode(), message.encode(), 'sha256'))}"


def test_tokens(start_broker: StartBroker, tmp_path: Path) -> None:
    key, url = provider(tmp_path)
    broker = start_broker(
        sasl_settings(
            "SASL_PLAINTEXT",
            "PLAIN,OAUTHBEARER",
            **{
                "sasl.oauthbearer.jwks.endpoint.url": url,
                "sasl.oauthbearer.expected.issuer": "https://idp.example",
                "sasl.oauthbearer.expected.audience": "kafka",
            },
        )
    )
    now = int(time.time())
    good = {"sub": "carol", "iss": "https://idp.example", "aud": "kafka", "exp": now + 600}

    def attempt(token: str) -> None:
        file = tmp_path / "token"
        file.write_text(token)
        properties = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
        }
        with client(broker.bootstrap, properties) as kafka:
            kafka.metadata()

    def signed(claims: dict[str, object], with_key: rsa.RSAPrivateKey = key) -> str:
        return jwt.encode(claims, with_key, "RS256", headers={"kid": "one"})

    attempt(signed(good))
    forger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())
    refused = {
        "expired": signed(good | {"exp": now - 600}),
        "not yet valid": signed(good | {"nbf": now + 600}),
        "another audience": signed(good | {"aud": "other"}),
        "another issuer": signed(good | {"iss": "https://evil.example"}),
        "without a subject": signed({k: v for k, v in good.items() if k != "sub"}),
        "without an expiry": signed({k: v for k, v in good.items() if k != "exp"}),
        "forged": signed(good, forger),
        "alg none": unsecured_token("carol", now),
        "signed with the public key": signed_with_secret(good, public),
        "truncated": signed(good)[:-10],
    }
    for what, token in refused.items():
        try:
            attempt(token)
        except REFUSED:
            continue
        pytest.fail(f"a token was accepted that is {what}")
    assert signed(good)[:40] not in broker.log()


def test_unsecured_tokens_only_if_enabled(start_broker: StartBroker) -> None:
    broker = start_broker(
        sasl_settings(
            "SASL_PLAINTEXT",
            "OAUTHBEARER",
            **{"odradek.sasl.oauthbearer.unsecured.enable": "true"},
        )
    )
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer."
        'OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="dave";',
    }
    with client(broker.bootstrap, properties) as kafka:
        assert kafka.metadata().brokers


# --- attacks, byte by byte -----------------------------------------------------------------------


Connect = Callable[[Server], StrangerConnection]


@pytest.fixture
def connect() -> Iterator[Connect]:
    with ExitStack() as stack:
        yield lambda broker: stack.enter_context(StrangerConnection.plain(broker.port))


def scram_first(raw: StrangerConnection, message: bytes) -> Struct | None:
    handshake = raw.call(ApiKey.SASL_HANDSHAKE, 1, Struct(mechanism="SCRAM-SHA-256"))
    assert handshake is not None
    assert handshake.error_code == 0
    return raw.call(ApiKey.SASL_AUTHENTICATE, 2, Struct(auth_bytes=message))


def test_nothing_is_served_before_the_login(start_broker: StartBroker, connect: Connect) -> None:
    broker = start_broker(sasl_settings("SASL_PLAINTEXT", "PLAIN,SCRAM-SHA-256"))
    assert connect(broker).call(ApiKey.METADATA, 1, Struct(topics=None)) is None
    versions = connect(broker).call(ApiKey.API_VERSIONS, 0, Struct())
    assert versions is not None
    assert {17, 36} <= {one.api_key for one in versions.api_keys}
    in_the_middle = connect(broker)
    in_the_middle.call(ApiKey.SASL_HANDSHAKE, 1, Struct(mechanism="PLAIN"))
    assert in_the_middle.call(ApiKey.METADATA, 1, Struct(topics=None)) is None
    without_handshake = connect(broker)
    token = Struct(auth_bytes=f"\0alice\0{PASSWORD}".encode())
    assert without_handshake.call(ApiKey.SASL_AUTHENTICATE, 2, token) is None


def test_a_huge_frame_before_the_login_is_refused(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = start_broker(sasl_settings("SASL_PLAINTEXT", "PLAIN"))
    assert connect(broker).send(struct.pack(">ihhi", 50_000_000, 36, 2, 1)) is None
    wait_until(lambda: "sasl.server.max.receive.size" in broker.log())


def test_replayed_truncated_and_reused_scram_messages(
    start_broker: StartBroker, connect: Connect
) -> None:
    """1. a good login is recorded; 2. its final message is replayed on a new connection, where the
    server's nonce is another; 3. messages that are cut off or changed are refused."""
    from odradek_protocol.security.scram import ScramClient

    broker = start_broker(sasl_settings("SASL_PLAINTEXT", "PLAIN,SCRAM-SHA-256"))
    add_scram(broker, "bob", "secret-of-bob")
    good = ScramClient("SCRAM-SHA-256", "bob", "secret-of-bob", nonce="fixed-nonce")
    raw = connect(broker)
    answer = scram_first(raw, good.first())
    assert answer is not None
    final = good.final(answer.auth_bytes)
    done = raw.call(ApiKey.SASL_AUTHENTICATE, 2, Struct(auth_bytes=final))
    assert done is not None
    good.finish(done.auth_bytes)
    assert raw.call(ApiKey.METADATA, 1, Struct(topics=None)) is not None

    replay = connect(broker)
    again = scram_first(replay, good.first())
    assert again is not None
    assert again.auth_bytes != answer.auth_bytes, "the server's nonce is new for each login"
    for bad in (final, final[:-4], final.replace(b"c=biws", b"c=cD0="), b"", b"\xff" * 20):
        attempt = connect(broker)
        scram_first(attempt, good.first())
        failed = attempt.call(ApiKey.SASL_AUTHENTICATE, 2, Struct(auth_bytes=bad))
        assert failed is None or failed.error_code == 58
        assert attempt.call(ApiKey.METADATA, 1, Struct(topics=None)) is None


@pytest.mark.timeout(120)
def test_a_message_that_is_hard_to_read_holds_up_nobody(
    start_broker: StartBroker, connect: Connect
) -> None:
    """The attack: 200 extensions and a comma, which one expression could match in 2**200 ways."""
    broker = start_broker(sasl_settings("SASL_PLAINTEXT", "PLAIN,SCRAM-SHA-256"))
    answer = scram_first(connect(broker), b"n,,n=bob,r=abc" + b",x=1" * 200 + b",")
    assert answer is not None
    assert answer.error_code == 58
    with client(broker.bootstrap, login("PLAIN", "alice", PASSWORD)) as kafka:
        assert kafka.metadata().brokers


def test_unknown_users_get_a_salt_too(start_broker: StartBroker, connect: Connect) -> None:
    broker = start_broker(sasl_settings("SASL_PLAINTEXT", "SCRAM-SHA-256"))
    salts = []
    for _ in range(2):
        answer = scram_first(connect(broker), b"n,,n=ghost,r=abc")
        assert answer is not None
        assert answer.error_code == 0
        salts.append(answer.auth_bytes.split(b",")[1])
    assert salts[0] == salts[1], "the same each time, as that of a real user"


def test_tokens_without_headers_after_handshake_v0(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = start_broker(sasl_settings("SASL_PLAINTEXT", "PLAIN"))
    raw = connect(broker)
    raw.call(ApiKey.SASL_HANDSHAKE, 0, Struct(mechanism="PLAIN"))
    assert raw.frame(f"\0alice\0{PASSWORD}".encode()) == b""
    assert raw.call(ApiKey.METADATA, 1, Struct(topics=None)) is not None


def test_a_login_that_does_not_expire_is_not_repeated(
    start_broker: StartBroker, connect: Connect
) -> None:
    """Kafka answers ILLEGAL_SASL_STATE and keeps the connection (found by `make acl-diff`)."""
    raw = connect(start_broker(sasl_settings("SASL_PLAINTEXT", "PLAIN")))
    token = Struct(auth_bytes=f"\0alice\0{PASSWORD}".encode())
    raw.call(ApiKey.SASL_HANDSHAKE, 1, Struct(mechanism="PLAIN"))
    raw.call(ApiKey.SASL_AUTHENTICATE, 2, token)
    handshake = raw.call(ApiKey.SASL_HANDSHAKE, 1, Struct(mechanism="PLAIN"))
    assert handshake is not None
    assert (handshake.error_code, handshake.mechanisms) == (34, [])
    authenticate = raw.call(ApiKey.SASL_AUTHENTICATE, 2, token)
    assert authenticate is not None
    assert authenticate.error_code == 34
    assert raw.call(ApiKey.METADATA, 1, Struct(topics=None)) is not None


def test_sessions_end_unless_the_client_authenticates_again(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = start_broker(
        sasl_settings("SASL_PLAINTEXT", "PLAIN", **{"connections.max.reauth.ms": "1000"})
    )
    raw = connect(broker)
    token = Struct(auth_bytes=f"\0alice\0{PASSWORD}".encode())
    raw.call(ApiKey.SASL_HANDSHAKE, 1, Struct(mechanism="PLAIN"))
    answer = raw.call(ApiKey.SASL_AUTHENTICATE, 2, token)
    assert answer is not None
    assert answer.session_lifetime == 1000
    raw.call(ApiKey.SASL_HANDSHAKE, 1, Struct(mechanism="PLAIN"))
    again = raw.call(ApiKey.SASL_AUTHENTICATE, 2, token)
    assert again is not None
    assert again.error_code == 0
    other_user = connect(broker)
    other_user.call(ApiKey.SASL_HANDSHAKE, 1, Struct(mechanism="PLAIN"))
    other_user.call(ApiKey.SASL_AUTHENTICATE, 2, token)
    other_user.call(ApiKey.SASL_HANDSHAKE, 1, Struct(mechanism="PLAIN"))
    broker_token = Struct(auth_bytes=f"\0broker\0{PASSWORD}-b".encode())
    changed = other_user.call(ApiKey.SASL_AUTHENTICATE, 2, broker_token)
    assert changed is not None
    assert changed.error_code == 58

    def expired() -> bool:
        return raw.call(ApiKey.METADATA, 1, Struct(topics=None)) is None

    wait_until(expired)


def test_librdkafka_reauthenticates_and_loses_nothing(
    start_broker: StartBroker, topic: str
) -> None:
    broker = start_broker(
        sasl_settings("SASL_PLAINTEXT", "PLAIN", **{"connections.max.reauth.ms": "2000"})
    )
    errors: list[KafkaException] = []
    producer = Producer(
        login("PLAIN", "alice", PASSWORD)
        | {"bootstrap.servers": broker.bootstrap, "error_cb": errors.append}
    )
    delivered: list[object] = []
    until = time.monotonic() + 5
    while time.monotonic() < until:
        producer.produce(topic, b"x", on_delivery=lambda error, _: delivered.append(error))
        producer.poll(0.05)
    assert producer.flush(20) == 0
    assert delivered
    assert not any(delivered)
