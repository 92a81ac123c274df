"""The plan of certificates: stories, and a property over random orders of writes and reloads."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek_api.kafka_cluster.security import Certificates
from odradek_operator.security.certificates import CertificatePlan, WriteKind
from odradek_operator.security.material import InvalidSecretError
from odradek_operator.security.pki import days, read
from operator_tests.security.world import START, World


def ready() -> World:
    world = World()
    world.settle()
    world.done.clear()
    return world


def kinds(world: World) -> list[str]:
    return [step.kind.value for step in world.done]


def waits(world: World) -> list[str]:
    return [one.reason for one in world.plan().waits]


def test_a_new_cluster_gets_two_cas_trust_and_certificates_for_its_names() -> None:
    world = World()
    world.settle()
    assert kinds(world) == ["create", "create", "publish trust", "issue nodes", "issue operator"]
    found = read(world.material.nodes[1].certificate_pem)
    assert found.dns == {"main-1", "localhost"}
    assert found.distinguished_name == "CN=odradek-broker,O=odradek.dev"
    assert world.plan() == CertificatePlan()
    world.check()


def test_certificates_are_renewed_before_they_expire_and_on_request() -> None:
    world = ready()
    world.now = START + days(334)
    assert world.plan() == CertificatePlan()
    world.now = START + days(335)
    world.settle()
    assert kinds(world) == ["issue nodes", "issue operator"]
    assert "expires at 2028-01-15" in world.done[0].reason
    world.renew = "now"
    world.settle()
    assert [(s.kind, s.code) for s in world.done[2:]] == [
        (WriteKind.ISSUE_NODES, "RenewalRequested")
    ]
    assert world.plan() == CertificatePlan(), "a request is handled once"


def test_a_new_broker_and_new_names_leave_other_certificates_alone() -> None:
    world = ready()
    before = world.material.nodes
    world.node_ids = (0, 1, 2, 3)
    world.settle()
    assert [step.nodes for step in world.done] == [(3,)]
    assert {n: world.material.nodes[n] for n in (0, 1, 2)} == before


def test_a_rotation_waits_for_what_each_node_really_does() -> None:
    world = ready()
    world.rotate = "please"
    while world.write_one():
        pass
    assert kinds(world)[:2] == ["add next", "add next"]
    assert waits(world) == ["nodes 0, 1, 2 to accept the new cluster CA"]
    for node in (0, 1):
        world.load(node)
        assert not world.write_one()
    assert waits(world) == ["node 2 to accept the new cluster CA"]
    world.load(2)
    while world.write_one():
        pass
    assert waits(world) == ["nodes 0, 1, 2 to serve a certificate of the new cluster CA"]
    world.load(0)
    world.load(1)
    assert waits(world) == ["node 2 to serve a certificate of the new cluster CA"]
    assert not world.write_one()
    world.load(2)
    world.settle()
    assert world.material.cluster_ca is not None
    assert not world.material.cluster_ca.old
    assert world.plan() == CertificatePlan()
    world.check()


def test_clients_have_time_to_trust_the_new_ca() -> None:
    world = World(Certificates(ca_overlap_hours=24))
    world.settle()
    world.rotate = "please"
    world.settle()
    assert waits(world) == []
    assert "can learn to trust the new cluster CA until" in world.plan().later[0].reason
    world.now += days(1)
    world.settle()
    assert "the old cluster CA is trusted until" in world.plan().later[0].reason
    world.now += days(1)
    world.settle()
    assert world.plan() == CertificatePlan()


def test_a_ca_is_replaced_in_time() -> None:
    world = ready()
    for _ in range(8 * 12):  # eight years, month by month
        world.now += days(30)
        world.settle()
        world.check()
    assert kinds(world).count("promote") == 2, "of each CA one"
    assert kinds(world).count("create") == 0


@pytest.mark.parametrize(
    ("now", "sentence"),
    [
        (START + days(4000), "the cluster CA expired at 2032-01-14T08:00:00Z"),
        (START - days(1), "the cluster CA is valid only from 2027-01-15T07:00:00Z (the clock was"),
    ],
)
def test_an_unusable_ca_is_replaced_at_once_and_the_outage_is_named(
    now: float, sentence: str
) -> None:
    """The operator was stopped for years, or its clock was ahead when it made the CA."""
    world = ready()
    world.now = now
    world.settle()
    assert world.done[0].code == "CaUnusable"
    assert world.done[0].reason.startswith(sentence)
    world.check()
    assert world.plan() == CertificatePlan()


def test_a_broken_ca_is_not_overwritten() -> None:
    world = ready()
    world.secrets["main-cluster-ca"] = {"ca.crt": b"oops"}
    with pytest.raises(InvalidSecretError, match=r"Secret main-cluster-ca: ca.crt: .* Restore it"):
        world.plan()


ACTIONS = st.sampled_from(
    ["write", "write", "load 0", "load 1", "load 2", "rotate", "renew", "day"]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ACTIONS, max_size=60))
def test_nobody_is_locked_out_whatever_the_order(actions: list[str]) -> None:
    """Writes (by an operator that may be stopped after each), reloads and requests in any order:
    at every moment all nodes and the operator accept each other; in the end a plan is empty."""
    world = ready()
    for number, action in enumerate(actions):
        match action.split():
            case ["write"]:
                world.write_one()
            case ["load", node]:
                world.load(int(node))
            case ["rotate"]:
                world.rotate = str(number)
            case ["renew"]:
                world.renew = str(number)
            case ["day"]:
                world.now += days(1)
        world.check()
    world.settle()
    assert world.plan() == CertificatePlan()
    world.check()
