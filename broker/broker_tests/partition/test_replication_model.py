"""The state machines of leader and follower together: random histories, and planted bugs."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker_tests.partition.replication_model import ListLog, ModelCluster
from odradek_broker.metadata.image import PartitionRegistration
from odradek_broker.partition import follower_state, leader_events, leader_state
from odradek_broker.partition.follower_state import FetchPosition, FollowerState
from odradek_broker.partition.leader_events import Instructions as LeaderInstructions
from odradek_broker.partition.leader_events import PartitionChanged
from odradek_broker.partition.leader_state import LeaderState, Peers
from odradek_protocol.ids import BrokerId, LeaderEpoch, Offset

STEPS = 1000
BROKERS = st.sampled_from([BrokerId(i) for i in (1, 2, 3)])


def run(seed: int, steps: int = STEPS) -> ModelCluster:
    cluster = ModelCluster(seed, min_isr=1 + seed % 2)
    for _ in range(steps):
        cluster.random_step()
    return cluster


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_no_committed_record_is_lost_and_the_cluster_heals(first: int) -> None:
    acked = elections = 0
    for seed in range(first, first + 50):
        try:
            cluster = run(seed)
            acked += cluster.acked
            elections += cluster.elections
            cluster.heal()
            leader = cluster.brokers[cluster.registration.leader]
            assert set(cluster.registration.isr) == set(cluster.brokers)
            for broker in cluster.brokers.values():
                assert broker.log.entries == leader.log.entries
                assert broker.log.high_watermark == len(leader.log.entries)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert acked > 500
    assert elections > 100


class Replication(RuleBasedStateMachine):
    """The same cluster, with hypothesis as the adversary (it shrinks what it finds)."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = ModelCluster(seed=1)

    @rule(broker=BROKERS)
    def fetch(self, broker: BrokerId) -> None:
        self.cluster.fetch(broker)

    @rule(index=st.integers(0, 20), keep=st.booleans())
    def deliver(self, index: int, keep: bool) -> None:
        self.cluster.deliver(index, keep=keep)

    @rule(index=st.integers(0, 20))
    def drop(self, index: int) -> None:
        self.cluster.drop(index)

    @rule(broker=BROKERS)
    def produce(self, broker: BrokerId) -> None:
        self.cluster.produce(broker)

    @rule(broker=BROKERS)
    def learn(self, broker: BrokerId) -> None:
        self.cluster.learn(broker)

    @rule(broker=BROKERS, ms=st.sampled_from([5, 150]))
    def check_isr(self, broker: BrokerId, ms: int) -> None:
        self.cluster.tick(ms)
        self.cluster.check_isr(broker)

    @rule(broker=BROKERS, action=st.sampled_from(["give_up", "fence", "unfence", "restart"]))
    def disturb(self, broker: BrokerId, action: str) -> None:
        getattr(self.cluster, action)(broker)

    @rule()
    def elect(self) -> None:
        self.cluster.elect()

    @invariant()
    def nothing_is_lost(self) -> None:
        self.cluster.check()


TestReplication = Replication.TestCase
TestReplication.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)


# --- planted bugs: the histories above must be able to find them --------------------------


def shrink_before_the_controller_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    real = leader_state._propose

    def propose(state: LeaderState, isr: tuple[BrokerId, ...]) -> LeaderInstructions:
        instructions = real(state, isr)
        state.maximal_isr = frozenset(isr)
        return instructions

    monkeypatch.setattr(leader_state, "_propose", propose)


def proposed_members_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    real = leader_state._propose

    def propose(state: LeaderState, isr: tuple[BrokerId, ...]) -> LeaderInstructions:
        instructions = real(state, isr)
        state.maximal_isr = frozenset(state.isr)
        return instructions

    monkeypatch.setattr(leader_state, "_propose", propose)
    monkeypatch.setattr(leader_state, "_about_to_join", lambda *_: False)


def expand_before_the_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    def expand(state: LeaderState, _: float) -> LeaderInstructions:
        joining = tuple(i for i, f in state.followers.items() if i not in state.isr)
        return leader_state._propose(state, state.isr + joining) if joining else ()

    monkeypatch.setattr(leader_state, "_maybe_expand", expand)


