"""Settings of OAUTHBEARER, from a broker's properties to the decision about a token."""

from __future__ import annotations

import json
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from odradek_broker.metadata.image import MetadataImage
from odradek_broker.runtime.settings import Settings
from odradek_broker.security.broker_login import Credentials
from odradek_broker.security.listener import ListenerSecurity, listener_security
from odradek_broker.security.sasl.mechanism import Done
from odradek_protocol.security.errors import SecurityError
from odradek_protocol.security.sasl_client import unsecured_token

NOW_S = 1_800_000_000
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PREFIX = "listener.name.sasl_plaintext.oauthbearer."


def listener(**settings: str) -> ListenerSecurity:
    made = Settings(
        {
            "log.dirs": "unused",
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            **settings,
        }
    )
    return listener_security(made.listeners.bound[0], made, Credentials(MetadataImage))


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, str]:
    """The setting that names the keys of the identity provider."""
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key()))
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [{**public, "kid": "one", "use": "sig"}]}))
    return {"sasl.oauthbearer.jwks.endpoint.url": path.as_uri()}


def token(**claims: object) -> str:
    all_claims = {"sub": "alice", "exp": NOW_S + 60, **claims}
    return jwt.encode(all_claims, KEY, algorithm="RS256", headers={"kid": "one"})


def log_in(security: ListenerSecurity, bearer: str) -> str | None:
    """The user, or None if the token is refused."""
    assert security.sasl is not None
    conversation = security.sasl.mechanisms["OAUTHBEARER"]()
    message = f"n,,\x01auth=Bearer {bearer}\x01\x01".encode()
    outcome = conversation.step(message, NOW_S * 1000)
    return outcome.user if isinstance(outcome, Done) else None


def test_the_claim_that_names_the_user(keys: dict[str, str]) -> None:
    security = listener(**keys, **{f"{PREFIX}sasl.oauthbearer.sub.claim.name": "client_id"})
    assert log_in(security, token(client_id="billing")) == "billing"
    assert log_in(security, token()) is None, "sub is another claim"
    assert log_in(listener(**keys), token(client_id="billing")) == "alice"


@pytest.mark.parametrize(("skew_s", "accepted"), [("0", False), ("10", False), ("11", True)])
def test_the_skew_of_clocks(keys: dict[str, str], skew_s: str, accepted: bool) -> None:
    security = listener(**keys, **{"sasl.oauthbearer.clock.skew.seconds": skew_s})
    expired = token(exp=NOW_S - 10)
    assert (log_in(security, expired) == "alice") is accepted
    early = token(nbf=NOW_S + 11)
    assert (log_in(security, early) == "alice") is accepted


def test_issuer_and_audience(keys: dict[str, str]) -> None:
    security = listener(
        **keys,
        **{
            "sasl.oauthbearer.expected.issuer": "https://id.example",
            "sasl.oauthbearer.expected.audience": "kafka, other",
        },
    )
    good = {"iss": "https://id.example", "aud": ["kafka"]}
    assert log_in(security, token(**good)) == "alice"
    for bad in ({"iss": "https://evil.example"}, {"aud": ["shop"]}, {"iss": None}, {"aud": None}):
        claims = {name: value for name, value in {**good, **bad}.items() if value is not None}
        assert log_in(security, token(**claims)) is None, bad


def test_tokens_without_a_signature_are_off_by_default(keys: dict[str, str]) -> None:
    unsigned = unsecured_token("mallory", NOW_S)
    assert log_in(listener(**keys), unsigned) is None
    with pytest.raises(SecurityError, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url must be set"):
        listener()
    enabled = {"odradek.sasl.oauthbearer.unsecured.enable": "true"}
    assert log_in(listener(**enabled), unsigned) == "mallory"
    assert log_in(listener(**keys, **enabled), unsigned) is None, "keys of a provider win"


@pytest.mark.parametrize("kid", ["k" * 10_000, "line\nbreak"])
def test_a_refused_token_takes_little_of_the_log(
    keys: dict[str, str], kid: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The attack: tokens whose header fills the log, half a megabyte with each login."""
    caplog.set_level("INFO", "odradek_broker.security.listener")
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    claims = {"sub": "alice", "exp": NOW_S + 60}
    forged = jwt.encode(claims, stranger, algorithm="RS256", headers={"kid": kid})
    assert log_in(listener(**keys), forged) is None
    assert len(caplog.messages) == 1
    assert len(caplog.messages[0]) < 300
    assert "\n" not in caplog.messages[0]
