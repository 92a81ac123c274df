"""Frames of unauthenticated clients, in process: none authenticates, none reaches a handler that it
must not, none raises anything but the errors that close a connection."""

from __future__ import annotations

import struct
from random import Random
from types import SimpleNamespace
from typing import Any, Never

import pytest

from odradek_broker.handlers.api_table import ApiTable
from odradek_broker.handlers.registry import build_apis
from odradek_broker.metadata.scram import ScramCredential
from odradek_broker.model.principal import ANONYMOUS
from odradek_broker.network.dispatcher import RAW_TOKEN, Dispatcher
from odradek_broker.runtime.metrics import Metrics
from odradek_broker.runtime.settings import Settings
from odradek_broker.security.authentication import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Authentication,
    SaslRules,
    State,
)
from odradek_broker.security.sasl.mechanism import SaslError
from odradek_broker.security.sasl.oauthbearer import OauthBearer, TokenError
from odradek_broker.security.sasl.plain import Plain
from odradek_broker.security.sasl.scram import Scram
from odradek_protocol.errors import DecodeError
from odradek_protocol.messages import api
from odradek_protocol.messages.struct import Struct

TOKENS = [
    b"\0alice\0guess",
    b"n,,n=alice,r=abcdef",
    b"c=biws,r=abcdefserver,p=" + b"QUFB" * 11,
    b"n,,\x01auth=Bearer a.b.c\x01\x01",
    b"",
    b"\x01",
]


def refuse(token: str, now_ms: int) -> Never:
    raise TokenError(f"{token} at {now_ms}")


def decoy(user: str) -> ScramCredential:
    return ScramCredential(b"s" * 24, bytes(len(user)), b"", 4096)


RULES = SaslRules(
    {
        "PLAIN": lambda: Plain({"alice": "a-secret-that-is-not-guessed"}),
        "SCRAM-SHA-256": lambda: Scram("SCRAM-SHA-256", lambda _: None, "server", decoy),
        "SCRAM-SHA-512": lambda: Scram("SCRAM-SHA-512", lambda _: None, "server", decoy),
        "OAUTHBEARER": lambda: OauthBearer(refuse, lambda _: None, slow=False),
    },
    {},
    0,
    524_288,
)


class Stranger:
    """Stands for a connection."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.authentication = Authentication(RULES, self._authenticated)
        self.listener = "SASL_SSL"
        self.handlers = dispatcher.served[self.listener]
        self.client_host = "10.0.0.1"
        self.principal = ANONYMOUS
        self.closed = ""

    def _authenticated(self, principal: object) -> Never:
        raise AssertionError(f"a stranger became {principal}")

    def close(self, reason: str) -> None:
        self.closed = reason


def valid_frame(rng: Random) -> bytes:
    key = rng.choice([API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE, SASL_AUTHENTICATE])
    requests: dict[int, tuple[range, Struct]] = {
        API_VERSIONS: (range(5), Struct()),
        SASL_HANDSHAKE: (range(2), Struct(mechanism=rng.choice([*RULES.mechanisms, "GSSAPI", ""]))),
        SASL_AUTHENTICATE: (range(3), Struct(auth_bytes=rng.choice(TOKENS))),
    }
    versions, request = requests[key]
    version = rng.choice(versions)
    header = api.request_header(key, version, rng.randrange(1 << 31), "fuzz")
    return header + api.encode_request(key, version, request)


def fuzzed(rng: Random) -> bytes:
    kind = rng.random()
    if kind < 0.4:
        return valid_frame(rng)
    if kind < 0.8:
        frame = bytearray(valid_frame(rng))
        for _ in range(rng.randint(1, 4)):
            frame[rng.randrange(len(frame))] = rng.randrange(256)
        return bytes(frame[: rng.randint(1, len(frame))] if rng.random() < 0.3 else frame)
    if kind < 0.9:
        return struct.pack(">hhi", rng.randrange(-2, 95), rng.randrange(-1, 18), 1) + rng.randbytes(
            rng.randrange(40)
        )
    return rng.randbytes(rng.randrange(8, 60))


def make_dispatcher(apis: ApiTable) -> Dispatcher:
    clock = SimpleNamespace(monotonic_ms=lambda: 0.0)
    settings = Settings(
        {"listeners": "SASL_SSL://:9093", "security.inter.broker.protocol": "SASL_SSL"}
    )
    broker: Any = SimpleNamespace(apis=apis, settings=settings, clock=clock, serves_clients=True)
    return Dispatcher(broker)


def attack(frames: int, seed: int) -> int:
    """How many frames reached one of the three APIs that are allowed before a login."""
    rng = Random(seed)
    dispatcher = make_dispatcher(build_apis(Metrics()))
    stranger = Stranger(dispatcher)
    reached = 0
    for _ in range(frames):
        if stranger.closed or rng.random() < 0.02:
            stranger = Stranger(dispatcher)
        frame = fuzzed(rng)
        connection: Any = stranger
        exchange = dispatcher.open(connection, frame)
        if exchange is None:
            assert stranger.closed
            continue
        assert exchange.api_key in (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE)
        reached += 1
        try:
            serve(stranger, exchange, frame)
        except (DecodeError, SaslError):
            stranger.authentication.fail()
            stranger.close("refused")
        assert stranger.authentication.state is not State.COMPLETE
    return reached


def serve(stranger: Stranger, exchange: Any, frame: bytes) -> None:
    """As the handlers work, without the loop."""
    authentication = stranger.authentication
    if exchange.api_version == RAW_TOKEN:
        authentication.finish(authentication.step(frame, 0), 0, 0.0)
        return
    if exchange.api_key == API_VERSIONS and exchange.api_version > 4:
        return  # answered with UNSUPPORTED_VERSION, not decoded
    request = api.decode_request(exchange.api_key, exchange.api_version, frame, exchange.body_at)
    if exchange.api_key == SASL_HANDSHAKE:
        authentication.choose(request.mechanism, raw_tokens=exchange.api_version == 0)
    elif exchange.api_key == SASL_AUTHENTICATE:
        authentication.finish(authentication.step(request.auth_bytes, 0), 0, 0.0)


def test_fuzzed_frames() -> None:
    assert attack(20_000, seed=1) > 2_000


@pytest.mark.long
def test_a_million_fuzzed_frames() -> None:
    assert attack(1_000_000, seed=2) > 100_000