def expand_before_the_start_of_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that has caught up once has reached it, so that check is left out as well."""
    real = leader_state.LeaderState.__init__

    def init(
        self: LeaderState, peers: Peers, registration: PartitionRegistration, **kwargs: Any
    ) -> None:
        real(self, peers, registration, **kwargs)
        self.epoch_start_offset = 0

    def expand(state: LeaderState, _: float) -> LeaderInstructions:
        joining = tuple(
            i
            for i, f in state.followers.items()
            if i not in state.isr
            and f.log_end_offset >= state.high_watermark
            and leader_state._eligible(state, i, f)
        )
        return leader_state._propose(state, state.isr + joining) if joining else ()

    monkeypatch.setattr(leader_state.LeaderState, "__init__", init)
    monkeypatch.setattr(leader_state, "_maybe_expand", expand)


def old_acknowledgements_count_in_a_new_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    remembered: dict[BrokerId, dict[BrokerId, Any]] = {}
    real = leader_state.LeaderState.__init__

    def init(
        self: LeaderState, peers: Peers, registration: PartitionRegistration, **kwargs: Any
    ) -> None:
        real(self, peers, registration, **kwargs)
        for replica, follower in remembered.get(peers.node_id, {}).items():
            if replica in self.followers:
                self.followers[replica] = follower
        remembered[peers.node_id] = self.followers

    monkeypatch.setattr(leader_state.LeaderState, "__init__", init)


def no_truncation(monkeypatch: pytest.MonkeyPatch) -> None:
    def diverged(diverging: tuple[LeaderEpoch, Offset], log: ListLog) -> tuple[()]:
        log.epochs.truncate_from_end(log.log_end_offset)
        log.epochs.assign(diverging[0] + 1, log.log_end_offset)
        return ()

    monkeypatch.setattr(follower_state, "_diverged", diverged)


def truncate_to_the_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    """As before KIP-101: a new follower cuts its log at its own high watermark."""
    seen: list[FollowerState] = []

    def next_fetch(state: FollowerState, log: ListLog, now_ms: float) -> FetchPosition | None:
        if state not in seen:
            seen.append(state)
            log.truncate_to(log.high_watermark)
        return REAL_NEXT_FETCH(state, log, now_ms)

    monkeypatch.setattr(follower_state, "next_fetch", next_fetch)


def stale_answers_are_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    def belongs(state: FollowerState, position: FetchPosition, log: object) -> bool:
        state.under_way = None
        return position.leader_epoch == state.leader_epoch

    monkeypatch.setattr(follower_state, "_belongs", belongs)


def the_same_metadata_undoes_a_proposal(monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(state: LeaderState, event: PartitionChanged, now_ms: float) -> LeaderInstructions:
        if event.partition_epoch >= state.partition_epoch:
            leader_state._committed(state, event.isr, event.partition_epoch)
        return leader_state._advance(state, now_ms)

    monkeypatch.setitem(leader_state._STEP, leader_events.PartitionChanged, changed)
    monkeypatch.setattr(leader_state, "_about_to_join", lambda *_: False)


REAL_NEXT_FETCH = follower_state.next_fetch

BUGS: list[tuple[Callable[[pytest.MonkeyPatch], None], int]] = [
    (shrink_before_the_controller_agrees, 300),
    (proposed_members_do_not_count, 300),
    (expand_before_the_high_watermark, 300),
    (expand_before_the_start_of_the_epoch, 2000),
    (old_acknowledgements_count_in_a_new_epoch, 300),
    (no_truncation, 100),
    (truncate_to_the_high_watermark, 100),
    (stale_answers_are_applied, 100),
    (the_same_metadata_undoes_a_proposal, 300),
]


@pytest.mark.parametrize(("plant", "seeds"), BUGS, ids=[bug.__name__ for bug, _ in BUGS])
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    # The damage must be found, not only the state that leads to it.
    monkeypatch.setattr(leader_state.LeaderState, "validate", lambda _: None)
    monkeypatch.setattr(follower_state.FollowerState, "validate", lambda _: None)
    for seed in range(seeds):
        try:
            run(seed)
        except AssertionError as error:
            print(f"seed {seed}: {error}")
            return
    raise AssertionError(f"not found in {seeds} seeds")
