"""The voters of the quorum: up to three, spread over racks, one change at a time."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from broker_tests.controller.support import cluster
from odradek_broker.controller.voters import (
    AUTO_JOIN,
    Add,
    Remove,
    forget_removal,
    remember_removal,
    voter_change,
)
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.records import ConfigRecord, ResourceType
from odradek_broker.raft.values import ReplicaKey


def key(node: int, disk: int = 0) -> ReplicaKey:
    return ReplicaKey(node, UUID(int=100 * node + disk))


def keys(*nodes: int) -> set[ReplicaKey]:
    return {key(node) for node in nodes}


def no_racks(*brokers: int) -> MetadataImage:
    return cluster(dict.fromkeys(brokers))


def test_one_broker_votes_alone() -> None:
    assert voter_change(no_racks(1), keys(1), [], leader=1) is None


def test_two_brokers_have_one_voter() -> None:
    """A quorum of two voters tolerates no failure."""
    assert voter_change(no_racks(1, 2), keys(1), keys(2), leader=1) is None


def test_three_brokers_get_three_voters_one_at_a_time() -> None:
    image = no_racks(1, 2, 3)
    first = voter_change(image, keys(1), keys(2, 3), leader=1)
    assert first == Add(key(2), "there are 1 of 3 voters")
    assert voter_change(image, keys(1, 2), keys(3), leader=1) == Add(
        key(3), "there are 2 of 3 voters"
    )
    assert voter_change(image, keys(1, 2, 3), [], leader=1) is None


def test_no_more_than_three() -> None:
    assert voter_change(no_racks(1, 2, 3, 4, 5), keys(1, 2, 3), keys(4, 5), leader=1) is None


def test_racks_alternate() -> None:
    image = cluster({1: "a", 2: "a", 3: "b", 4: "c"})
    first = voter_change(image, keys(1), keys(2, 3, 4), leader=1)
    assert isinstance(first, Add)
    assert first.key == key(3)
    second = voter_change(image, keys(1, 3), keys(2, 4), leader=1)
    assert isinstance(second, Add)
    assert second.key == key(4)


def test_only_live_brokers_become_voters() -> None:
    image = cluster({1: None, 2: None, 3: None, 4: None}, fenced=[2])
    change = voter_change(image, keys(1), keys(2, 3, 4, 9), leader=1)
    assert isinstance(change, Add)
    assert change.key == key(3)


def test_an_unregistered_voter_is_replaced_and_then_removed() -> None:
    image = no_racks(1, 2, 4)
    change = voter_change(image, keys(1, 2, 3), keys(4), leader=1)
    assert change == Add(key(4), "replaces voter 3, which is not registered")
    change = voter_change(image, keys(1, 2, 3, 4), [], leader=1)
    assert change == Remove(key(3), "broker 3 is not registered")
    assert voter_change(image, keys(1, 2, 4), [], leader=1) is None


def test_a_cluster_that_shrinks_to_two() -> None:
    image = no_racks(1, 2)
    change = voter_change(image, keys(1, 2, 3), [], leader=2)
    assert isinstance(change, Remove)
    assert change.key == key(3)
    change = voter_change(image, keys(1, 2), [], leader=2)
    assert isinstance(change, Remove)
    assert change.key == key(1)


def test_a_voter_that_lost_its_disk_is_removed_before_it_comes_back() -> None:
    image = no_racks(1, 2, 3)
    observers = [key(3, disk=7)]
    change = voter_change(image, keys(1, 2, 3), observers, leader=1)
    assert isinstance(change, Remove)
    assert change.key == key(3)
    change = voter_change(image, keys(1, 2), observers, leader=1)
    assert isinstance(change, Add)
    assert change.key == key(3, disk=7)


def set_auto_join(image: MetadataImage, broker: str, value: str) -> MetadataImage:
    delta = MetadataDelta(image)
    delta.replay(ConfigRecord(ResourceType.BROKER, broker, AUTO_JOIN, value))
    return delta.finish(image.offset + 1).after


class TestWhatTheOperatorSaid:
    LISTED = (1, 2, 3)

    def test_listed_voters_wait_for_each_other(self) -> None:
        """Broker 3 starts late: 4 and 5 do not become voters in its place."""
        image = no_racks(1, 2, 4, 5)
        assert voter_change(image, keys(1), keys(2, 4, 5), 1, self.LISTED) is None
        assert voter_change(image, keys(1, 2), keys(4, 5), 1, self.LISTED) is None
        image = no_racks(1, 2, 3, 4, 5)
        change = voter_change(image, keys(1, 2), keys(3, 4, 5), 1, self.LISTED)
        assert change == Add(key(3), "there are 2 of 3 voters")

    def test_racks_do_not_count_more_than_the_list(self) -> None:
        image = cluster({1: "a", 2: "a", 3: "a", 4: "b"})
        change = voter_change(image, keys(1), keys(2, 3, 4), 1, self.LISTED)
        assert isinstance(change, Add)
        assert change.key == key(2)

    def test_five_listed_vote(self) -> None:
        image = no_racks(1, 2, 3, 4, 5)
        listed = (1, 2, 3, 4, 5)
        change = voter_change(image, keys(1, 2, 3), keys(4, 5), 1, listed)
        assert change == Add(key(4), "there are 3 of 5 voters")
        assert voter_change(image, keys(*listed), [], 1, listed) is None

    def test_an_unlisted_one_votes_for_a_listed_one_that_was_unregistered(self) -> None:
        image = no_racks(1, 2, 4)
        change = voter_change(image, keys(1, 2, 3), keys(4), 1, self.LISTED)
        assert isinstance(change, Add)
        assert change.key == key(4)

    def test_one_removed_by_hand_is_not_taken_in_again(self) -> None:
        image = set_auto_join(no_racks(1, 2, 3), "3", "false")
        assert voter_change(image, keys(1, 2), keys(3), 1, self.LISTED) is None
        assert voter_change(image, keys(1, 2), keys(3), 1) is None
        image = set_auto_join(image, "3", "true")
        assert isinstance(voter_change(image, keys(1, 2), keys(3), 1), Add)

    def test_voters_are_left_to_the_operator(self) -> None:
        image = set_auto_join(no_racks(1, 2, 3, 4), "", "false")
        assert voter_change(image, keys(1), keys(2, 3, 4), 1) is None

    def test_the_memory_is_a_setting_that_is_written_once_and_taken_back(self) -> None:
        image = no_racks(1, 2, 3)
        (record,) = remember_removal(image, 3).records
        assert record == ConfigRecord(ResourceType.BROKER, "3", AUTO_JOIN, "false")
        removed = set_auto_join(image, "3", "false")
        assert not remember_removal(removed, 3).records
        assert forget_removal(removed, 3).records
        assert not forget_removal(image, 3).records


@given(
    brokers=st.dictionaries(
        st.integers(1, 7), st.sampled_from(["a", "b", "c"]), min_size=1, max_size=7
    ),
    gone=st.sets(st.integers(1, 7)),
    data=st.data(),
)
def test_the_set_of_voters_converges(
    brokers: dict[int, str], gone: set[int], data: st.DataObject
) -> None:
    """From any set to at most three voters, one change at a time, never removing the leader."""
    image = cluster(brokers)
    nodes = sorted({*brokers, *gone})
    voters = {key(n) for n in data.draw(st.sets(st.sampled_from(nodes), min_size=1, max_size=4))}
    leader = min(voter.id for voter in voters)
    for _ in range(20):
        observers = {key(n) for n in brokers} - voters
        change = voter_change(image, voters, observers, leader)
        if change is None:
            break
        if isinstance(change, Add):
            assert change.key not in voters
            voters = voters | {change.key}
        else:
            assert change.key in voters
            assert change.key.id != leader
            voters = voters - {change.key}
        assert voters
    else:
        raise AssertionError("it never comes to rest")
    assert len(voters) <= 4
    if len(brokers) >= 3 and leader in brokers:
        assert len(voters) >= 3
