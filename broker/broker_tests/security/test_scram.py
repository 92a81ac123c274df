"""SCRAM against an independent implementation (scramp), and what an attacker may try."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
import scramp

from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.scram import (
    ScramCredential,
    ScramImage,
    ScramKey,
    ScramMechanism,
    make_credential,
)
from odradek_broker.security.broker_login import Credentials
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

    image = MetadataImage(scram=ScramImage({ScramKey(number, USER): made}))
    return Scram(mechanism, lookup, nonce, partial(Credentials(lambda: image).decoy, number))


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
    client.set_server_final(done.token.decode())  # raises if the server's proof is wrong


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


@pytest.mark.parametrize("user", [USER, "nobody"])
def test_the_work_is_the_same_whether_a_user_exists(user: str) -> None:
    """The attack: the first answer to a name that exists comes some microseconds earlier."""
    number = ScramMechanism.SCRAM_SHA_256
    made = make_credential(number, PASSWORD, b"salt" * 6)
    asked = []

    def decoy(name: str) -> ScramCredential:
        asked.append(name)
        return made

    known = {USER: made}.get
    conversation = Scram("SCRAM-SHA-256", known, "nonce", decoy)
    conversation.step(ScramClient("SCRAM-SHA-256", user, PASSWORD).first(), 0)
    assert asked == [user]


def test_unknown_users_look_like_the_known_ones() -> None:
    """Salt and iterations tell nothing: a stranger sees what some user has, always the same."""
    number = ScramMechanism.SCRAM_SHA_512
    known = {
        ScramKey(number, f"user-{n}"): make_credential(number, PASSWORD, b"s" * (20 + n), 4096 + n)
        for n in range(3)
    }
    other = make_credential(ScramMechanism.SCRAM_SHA_256, PASSWORD, b"s" * 16, 5000)
    known[ScramKey(ScramMechanism.SCRAM_SHA_256, "user-0")] = other
    image = MetadataImage(scram=ScramImage(known))
    credentials = Credentials(lambda: image)
    seen = Counter[tuple[int, int]]()
    for n in range(200):
        made = credentials.decoy(number, f"ghost-{n}")
        assert made == credentials.decoy(number, f"ghost-{n}")
        seen[len(made.salt), made.iterations] += 1
    assert seen.keys() == {(20, 4096), (21, 4097), (22, 4098)}
    assert len({credentials.decoy(number, f"ghost-{n}").salt for n in range(200)}) == 200
    image = MetadataImage()
    assert credentials.decoy(number, "ghost-0").iterations == 4096
