"""SCRAM against an independent implementation (scramp), and what an attacker may try."""

from __future__ import annotations

import pytest
import scramp

from odradek_broker.metadata.scram import ScramCredential, ScramMechanism, make_credential
from odradek_broker.security.sasl.mechanism import Done, SaslError
from odradek_broker.security.sasl.scram import Scram
from odradek_protocol.security.scram import HASHES, ScramClient

USER, PASSWORD = "al=ice,1", "wonderland"


def server(mechanism: str, nonce: str = "server-nonce") -> Scram:
    number = ScramMechanism.named(mechanism)
    assert number is not None
    made = make_credential(number, PASSWORD, b"salt" * 6)

    def lookup(user: str) -> ScramCredential | None:
        return made if user == USER else None

    return Scram(mechanism, lookup, nonce, b"s" * 32)


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_client_of_scramp_logs_in(mechanism: str) -> None:
    conversation = server(mechanism)
    client = scramp.ScramClient([mechanism], USER, PASSWORD)
    first = conversation.step(client.get_client_first().encode(), 0)
    assert isinstance(first, bytes)
    client.set_server_first(first.decode())
    done = conversation.step(client.get_client_final().encode(), 0)
    assert isinstance(done, Done)
    assert done.user == USER
    client.set_server_final(done.token.decode())  # raises unless the server proved itself


@pytest.mark.parametrize("mechanism", HASHES)
def test_our_client_logs_in_and_checks_the_server(mechanism: str) -> None:
    conversation, client = server(mechanism), ScramClient(mechanism, USER, PASSWORD)
    first = conversation.step(client.first(), 0)
    assert isinstance(first, bytes)
    done = conversation.step(client.final(first), 0)
    assert isinstance(done, Done)
    client.finish(done.token)
    with pytest.raises(Exception, match="did not prove"):
        client.finish(b"v=AAAA")


def test_a_replay_and_a_second_attempt_fail() -> None:
    client = ScramClient("SCRAM-SHA-256", USER, PASSWORD, nonce="fixed")
    first = server("SCRAM-SHA-256").step(client.first(), 0)
    assert isinstance(first, bytes)
    final = client.final(first)
    replayed = server("SCRAM-SHA-256", nonce="another-nonce")
    replayed.step(client.first(), 0)
    for _ in range(2):  # a conversation that failed stays failed
        with pytest.raises(SaslError, match="invalid credentials"):
            replayed.step(final, 0)


def test_an_unknown_user_fails_at_the_proof_only() -> None:
    conversation = server("SCRAM-SHA-512")
    client = ScramClient("SCRAM-SHA-512", "nobody", PASSWORD)
    first = conversation.step(client.first(), 0)
    assert isinstance(first, bytes)
    with pytest.raises(SaslError, match="invalid credentials"):
        conversation.step(client.final(first), 0)
