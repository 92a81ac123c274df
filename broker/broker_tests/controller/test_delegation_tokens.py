"""Delegation tokens at the controller: random sequences against a model, expiry, snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from broker_tests.controller.active_support import World
from odradek_broker.controller import delegation_tokens
from odradek_broker.metadata.delegation_tokens import TokenKey
from odradek_broker.metadata.delta import MetadataDelta, ReplayError
from odradek_broker.metadata.image import EMPTY_IMAGE, MetadataImage
from odradek_broker.metadata.image_records import records_of
from odradek_broker.metadata.records import DelegationTokenRecord, RemoveDelegationTokenRecord
from odradek_broker.model.principal import USER, Principal
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

KEY = "key of this test"
LIFE_MS, EXPIRY_MS, INTERVAL_MS = 10_000, 4_000, 1_000
SETTINGS = {
    "delegation.token.secret.key": KEY,
    "delegation.token.max.lifetime.ms": str(LIFE_MS),
    "delegation.token.expiry.time.ms": str(EXPIRY_MS),
    "delegation.token.expiry.check.interval.ms": str(INTERVAL_MS),
}
USERS = ("alice", "bob", "carol")
CHECK = TokenKey(KEY)


def user(name: str) -> Principal:
    return Principal(USER, name)


def creation(owner: str | None = None, renewers: tuple[str, ...] = (), life_ms: int = -1) -> Struct:
    return Struct(
        owner_principal_type=USER,
        owner_principal_name=owner,
        renewers=[Struct(principal_type=USER, principal_name=name) for name in renewers],
        max_lifetime=life_ms,
    )


class Tokens(World):
    def create(self, by: str = "alice", **given: Any) -> Struct:
        request = creation(**given)
        return self.decide(self.active.create_delegation_token(request, user(by)))

    def renew(self, token_id: str, by: str, period_ms: int = -1) -> Struct:
        request = Struct(hmac=CHECK.hmac_of(token_id), renew_period=period_ms)
        return self.decide(self.active.renew_delegation_token(request, user(by)))

    def expire(self, token_id: str, by: str, period_ms: int = -1) -> Struct:
        request = Struct(hmac=CHECK.hmac_of(token_id), expiry_time_period=period_ms)
        return self.decide(self.active.expire_delegation_token(request, user(by)))


@pytest.fixture
def tokens() -> Tokens:
    return Tokens(1, SETTINGS)


class Model:
    """What each token may do, in the words of KIP-48: a dictionary of id to its fields."""

    def __init__(self) -> None:
        self.tokens: dict[str, dict[str, Any]] = {}

    def code(self, token_id: str, by: str, now_ms: float, *, removes: bool = False) -> ErrorCode:
        token = self.tokens.get(token_id)
        if token is None:
            return ErrorCode.delegation_token_not_found
        mine = by in (token["owner"], *token["renewers"])
        expired = max(now_ms - token["expiry"], now_ms - token["max"]) > 0
        if removes or not expired:
            return ErrorCode.none if mine else ErrorCode.delegation_token_owner_mismatch
        return ErrorCode.delegation_token_expired

    def expires(self, token_id: str, at_ms: float) -> int:
        token = self.tokens[token_id]
        token["expiry"] = min(token["max"], at_ms)
        return int(token["expiry"])

    def shown(self) -> Mapping[str, tuple[str, int]]:
        return {i: (f"{USER}:{t['owner']}", int(t["expiry"])) for i, t in self.tokens.items()}


@pytest.mark.parametrize("seed", range(25))
def test_random_sequences_do_what_a_model_says(seed: int) -> None:
    rng, world, model = Random(seed), Tokens(1, SETTINGS), Model()
    for _ in range(120):
        world.now_ms += rng.choice((0, 1, 100, 1_500))
        now_ms, by = world.now_ms, rng.choice(USERS)
        known = rng.choice(sorted(model.tokens) or ["unknown"])
        match rng.randrange(6):
            case 0 | 1:
                owner, life_ms = rng.choice((None, *USERS)), rng.choice((-1, 0, 2_000, 10**15))
                renewers = tuple(rng.sample(USERS, rng.randrange(3)))
                made = world.create(by, owner=owner, renewers=renewers, life_ms=life_ms)
                assert made.hmac == CHECK.hmac_of(made.token_id)
                limit = now_ms + (min(life_ms, LIFE_MS) if life_ms > 0 else LIFE_MS)
                model.tokens[made.token_id] = {
                    "owner": owner or by, "renewers": renewers,
                    "max": limit, "expiry": min(limit, now_ms + EXPIRY_MS),
                }  # fmt: skip
            case 2:
                period_ms = rng.choice((-1, 0, 500, 10**15))
                code = model.code(known, by, now_ms)
                answer = world.renew(known, by, period_ms)
                assert answer.error_code is code
                if code is ErrorCode.none:
                    more_ms = min(period_ms, EXPIRY_MS) if period_ms > 0 else EXPIRY_MS
                    assert answer.expiry_timestamp == model.expires(known, now_ms + more_ms)
            case 3:
                period_ms = rng.choice((-1, 0, 500, 2**62))
                # Whether the asker may do it is looked at before the expiry.
                code = model.code(known, by, now_ms, removes=True)
                if code is ErrorCode.none and period_ms >= 0:
                    code = model.code(known, by, now_ms)
                answer = world.expire(known, by, period_ms)
                assert answer.error_code is code
                if code is ErrorCode.none and period_ms < 0:
                    del model.tokens[known]
                elif code is ErrorCode.none:
                    assert answer.expiry_timestamp == model.expires(known, now_ms + period_ms)
            case 4:
                world.heartbeat(1)
                world.tick(INTERVAL_MS)
                live_ms = world.now_ms
                model.tokens = {
                    i: t for i, t in model.tokens.items() if min(t["expiry"], t["max"]) >= live_ms
                }
            case 5:
                world.fail_over()
        assert model.shown() == {
            token_id: (token.owner, token.expiration_timestamp)
            for token_id, token in world.image.tokens.items()
        }
        assert replayed(world.image).tokens == world.image.tokens


def replayed(image: MetadataImage) -> MetadataImage:
    """The image of a node that starts from a snapshot."""
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in records_of(image):
        delta.replay(record)
    return delta.finish(image.offset).after


def test_many_expired_tokens_are_removed_in_several_decisions(
    tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delegation_tokens, "REMOVED_MAX", 3)
    for _ in range(7):
        tokens.create(life_ms=1)
    kept = tokens.create().token_id
    tokens.tick(INTERVAL_MS)
    assert len(tokens.image.tokens) == 5
    assert tokens.active.next_periodic_ms() <= tokens.now_ms
    tokens.tick()
    tokens.tick()
    assert set(tokens.image.tokens) == {kept}
    assert tokens.active.next_periodic_ms() > tokens.now_ms


def test_without_a_key_nothing_is_made_and_nothing_is_due() -> None:
    world = Tokens(1, {"delegation.token.secret.key": ""})
    made = world.create()
    assert made.error_code is ErrorCode.delegation_token_auth_disabled
    assert (made.token_id, made.hmac, world.image.tokens) == ("", b"", {})
    assert world.renew("x", "alice").error_code is ErrorCode.delegation_token_auth_disabled
    assert world.expire("x", "alice").error_code is ErrorCode.delegation_token_auth_disabled


def test_ids_do_not_look_like_options() -> None:
    ids = {delegation_tokens._new_id(Random(seed)) for seed in range(500)}
    assert len(ids) == 500
    assert {len(token_id) for token_id in ids} == {22}
    assert not any(token_id.startswith("-") for token_id in ids)


def test_only_the_exact_secret_finds_a_token(tokens: Tokens) -> None:
    first, second = tokens.create(), tokens.create()
    found = CHECK.find(tokens.image.tokens, second.hmac)
    assert found is not None
    assert found.token_id == second.token_id
    for wrong in (b"", first.hmac[:-1], first.hmac + b"x", first.token_id.encode()):
        assert CHECK.find(tokens.image.tokens, wrong) is None
    assert TokenKey("another key").find(tokens.image.tokens, first.hmac) is None


def test_records_that_contradict_the_image() -> None:
    delta = MetadataDelta(EMPTY_IMAGE)
    with pytest.raises(ReplayError, match="no delegation token with id x"):
        delta.replay(RemoveDelegationTokenRecord("x"))
    delta.replay(DelegationTokenRecord("User:a", "User:a", (), 1, 3, 2, "x"))
    delta.replay(RemoveDelegationTokenRecord("x"))
    with pytest.raises(ReplayError):
        delta.replay(RemoveDelegationTokenRecord("x"))
    assert delta.finish(0).after.tokens == {}
