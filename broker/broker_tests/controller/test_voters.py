"""Who votes: up to three, spread over racks, one change at a time."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from broker_tests.controller.support import cluster
from odradek_broker.controller.voters import Add, Remove, voter_change
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.raft.values import ReplicaKey


def key(node: int, disk: int = 0) -> ReplicaKey:
    return ReplicaKey(node, UUID(int=100 * node + disk))


def keys(*nodes: int) -> set[ReplicaKey]:
    return {key(node) for node in nodes}


def no_racks(*brokers: int) -> MetadataImage:
    return cluster(dict.fromkeys(brokers))


def test_one_broker_votes_alone():
    assert voter_change(no_racks(1), keys(1), [], leader=1) is None


def test_two_brokers_have_one_voter():
    """Two voters could spare neither."""
    assert voter_change(no_racks(1, 2), keys(1), keys(2), leader=1) is None


def test_three_brokers_get_three_voters_one_at_a_time():
    image = no_racks(1, 2, 3)
    first = voter_change(image, keys(1), keys(2, 3), leader=1)
    assert first == Add(key(2), "there are 1 of 3 voters")
    assert voter_change(image, keys(1, 2), keys(3), leader=1) == Add(
        key(3), "there are 2 of 3 voters"
    )
    assert voter_change(image, keys(1, 2, 3), [], leader=1) is None


def test_no_more_than_three():
    assert voter_change(no_racks(1, 2, 3, 4, 5), keys(1, 2, 3), keys(4, 5), leader=1) is None


def test_racks_alternate():
    image = cluster({1: "a", 2: "a", 3: "b", 4: "c"})
    first = voter_change(image, keys(1), keys(2, 3, 4), leader=1)
    assert isinstance(first, Add)
    assert first.key == key(3)
    second = voter_change(image, keys(1, 3), keys(2, 4), leader=1)
    assert isinstance(second, Add)
    assert second.key == key(4)


def test_only_those_that_are_there():
    image = cluster({1: None, 2: None, 3: None, 4: None}, fenced=[2])
    change = voter_change(image, keys(1), keys(2, 3, 4, 9), leader=1)
    assert isinstance(change, Add)
    assert change.key == key(3)


def test_an_unregistered_voter_is_replaced_and_then_removed():
    image = no_racks(1, 2, 4)
    change = voter_change(image, keys(1, 2, 3), keys(4), leader=1)
    assert change == Add(key(4), "for voter 3, who is not registered")
    change = voter_change(image, keys(1, 2, 3, 4), [], leader=1)
    assert change == Remove(key(3), "broker 3 is not registered")
    assert voter_change(image, keys(1, 2, 4), [], leader=1) is None


def test_a_cluster_that_shrinks_to_two():
    image = no_racks(1, 2)
    change = voter_change(image, keys(1, 2, 3), [], leader=2)
    assert isinstance(change, Remove)
    assert change.key == key(3)
    change = voter_change(image, keys(1, 2), [], leader=2)
    assert isinstance(change, Remove)
    assert change.key == key(1)


def test_a_voter_that_lost_its_disk_is_removed_before_it_comes_back():
    image = no_racks(1, 2, 3)
    observers = [key(3, disk=7)]
    change = voter_change(image, keys(1, 2, 3), observers, leader=1)
    assert isinstance(change, Remove)
    assert change.key == key(3)
    change = voter_change(image, keys(1, 2), observers, leader=1)
    assert isinstance(change, Add)
    assert change.key == key(3, disk=7)


@given(
    brokers=st.dictionaries(
        st.integers(1, 7), st.sampled_from(["a", "b", "c"]), min_size=1, max_size=7
    ),
    gone=st.sets(st.integers(1, 7)),
    data=st.data(),
)
def test_it_comes_to_rest(brokers, gone, data):
    """From any voters to at most three, without ever changing two at once or the leader."""
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
