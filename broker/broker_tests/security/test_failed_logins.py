"""A login that fails: how late it is answered, and what the answer tells about the user."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from broker_tests.conftest import StartBroker
from broker_tests.security.test_sasl import add_scram, sasl_settings
from broker_tests.security.tls_support import PASSWORD
from odradek_broker.runtime.peer_security import _authenticate
from odradek_protocol.client import ApiKey, Struct
from odradek_protocol.security import sasl_client
from odradek_protocol.security.sasl_client import Login
from odradek_protocol.security.scram import ScramClient, server_first
from odradek_testkit.engines import RunningBroker, on_apache
from odradek_testkit.stranger import StrangerConnection

pytestmark = pytest.mark.skipif(on_apache(), reason="settings of our broker")

DELAY_MS = 400
FAILED = 58  # SASL_AUTHENTICATION_FAILED
UNSUPPORTED_MECHANISM = 33
SCRAM = "SCRAM-SHA-256"


def plain(raw: StrangerConnection, user: str, password: str) -> Struct | None:
    raw.call(ApiKey.SASL_HANDSHAKE, 1, Struct(mechanism="PLAIN"))
    token = f"\0{user}\0{password}".encode()
    return raw.call(ApiKey.SASL_AUTHENTICATE, 2, Struct(auth_bytes=token))


def scram(raw: StrangerConnection, user: str, password: str) -> Struct | None:
    raw.call(ApiKey.SASL_HANDSHAKE, 1, Struct(mechanism=SCRAM))
    client = ScramClient(SCRAM, user, password)
    first = raw.call(ApiKey.SASL_AUTHENTICATE, 2, Struct(auth_bytes=client.first()))
    assert first is not None
    assert first.error_code == 0, "only the proof fails"
    final = client.final(first.auth_bytes)
    return raw.call(ApiKey.SASL_AUTHENTICATE, 2, Struct(auth_bytes=final))


def unknown_mechanism(raw: StrangerConnection, *_: str) -> Struct | None:
    return raw.call(ApiKey.SASL_HANDSHAKE, 1, Struct(mechanism="GSSAPI"))


def test_the_answer_comes_after_the_delay_and_is_the_same_for_all(
    start_broker: StartBroker,
) -> None:
    """connection.failed.authentication.delay.ms applies to every failed login, so that guessing is
    slow, and the answer does not say what was wrong."""
    setting = {"connection.failed.authentication.delay.ms": str(DELAY_MS)}
    broker = start_broker(sasl_settings("SASL_PLAINTEXT", f"PLAIN,{SCRAM}", **setting))
    assert isinstance(broker, RunningBroker)
    add_scram(broker, "bob", "secret-of-bob")
    seen: dict[object, set[tuple[int, str]]] = {}
    for attempt, user in (
        (plain, "alice"),
        (plain, "nobody"),
        (scram, "bob"),
        (scram, "nobody"),
        (unknown_mechanism, ""),
    ):
        with StrangerConnection.plain(broker.port) as raw:
            began = time.monotonic()
            answer = attempt(raw, user, "wrong")
            assert time.monotonic() - began >= DELAY_MS / 1000
            assert answer is not None
            said = (answer.error_code, getattr(answer, "error_message", "") or "")
            seen.setdefault(attempt, set()).add(said)
            assert raw.call(ApiKey.API_VERSIONS, 0, Struct()) is None, "the connection is closed"
    assert all(len(answers) == 1 for answers in seen.values()), seen
    codes = [{code for code, _ in answers} for answers in seen.values()]
    assert codes == [{FAILED}, {FAILED}, {UNSUPPORTED_MECHANISM}]
    with StrangerConnection.plain(broker.port) as raw:
        good = plain(raw, "alice", PASSWORD)
        assert good is not None
        assert good.error_code == 0


def test_pbkdf2_of_a_brokers_own_login_runs_in_another_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """16,384 iterations take 10 ms, which the event loop must not lose at each connection."""
    threads: list[int] = []

    class Watched(ScramClient):
        def final(self, token: bytes) -> bytes:
            threads.append(threading.get_ident())
            return super().final(token)

    monkeypatch.setattr(sasl_client, "ScramClient", Watched)

    class Other:
        """Answers the first message, and refuses the proof."""

        def __init__(self) -> None:
            self._answers: Iterator[Struct] = iter(())

        async def call(self, api_key: int, version: int, request: Struct) -> Struct:
            if api_key == ApiKey.SASL_HANDSHAKE:
                return Struct(error_code=0)
            token = bytes(request.auth_bytes)
            if token.startswith(b"n,,"):
                nonce = token.decode().rpartition("r=")[2]
                first = server_first(f"{nonce}-server", b"salt" * 6, 4096)
                return Struct(error_code=0, auth_bytes=first.encode())
            return Struct(error_code=FAILED, error_message="refused")

    with pytest.raises(Exception, match="refused"):
        asyncio.run(_authenticate(Login(SCRAM, "broker", "secret"), Other()))  # type: ignore[arg-type]
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()
