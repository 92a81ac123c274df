"""Groups of the consumer protocol: joining, revocation, fencing, expressions; without a broker."""

from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

import pytest

from broker_tests.group.consumer.support import Consumer, GroupOnPaper, topic_id, without_interval
from odradek_broker.group.consumer import heartbeat as beat
from odradek_broker.group.consumer.context import TimerKind
from odradek_broker.group.consumer.member import MemberState
from odradek_protocol.error_codes import ErrorCode, KafkaError


def fails(code: ErrorCode, call: Callable[..., object], *args: Any, **fields: Any) -> str:
    with pytest.raises(KafkaError) as caught:
        call(*args, **fields)
    assert caught.value.code is code
    return caught.value.message or ""


def topics(*names: str) -> dict[str, Any]:
    return {"subscribed_topic_names": list(names)}


def owned(consumer: Consumer) -> int:
    return sum(len(partitions) for partitions in consumer.owned.values())


def test_a_partition_is_assigned_only_after_its_owner_revoked_it() -> None:
    """1. a has all. 2. b joins and gets nothing. 3. a has to revoke half, and still
    owns it. 4. b still gets nothing. 5. a has revoked it. 6. b gets it."""
    paper = GroupOnPaper({"t": 4})
    a = Consumer(paper, "a", **topics("t"))
    a.join()
    assert owned(a) == 4
    assert paper.group.state == "Stable"
    b = Consumer(paper, "b", **topics("t"))
    response = b.join()
    assert owned(b) == 0
    assert paper.group.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    before = dict(a.owned)
    epoch = a.epoch
    response = a.beat()
    assert response.member_epoch == epoch, "it stays in its epoch until it has given back"
    assert paper.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    assert (TimerKind.REBALANCE, "a") in paper.timers
    wanted, a.owned = dict(a.owned), before
    a.beat()
    b.beat()
    assert owned(b) == 0
    a.owned = wanted
    a.beat()
    assert (TimerKind.REBALANCE, "a") not in paper.timers
    b.beat()
    assert owned(a) == owned(b) == 2
    assert paper.group.state == "Stable"
    assert a.epoch == b.epoch == paper.group.group_epoch == 2


def test_a_heartbeat_without_changes_writes_nothing_and_has_no_assignment() -> None:
    paper = GroupOnPaper({"t": 1})
    a = Consumer(paper, "a", **topics("t"))
    a.join()
    written = len(paper.log)
    assert paper.send(member_id="a", member_epoch=1).assignment is None
    assert len(paper.log) == written


def test_new_partitions_and_topics_reach_the_members() -> None:
    paper = GroupOnPaper({"t": 1})
    a = Consumer(paper, "a", **topics("t", "later"))
    a.join()
    paper.set_topics({"t": 3})
    a.beat()
    assert a.owned == {topic_id("t"): frozenset({0, 1, 2})}
    paper.set_topics({"t": 3, "later": 1, "other": 5})
    a.beat()
    assert a.owned[topic_id("later")] == frozenset({0})
    epoch = paper.group.group_epoch
    paper.set_topics({"t": 3, "later": 1})
    a.beat()
    assert paper.group.group_epoch == epoch, "a topic that it does not subscribe to went away"
    paper.set_topics({"t": 3})
    a.beat()
    a.beat()
    assert topic_id("later") not in a.owned


def test_a_wrong_member_epoch_is_fenced() -> None:
    paper = GroupOnPaper({"t": 2})
    a = Consumer(paper, "a", **topics("t"))
    a.join()
    b = Consumer(paper, "b", **topics("t"))
    b.join()
    assert "greater" in fails(
        ErrorCode.fenced_member_epoch, paper.send, member_id="a", member_epoch=9
    )
    a.beat()
    a.beat()
    assert a.epoch == 2
    # The answer with epoch 2 may be lost: epoch 1 is accepted with a subset of what a has.
    previous = paper.send(member_id="a", member_epoch=1, topic_partitions=[])
    assert previous.member_epoch == 2
    fails(ErrorCode.fenced_member_epoch, paper.send, member_id="a", member_epoch=1)
    fails(ErrorCode.unknown_member_id, paper.send, member_id="zzz", member_epoch=1)
    assert paper.send(
        member_id="a", rebalance_timeout=1, topic_partitions=[], **topics("t")
    ).assignment, "rejoining with epoch 0 is always possible"


