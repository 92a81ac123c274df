"""Classic groups without a broker: stories of rebalances, and any order of requests."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_tests.group.support import GROUP, SUBSCRIPTION, WALL_MS, Bench
from odradek_broker.coordinator.result import Producer
from odradek_broker.group import records
from odradek_broker.group.classic_member import Protocol
from odradek_broker.group.config import GroupConfig
from odradek_broker.group.states import (
    TRANSITIONS,
    GroupEvent,
    GroupState,
    InvalidTransitionError,
    next_state,
)
from odradek_broker.group.subscription import topics_of
from odradek_protocol.error_codes import ErrorCode, KafkaError


def test_every_pair_of_state_and_event_is_decided() -> None:
    for state, event in product(GroupState, GroupEvent):
        if (state, event) in TRANSITIONS:
            assert isinstance(next_state(state, event), GroupState)
        else:
            with pytest.raises(InvalidTransitionError):
                next_state(state, event)
    # Nothing leads out of Dead, and everything else leads into it.
    assert not any(state is GroupState.DEAD for state, _ in TRANSITIONS)
    assert {s for s, e in TRANSITIONS if e is GroupEvent.DELETED} == set(GroupState) - {
        GroupState.DEAD
    }


def test_two_members_join_sync_and_one_dies() -> None:
    """1. a is alone. 2. b joins: a's heartbeat returns REBALANCE_IN_PROGRESS, and a joins again;
    both wait for the assignment. 3. the leader sends it. 4. b sends no heartbeats for its
    session: a has to join again, and is alone."""
    bench = Bench()
    bench.join("a")
    a = bench.last("a").member_id
    assert bench.last("a").leader == a
    bench.sync("a", a, 1, {a: b"all"})
    assert bench.last("a").assignment == b"all"
    assert bench.group.state is GroupState.STABLE

    bench.join("b")
    assert bench.answers["b"] == []  # waits
    bench.beat("a", a, 1)
    assert bench.last("a") is ErrorCode.rebalance_in_progress
    bench.join("a", a)
    b = bench.last("b").member_id
    assert [m.member_id for m in bench.last("a").members] == [a, b]
    assert bench.last("b").members == []
    bench.sync("b", b, 2)
    bench.sync("a", a, 2, {a: b"one", b: b"two"})
    assert (bench.last("a").assignment, bench.last("b").assignment) == (b"one", b"two")

    for _ in range(3):
        bench.pass_time(4_000)
        bench.beat("a", a, 2)
    assert list(bench.group.members) == [a]
    assert bench.last("a") is ErrorCode.rebalance_in_progress
    bench.join("a", a)
    assert bench.last("a").generation_id == 3


def test_the_first_rebalance_waits_for_more_members_up_to_a_limit() -> None:
    bench = Bench(GroupConfig(initial_rebalance_delay_ms=3000))
    for number in range(10):
        bench.join(f"m{number}", rebalance_timeout_ms=10_000)
        assert bench.answers["m0"] == []
        bench.pass_time(2000 if number < 3 else 1)
    bench.pass_time(10_000)
    assert bench.last("m0").generation_id == 1
    assert len(bench.last("m0").members) == 10


def test_members_that_do_not_join_in_time_are_left_out() -> None:
    bench = Bench()
    bench.join("a", session_timeout_ms=60_000)
    a = bench.last("a").member_id
    bench.sync("a", a, 1, {a: b"x"})
    bench.join("b", session_timeout_ms=60_000)
    bench.pass_time(19_999)
    assert bench.answers["b"] == []
    bench.pass_time(2)
    assert bench.last("b").generation_id == 2
    assert bench.last("b").leader == bench.last("b").member_id
    bench.beat("a", a, 1)
    assert bench.last("a").code is ErrorCode.unknown_member_id


def test_a_member_that_never_syncs_is_removed() -> None:
    bench = Bench()
    bench.join("a", session_timeout_ms=60_000)
    a = bench.last("a").member_id
    bench.pass_time(20_001)
    assert bench.group.state is GroupState.EMPTY
    bench.beat("a", a, 1)
    assert bench.last("a").code is ErrorCode.unknown_member_id


def test_an_id_that_was_given_out_and_not_used_is_forgotten() -> None:
    bench = Bench()
    bench.join("a", version=4)
    assert bench.last("a").error_code is ErrorCode.member_id_required
    assert bench.group.pending == {bench.last("a").member_id}
    bench.pass_time(10_001)
    assert GROUP not in bench.shard.groups
    assert bench.log.end == 0


def test_the_protocol_with_the_most_votes() -> None:
    bench = Bench(GroupConfig(initial_rebalance_delay_ms=10))
    both = (Protocol("sticky", b"s"), Protocol("range", b"r"))
    bench.join("a", protocols=both)
    bench.join("b", protocols=both[::-1])
    bench.join("c", protocols=both[::-1])
    bench.join("d", protocols=(Protocol("other", b""),))
    assert bench.last("d").error_code is ErrorCode.inconsistent_group_protocol
    bench.pass_time(40_000)
    assert bench.last("a").protocol_name == "range"
    assert [m.metadata for m in bench.last("a").members] == [b"r"] * 3


def test_failover_keeps_generation_members_and_offsets() -> None:
    bench = Bench()
    bench.join("a")
    a = bench.last("a").member_id
    bench.sync("a", a, 1, {a: b"all"})
    bench.commit("a", 5, member_id=a, generation=1)
    old = bench.fail_over()
    assert bench.group.generation == old.groups[GROUP].generation == 1  # type: ignore[attr-defined]
    bench.beat("a", a, 1)
    assert bench.last("a") is ErrorCode.none
    assert bench.offset() == 5
    bench.sync("a", a, 1)
    assert bench.last("a").assignment == b"all"
    bench.pass_time(10_001)  # a new session began with the failover, and ends
    assert bench.group.state is GroupState.EMPTY
    bench.fail_over()
    assert (bench.group.state, bench.group.generation) == (GroupState.EMPTY, 2)


def test_waiting_members_are_answered_when_the_coordinator_moves() -> None:
    bench = Bench(GroupConfig(initial_rebalance_delay_ms=1000))
    bench.join("a")
    bench.fail_over()
    assert isinstance(bench.last("a"), KafkaError)


def test_offsets_of_a_transaction_are_seen_when_it_commits() -> None:
    bench = Bench()
    bench.commit("plain", 1)
    first, second = Producer(7, 0), Producer(8, 0)
    bench.commit("first", 2, producer=first)
    bench.commit("second", 3, producer=second)
    assert bench.offset() == 1
    assert bench.offset(stable=True) is ErrorCode.unstable_offset_commit
    bench.fail_over()
    assert bench.offset(stable=True) is ErrorCode.unstable_offset_commit
    bench.marker(first, committed=False)
    assert bench.offset() == 1
    bench.marker(second, committed=True)
    assert bench.offset(stable=True) == 3
    bench.fail_over()
    assert bench.offset(stable=True) == 3


def test_a_plain_commit_after_a_transactional_one_stays() -> None:
    bench = Bench()
    producer = Producer(7, 0)
    bench.commit("txn", 2, producer=producer)
    bench.commit("plain", 9)
    bench.marker(producer, committed=True)
    assert bench.offset() == 9
    bench.fail_over()
    assert bench.offset() == 9


def test_offsets_expire_when_nobody_uses_them() -> None:
    day_ms = 86_400_000
    config = GroupConfig(initial_rebalance_delay_ms=0, offsets_retention_ms=day_ms)
    bench = Bench(config)
    bench.fail_over()  # the timer begins
    bench.commit("simple", 4)
    bench.join("a", session_timeout_ms=2 * day_ms)
    a = bench.last("a").member_id
    bench.sync("a", a, 1, {a: b"all"})
    bench.commit("a", 5, member_id=a, generation=1)
    bench.commit("a", 6, topic="other", member_id=a, generation=1)
    bench.pass_time(day_ms + 600_000)
    assert bench.offset() == 5  # subscribed
    assert bench.offset(topic="other") is None
    bench.leave("a", a)
    bench.pass_time(day_ms - 600_000)
    assert bench.offset() == 5
    bench.pass_time(1_200_000)
    assert GROUP not in bench.shard.groups
    bench.fail_over()
    assert not bench.shard.groups


def test_kafkas_record_formats() -> None:
    """Bytes as Apache Kafka 4.3 writes them; other versions are read."""
    value = records.OffsetAndMetadata(5, 2, "m", WALL_MS)
    record = records.offset_commit_record("g", ("a", 1), value)
    assert record.key == b"\0\x01" + b"\0\x01g" + b"\0\x01a" + b"\0\0\0\x01"
    assert record.value is not None
    assert record.value[:2] == b"\0\x03"
    assert records.offset_of(record.value) == value
    for version in records.OFFSET_COMMIT_VALUE.versions:
        data = records.OFFSET_COMMIT_VALUE.write(
            version,
            records.OFFSET_COMMIT_VALUE.read(record.value),
        )
        assert records.offset_of(data).offset == 5
        assert records.offset_of(data).leader_epoch == (2 if version >= 3 else -1)


def test_subscriptions() -> None:
    assert topics_of(SUBSCRIPTION) == {"a"}
    assert topics_of(b"") is None
    assert topics_of(b"\0\0\x7f\xff\xff\xff") is None


NAMES = ("a", "b", "c")
STEPS = st.one_of(
    st.tuples(st.sampled_from(["join", "sync", "beat", "leave", "commit"]), st.sampled_from(NAMES)),
    st.tuples(st.just("time"), st.sampled_from([1, 3_000, 11_000, 25_000])),
    st.tuples(st.just("failover"), st.just("")),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=40), st.integers(0, 3), st.sampled_from([0, 500]))
def test_any_order_of_requests(steps: list[tuple[str, object]], version: int, delay: int) -> None:
    """Members send any requests in any order. After each step the invariants of the group hold,
    its generation never decreases, and only members of the current generation commit. At the end
    all members follow the protocol, and the group becomes Stable with all of them."""
    bench = Bench(GroupConfig(initial_rebalance_delay_ms=delay))
    ids = dict.fromkeys(NAMES, "")
    generation = dict.fromkeys(NAMES, -1)
    leads = dict.fromkeys(NAMES, False)
    highest = 0

    def learn() -> None:
        for name in NAMES:
            for answer in bench.answers.get(name, []):
                if getattr(answer, "generation_id", -1) > 0:
                    ids[name] = answer.member_id
                    generation[name] = answer.generation_id
                    leads[name] = answer.leader == answer.member_id
            bench.answers.setdefault(name, []).clear()

    def act(step: str, name: str) -> None:
        if step == "join":
            bench.join(name, ids[name], version=version)
        elif step == "sync":
            parts = {one: one.encode() for one in ids.values()} if leads[name] else {}
            bench.sync(name, ids[name], generation[name], parts)
        elif step == "beat":
            bench.beat(name, ids[name], generation[name])
            if isinstance(bench.last(name), KafkaError):
                ids[name] = ""
        elif step == "leave":
            bench.leave(name, ids[name])
            ids[name] = ""
        elif step == "commit" and ids[name]:
            live = bench.shard.groups.get(GROUP)
            bench.commit(name, 1, member_id=ids[name], generation=generation[name])
            if bench.last(name) == [ErrorCode.none]:
                assert live is not None
                assert getattr(live, "generation", None) == generation[name]
                assert ids[name] in getattr(live, "members", {})

    for step, what in steps:
        if step == "time":
            assert isinstance(what, int)
            bench.pass_time(what)
        elif step == "failover":
            bench.fail_over()
            highest = 0  # a generation that no member synced is in no record
        else:
            act(step, str(what))
        learn()
        found = bench.shard.groups.get(GROUP)
        now = getattr(found, "generation", 0)
        assert now >= highest or found is None or now == 0
        highest = now
    bench.pass_time(400_000)  # the earlier members have left
    learn()
    ids.update(dict.fromkeys(NAMES, ""))
    for _ in range(2):  # the first to join may be alone at first, and is asked to join again
        for name in NAMES:
            bench.join(name, ids[name], version=3)
            learn()
        bench.pass_time(1_100)
        learn()
    assert all(ids.values())
    for name in sorted(NAMES, key=lambda name: leads[name]):
        act("sync", name)
    assert bench.group.state is GroupState.STABLE
    assert {m.assignment for m in bench.group.members.values()} == {
        one.encode() for one in ids.values()
    }
