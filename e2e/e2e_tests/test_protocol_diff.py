"""The protocol diff: its parts by themselves, and (long) a run against both engines."""

import random
from pathlib import Path
from uuid import UUID

import pytest

from odradek_broker.handlers.registry import handler_modules
from odradek_e2e.acl_diff.run import ANY_HOST, OPERATIONS, AclRun, some_acl
from odradek_e2e.acl_diff.users import CLIENTS, HOSTS, settings
from odradek_e2e.diff.compare import Difference, compare
from odradek_e2e.diff.engines import Outcome, both_engines
from odradek_e2e.diff.expected import TABLE, reason_for, unwritten_groups
from odradek_e2e.diff.generate import request
from odradek_e2e.diff.malform import DAMAGES
from odradek_e2e.diff.names import Names, Ref, learn_from
from odradek_e2e.diff.run import Run
from odradek_e2e.diff.values import Round
from odradek_protocol.messages.api import decode_request, encode_request
from odradek_protocol.messages.struct import Struct

OURS, THEIRS = UUID(int=1), UUID(int=2)


def names() -> Names:
    known = Names()
    for number, topic in enumerate(("r1-a", "r1-b")):
        known.learn(f"topic {topic}", UUID(int=number + 10))
    known.learn("log dir", "/data")
    return known


def test_requests_of_every_api_can_be_written() -> None:
    """Generated values fit their types: a request can be encoded and decoded."""
    rng = random.Random(5)
    round_ = Round(1, names())
    for module in handler_modules().values():
        api_key, version = module.API_KEY, module.VERSIONS.stop - 1
        wanted = round_.names.resolve(request(round_, api_key, version, rng))
        decode_request(api_key, version, encode_request(api_key, version, wanted))


def test_the_same_seed_makes_the_same_requests() -> None:
    def some() -> list[str]:
        rng, round_ = random.Random(9), Round(1, names())
        return [repr(request(round_, key, 1, rng)) for key in (3, 10, 16)]

    assert some() == some()


def test_damage_depends_on_nothing_but_the_seed() -> None:
    frame = bytes(range(60))
    for damage in DAMAGES:
        once, again = (damage(frame, 20, random.Random(3)) for _ in range(2))
        assert once == again != frame


def answer(**fields: object) -> Outcome:
    return Outcome("answer", Struct(**fields))


def test_ids_are_compared_by_name() -> None:
    ours, apache = Names(), Names()
    mine, theirs = Struct(name="a", topic_id=OURS), Struct(name="a", topic_id=THEIRS)
    learn_from(mine, theirs, ours, apache, {})
    assert ours.resolve(Ref("topic_id 1")) == OURS
    both = (apache, ours)
    assert not compare(answer(topic_id=THEIRS), answer(topic_id=OURS), both)
    assert compare(answer(topic_id=THEIRS), answer(topic_id=UUID(int=3)), both)


def test_times_are_ignored_and_order_does_not_matter() -> None:
    theirs = answer(throttle_time=5, topics=[Struct(name="a", e=1), Struct(name="b", e=2)])
    mine = answer(throttle_time=0, topics=[Struct(name="b", e=2), Struct(name="a", e=7)])
    found = compare(theirs, mine, (Names(), Names()))
    assert found == [Difference("topics[].e", 1, 7)]


def test_another_outcome_is_a_difference() -> None:
    found = compare(Outcome("closed"), answer(error_code=0), (Names(), Names()))
    assert found == [Difference("", "closed", {"error_code": 0})]


def test_every_expected_difference_has_a_reason() -> None:
    assert all(len(line.reason) > 10 for line in TABLE)
    assert reason_for("metadata", Difference("controller_id", 1, 2)) is None


def test_a_group_that_only_one_engine_lists() -> None:
    def listed(name: str, protocol_type: str) -> dict[str, str]:
        return {"group_id": name, "protocol_type": protocol_type}

    both, joined, empty = listed("a", "consumer"), listed("b", "consumer"), listed("c", "")
    assert unwritten_groups([both, empty], [both, joined])
    assert not unwritten_groups([both, joined], [both])
    assert not unwritten_groups([both], [both, empty])


def test_an_api_that_only_one_engine_advertises_is_a_difference() -> None:
    assert reason_for("advertised", Difference("versions of vote", None, (2, 2))) is None
    assert reason_for("advertised", Difference("versions of produce", (0, 13), None)) is None
    assert reason_for("advertised", Difference("versions of produce", (0, 13), (0, 12))) is None


@pytest.mark.java
@pytest.mark.long
def test_both_engines_answer_alike(tmp_path: Path) -> None:
    with both_engines(tmp_path) as (ours, apache):
        run = Run(ours, apache, seed=1)
        run.run(500, lambda _: None)
    unexpected = [met for met in run.tally.met if met.reason is None]
    assert not unexpected, "\n".join(map(str, unexpected))


def test_generated_acls_name_every_client_and_kind_of_resource() -> None:
    rng, round_ = random.Random(4), Round(1, names())
    acls = [some_acl(rng, round_) for _ in range(500)]
    assert {acl.principal for acl in acls} == {"User:*", *(one.principal for one in CLIENTS)}
    assert {acl.host for acl in acls} == {ANY_HOST, *HOSTS}
    assert {acl.resource_type for acl in acls} == set(OPERATIONS)


@pytest.mark.java
@pytest.mark.long
def test_both_engines_refuse_alike(tmp_path: Path) -> None:
    with both_engines(tmp_path, settings()) as (ours, apache):
        run = AclRun(ours, apache, seed=7)
        run.prepare()
        run.run(400, lambda _: None)
    unexpected = [met for met in run.tally.met if met.reason is None]
    assert not unexpected, "\n".join(map(str, unexpected))