def test_a_static_member_comes_back_under_a_new_id() -> None:
    paper = GroupOnPaper({"t": 2})
    a = Consumer(paper, "a", instance_id="i", **topics("t"))
    b = Consumer(paper, "b", **topics("t"))
    a.join(), b.join(), a.beat(), a.beat(), b.beat()
    had = dict(a.owned)
    again = Consumer(paper, "a2", instance_id="i", **topics("t"))
    fails(ErrorCode.unreleased_instance_id, again.join)
    epoch = paper.group.group_epoch
    assert a.leave(-2).member_epoch == -2
    assert paper.group.group_epoch == epoch, "nobody else gets its partitions meanwhile"
    again.join()
    assert again.owned == had
    assert paper.group.static_members == {"i": "a2"}
    assert "a" not in paper.group.members
    fails(ErrorCode.fenced_instance_id, a.beat)
    fails(ErrorCode.unknown_member_id, paper.send, member_id="x", member_epoch=1, instance_id="j")


def test_a_member_that_leaves_or_times_out_is_replaced() -> None:
    paper = GroupOnPaper({"t": 2})
    a, b = (Consumer(paper, name, **topics("t")) for name in "ab")
    a.join(), b.join(), a.beat(), a.beat(), b.beat()
    b.leave()
    assert (TimerKind.SESSION, "b") not in paper.timers
    a.beat()
    assert owned(a) == 2
    paper.settle(beat.fence(paper.group, ["a"], paper.ctx))
    assert paper.group.state == "Empty"
    fails(ErrorCode.unknown_member_id, a.beat)


def test_expressions() -> None:
    paper = GroupOnPaper({"a-1": 1, "a-2": 1, "b": 1})
    a = Consumer(paper, "a", subscribed_topic_regex="a-.*")
    assert a.join().member_epoch > 0
    a.beat()
    assert set(a.owned) == {topic_id("a-1"), topic_id("a-2")}
    paper.set_topics({"a-1": 1, "a-2": 1, "b": 1, "a-3": 1, "xa-1": 1})
    paper.now_ms += 20_000
    a.beat()
    a.beat()
    assert set(a.owned) == {topic_id("a-1"), topic_id("a-2"), topic_id("a-3")}
    a.beat(subscribed_topic_regex="", **topics("b"))
    assert not paper.group.regexes
    a.beat()
    a.beat()
    assert set(a.owned) == {topic_id("b")}
    message = fails(
        ErrorCode.invalid_regular_expression,
        paper.send,
        member_id="a",
        member_epoch=a.epoch,
        subscribed_topic_regex="(",
    )
    assert message.startswith("SubscribedTopicRegex `(` is not a valid regular expression")
    for hostile in (r"(a)\1", "((((a{99}){99}){99}){99})", "(?=a)"):
        with pytest.raises(KafkaError):
            paper.send(member_id="a", member_epoch=a.epoch, subscribed_topic_regex=hostile)


def test_invalid_requests_are_refused() -> None:
    paper = GroupOnPaper({"t": 1})
    full = {"member_id": "a", "rebalance_timeout": 1, "topic_partitions": [], **topics("t")}
    invalid = ErrorCode.invalid_request
    fails(invalid, paper.send, **{**full, "rebalance_timeout": -1})
    fails(invalid, paper.send, **{**full, "topic_partitions": None})
    fails(invalid, paper.send, **{**full, "subscribed_topic_names": None})
    fails(invalid, paper.send, **{**full, "group_id": " "})
    fails(invalid, paper.send, **{**full, "instance_id": ""})
    fails(invalid, paper.send, **{**full, "member_epoch": -3})
    fails(invalid, paper.send, **{**full, "member_epoch": -2})
    fails(invalid, paper.send, **{**full, "member_epoch": 1, "member_id": ""})
    message = fails(ErrorCode.unsupported_assignor, paper.send, **full, server_assignor="x")
    assert message == "ServerAssignor x is not supported. Supported assignors: uniform, range."
    assert paper.send(**{**full, "member_id": ""}).member_id == "id1"


def test_a_full_group_refuses_new_members() -> None:
    paper = GroupOnPaper({"t": 1}, without_interval(max_size=1))
    a = Consumer(paper, "a", **topics("t"))
    a.join()
    fails(ErrorCode.group_max_size_reached, Consumer(paper, "b", **topics("t")).join)
    a.join()


