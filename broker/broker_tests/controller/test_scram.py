"""SCRAM credentials in the metadata: set, changed, deleted, refused, kept in snapshots, hidden."""

import base64
from typing import Any

import pytest

from broker_tests.controller.support import after, cluster
from broker_tests.handlers.admin_support import AdminClient, with_client
from odradek_broker.controller import scram
from odradek_broker.handlers import (
    alter_user_scram_credentials,
    describe_user_scram_credentials,
)
from odradek_broker.metadata.delta import MetadataDelta, ReplayError
from odradek_broker.metadata.image import EMPTY_IMAGE, MetadataImage
from odradek_broker.metadata.image_records import records_of
from odradek_broker.metadata.records import RemoveUserScramCredentialRecord
from odradek_broker.metadata.scram import (
    ScramMechanism,
    credential_of,
    make_credential,
    salted_password,
)
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
EMPTY = cluster({1: None})


def upsertion(
    name: str, mechanism: int = 1, iterations: int = 4096, salted: bytes = b"x" * 32
) -> Any:
    return Struct(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted
    )


def deletion(name: str, mechanism: int = 1) -> Any:
    return Struct(name=name, mechanism=mechanism)


def alter(image: MetadataImage, *upsertions: Struct, deletions: tuple[Struct, ...] = ()) -> Any:
    """The image after it, and the error codes by user."""
    request = Struct(upsertions=list(upsertions), deletions=list(deletions))
    result = scram.alter_user_scram_credentials(image, request)
    codes = {r.user: ErrorCode(r.error_code) for r in result.response.results}
    assert len(codes) == len(result.response.results)
    return after(image, result.records), codes


def test_the_example_of_rfc_7677() -> None:
    """User "user", password "pencil": stored and server key verify the RFC's messages."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    made = make_credential(SHA_256, "pencil", salt, 4096)
    assert base64.b64encode(made.stored_key) == b"WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert base64.b64encode(made.server_key) == b"wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
    salted = salted_password(SHA_256, "pencil", salt, 4096)
    assert credential_of(SHA_256, salted, salt, 4096) == made


def test_sha_512_differs_and_is_longer() -> None:
    made = make_credential(SHA_512, "pencil", b"salt", 4096)
    assert (len(made.stored_key), len(made.server_key)) == (64, 64)


def test_set_changed_and_deleted() -> None:
    image, codes = alter(EMPTY, upsertion("alice", 2, 8192))
    assert codes == {"alice": ErrorCode.none}
    first = image.scram.credential(SHA_512, "alice")
    assert first is not None
    assert first.iterations == 8192
    assert image.scram.credential(SHA_256, "alice") is None
    image, _ = alter(image, upsertion("alice", 2, salted=b"other"))
    changed = image.scram.credential(SHA_512, "alice")
    assert changed is not None
    assert changed.stored_key != first.stored_key
    image, codes = alter(image, deletions=(deletion("alice", 2),))
    assert codes == {"alice": ErrorCode.none}
    assert image.scram.credential(SHA_512, "alice") is None
    image.validate()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion(""), ErrorCode.unacceptable_credential),
        (upsertion("a", 3), ErrorCode.unsupported_sasl_mechanism),
        (upsertion("a", 0), ErrorCode.unsupported_sasl_mechanism),
        (upsertion("a", 1, 4095), ErrorCode.unacceptable_credential),
        (upsertion("a", 1, 16385), ErrorCode.unacceptable_credential),
        (upsertion("a", 1, 16384), ErrorCode.none),
    ],
)
def test_errors_of_an_upsertion(change: Struct, code: ErrorCode) -> None:
    image, codes = alter(EMPTY, change, upsertion("other"))
    assert codes == {change.name: code, "other": ErrorCode.none}
    assert image.scram.credential(SHA_256, "other") is not None  # one error does not stop the rest
    assert (image.scram.credential(SHA_256, "a") is not None) is (code is ErrorCode.none)


def test_errors_of_a_deletion() -> None:
    for gone in (deletion("nobody"), deletion("", 1), deletion("alice", 9)):
        _, codes = alter(EMPTY, deletions=(gone,))
        assert codes[gone.name] is not ErrorCode.none
    assert alter(EMPTY, deletions=(deletion("nobody"),))[1] == {
        "nobody": ErrorCode.resource_not_found
    }


def test_a_user_may_be_named_once() -> None:
    """Two mechanisms of one user count as twice, as in Apache Kafka 4.3.1."""
    image, _ = alter(EMPTY, upsertion("alice"))
    twice = {"alice": ErrorCode.duplicate_resource}
    for upsertions, deletions in (
        ((upsertion("alice"), upsertion("alice", 2)), ()),
        ((upsertion("alice"),), (deletion("alice"),)),
        ((), (deletion("alice"), deletion("alice"))),
        ((upsertion("alice"),) * 3, ()),
    ):
        unchanged, codes = alter(image, *upsertions, deletions=deletions)
        assert codes == twice
        assert unchanged.scram == image.scram


def test_a_snapshot_has_them() -> None:
    image, _ = alter(EMPTY, upsertion("alice"), upsertion("bob", 2))
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in records_of(image):
        delta.replay(record)
    assert delta.finish(7).after.scram == image.scram
    assert len(image.scram.credentials) == 2


def test_an_unchanged_image_shares_them() -> None:
    image, _ = alter(EMPTY, upsertion("alice"))
    assert after(image, []).scram is image.scram


def test_removing_an_unknown_credential_is_a_broken_log() -> None:
    with pytest.raises(ReplayError):
        MetadataDelta(EMPTY).replay(RemoveUserScramCredentialRecord("alice", SHA_256))


def test_nothing_secret_is_in_repr() -> None:
    made = make_credential(SHA_256, "pencil", b"saltsalt", 5000)
    image, _ = alter(EMPTY, upsertion("alice", salted=b"pepper" * 5))
    (record,) = [r for r in records_of(image) if type(r).__name__ == "UserScramCredentialRecord"]
    credential = image.scram.credential(SHA_256, "alice")
    assert credential is not None
    shown = repr((made, record, image.scram, image))
    for secret in (made, credential):
        for hidden in (secret.salt, secret.stored_key, secret.server_key):
            assert repr(hidden)[2:-1] not in shown
    assert "alice" in repr(record)


def test_described() -> None:
    async def story(client: AdminClient) -> None:
        salted = [upsertion("alice", 2, 8192), upsertion("bob")]
        answer = await client.ask(
            alter_user_scram_credentials, 0, upsertions=salted, deletions=[deletion("carol")]
        )
        assert {r.user: r.error_code for r in answer.results} == {
            "alice": ErrorCode.none,
            "bob": ErrorCode.none,
            "carol": ErrorCode.resource_not_found,
        }
        everyone = await client.ask(describe_user_scram_credentials, 0, users=None)
        assert sorted(r.user for r in everyone.results) == ["alice", "bob"]
        asked = [Struct(name=name) for name in ("alice", "nobody", "bob", "bob")]
        some = await client.ask(describe_user_scram_credentials, 0, users=asked)
        assert {r.user: (r.error_code, r.credential_infos) for r in some.results} == {
            "alice": (ErrorCode.none, [Struct(mechanism=2, iterations=8192)]),
            "nobody": (ErrorCode.resource_not_found, []),
            "bob": (ErrorCode.duplicate_resource, []),
        }

    with_client(story)