def test_most_members_choose_the_assignor() -> None:
    paper = GroupOnPaper({"t": 4, "u": 4})
    members = [Consumer(paper, name, server_assignor="range", **topics("t", "u")) for name in "ab"]
    for _ in range(4):
        for member in members:
            member.join() if not member.epoch else member.beat()
    assert members[0].owned == {topic_id(t): frozenset({0, 1}) for t in ("t", "u")}


def test_assignments_respect_the_assignment_interval() -> None:
    paper = GroupOnPaper({"t": 4}, without_interval(assignment_interval_ms=1000))
    a = Consumer(paper, "a", **topics("t"))
    a.join()
    paper.now_ms += 400
    b = Consumer(paper, "b", **topics("t"))
    b.join()
    assert paper.group.state == "Assigning"
    assert paper.timers[TimerKind.ASSIGNMENT, ""].delay_ms == 600
    assert b.epoch == 1
    paper.now_ms += 600
    b.beat()
    assert paper.group.target_epoch == 2


def settle_all(paper: GroupOnPaper, consumers: list[Consumer], rounds: int = 6) -> None:
    for _ in range(rounds):
        for consumer in consumers:
            consumer.beat()


@pytest.mark.parametrize("seed", range(12))
def test_random_histories_of_groups(seed: int) -> None:
    """Joins, leaves, crashes, new topics, lost answers, slow revocations, new coordinators. In
    each step a partition has one owner according to the group *and* the clients (paper.settle
    validates the first); what a new coordinator reads from the log is what the old one knew."""
    rng = Random(seed)
    sizes = {"t": 3, "u": 2}
    paper = GroupOnPaper(sizes)
    alive: list[Consumer] = []
    for step in range(120):
        action = rng.random()
        if action < 0.12 and len(alive) < 6:
            names = rng.sample(["t", "u", "v"], rng.randint(1, 3))
            instance = {"instance_id": f"i{step}"} if rng.random() < 0.3 else {}
            alive.append(Consumer(paper, f"m{step}", **topics(*names), **instance))
            alive[-1].join()
        elif action < 0.18 and alive:
            alive.pop(rng.randrange(len(alive))).leave()
        elif action < 0.22 and alive:
            crashed = alive.pop(rng.randrange(len(alive)))
            paper.settle(beat.fence(paper.group, [crashed.member_id], paper.ctx))
        elif action < 0.25:
            sizes = {**sizes, rng.choice("tuv"): rng.randint(1, 6)}
            paper.set_topics(sizes)
        elif action < 0.28:
            known = paper.group
            paper.group = paper.reloaded()
            paper.group.validate()
            assert paper.group.members == known.members
            assert paper.group.target == known.target
            assert paper.group.owners == known.owners
        elif alive:
            consumer = rng.choice(alive)
            before, epoch = dict(consumer.owned), consumer.epoch
            try:
                consumer.beat()
            except KafkaError as error:  # of an old epoch, with more than it has by now
                if error.code is not ErrorCode.fenced_member_epoch:
                    raise
                before, epoch = {}, 0
                consumer.join()
            if rng.random() < 0.15:  # the answer is lost
                consumer.owned, consumer.epoch, consumer.missed_answer = before, epoch, True
            elif rng.random() < 0.3:  # not revoked yet
                consumer.owned = before
                consumer.missed_answer = True
        check_clients(alive)
    for consumer in alive:
        consumer.join()
    settle_all(paper, alive, rounds=10)
    check_clients(alive)
    if alive:
        assert paper.group.state == "Stable"
        subscribed = {n for c in alive for n in c.subscription["subscribed_topic_names"]}
        assert {(t, p) for c in alive for t, ps in c.owned.items() for p in ps} == {
            (topic_id(n), p) for n in subscribed if n in sizes for p in range(sizes[n])
        }


def check_clients(alive: list[Consumer]) -> None:
    owners: dict[tuple[UUID, int], str] = {}
    for consumer in alive:
        for topic, partitions in consumer.owned.items():
            for partition in partitions:
                owner = owners.setdefault((topic, partition), consumer.member_id)
                assert owner == consumer.member_id, f"{topic}-{partition} is consumed twice"
