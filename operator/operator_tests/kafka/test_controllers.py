"""Dedicated controllers: created with the brokers, rolled before them, the active one last."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from odradek_operator.kafka.desired import DesiredCluster, Known
from odradek_operator.kafka.explain import explain
from odradek_operator.kafka.make_plan import make_plan
from odradek_operator.kafka.observed import Observed, Phase
from odradek_operator.kafka.status import cluster_status
from operator_tests.worlds import NOW, P, cluster, running, spread, with_phase

DEDICATED: dict[str, Any] = {"engine": "apache", "brokers": 3, "controllers": {"replicas": 3}}
TOPIC = spread("orders", 3, range(3))
C0, C1, C2 = 10_000, 10_001, 10_002


def known(desired: DesiredCluster) -> Known:
    existing = {b.id: b.rack for b in desired.brokers.values()}
    controllers = {c.id: c.rack for c in desired.controllers.values()}
    return Known(existing, {}, desired.formation, "id", controllers)


def changed(**change: Any) -> DesiredCluster:
    annotations = change.pop("annotations", {})
    return cluster(known(cluster(**DEDICATED)), annotations, **{**DEDICATED, **change})


def plan(desired: DesiredCluster, observed: Observed) -> list[str]:
    return [explain(action) for action in make_plan(desired, observed)]


def now(**kafka: Any) -> Observed:
    return running(cluster(**DEDICATED), *TOPIC, **kafka)


def restarted(observed: Observed, desired: DesiredCluster, *nodes: int) -> Observed:
    """As if these nodes had restarted with the new settings."""
    made: dict[str, Any] = {
        kind: {
            n: replace(found, started_with=desired.nodes[n].settings) if n in nodes else found
            for n, found in getattr(observed, kind).items()
        }
        for kind in ("brokers", "controllers")
    }
    return replace(observed, **made)


def test_a_new_cluster() -> None:
    desired = cluster(**DEDICATED)
    assert desired.formation == (C0, C1, C2)
    assert {c.rack for c in desired.controllers.values()} == {"a", "b", "c"}
    assert plan(desired, Observed(NOW)) == [
        "start controllers 10000, 10001 and 10002: controllers 10000, 10001 and 10002 do not exist "
        "yet",
        "start brokers 0, 1 and 2: brokers 0, 1 and 2 do not exist yet",
    ]
    assert plan(desired, now()) == []


def test_a_roll_from_the_first_to_the_last() -> None:
    """Every step from a settled cluster; 10001 is the active controller."""
    after = changed(annotations={"odradek.dev/restart": "1"})
    observed = now(controller=C1)
    order = []
    while made := plan(after, observed):
        assert len(made) == 1
        node = int(made[0].split(":")[0].split()[-1])
        order.append(node)
        observed = restarted(observed, after, node)
    assert order[:3] == [C0, C2, C1]
    assert sorted(order[3:]) == [0, 1, 2]


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        (with_phase(now(), Phase.STARTING, C1), "wait: controller 10001 is starting"),
        (with_phase(now(), Phase.STARTING, 1), "wait: broker 1 is starting"),
        (now(controller=-1), "wait: the cluster has no active controller"),
        (
            with_phase(now(), Phase.CRASHED, C2),
            "restart controller 10002: controller 10002 cannot run with the old settings; "
            "controller 10002: a restart was requested",
        ),
        (
            with_phase(with_phase(now(), Phase.STARTING, C0), Phase.CRASHED, 2),
            "restart broker 2: broker 2 cannot run with the old settings; broker 2: a restart was "
            "requested",
        ),
    ],
)
def test_what_a_roll_waits_for(observed: Observed, expected: str) -> None:
    found = plan(changed(annotations={"odradek.dev/restart": "1"}), observed)
    assert found[0] == expected


def test_a_voter_that_came_back_has_to_catch_up_first() -> None:
    after = changed(annotations={"odradek.dev/restart": "1"})
    observed = restarted(now(lagging_voters=frozenset({C1})), after, C1)
    assert plan(after, observed) == [
        "wait: controller 10002 cannot restart yet: other voters of the metadata quorum are lagging"
    ]


def test_a_lagging_voter_itself_may_go() -> None:
    """A lagging voter is no part of the majority: after 10002, 10001 is next although it lags."""
    after = changed(annotations={"odradek.dev/restart": "1"})
    observed = restarted(now(lagging_voters=frozenset({C1})), after, C2)
    assert plan(after, observed)[0] == "restart controller 10001: a restart was requested"


def test_an_isr_that_is_not_whole_stops_the_controllers_too() -> None:
    after = changed(annotations={"odradek.dev/restart": "1"})
    wanting = [P("orders-0: 0 1 2 | 0 1")]
    observed = restarted(running(cluster(**DEDICATED), *wanting), after, 2)
    assert plan(after, observed)[0] == (
        "wait: orders-0 has 2 of 3 replicas in sync; waiting for broker 2"
    )


def test_changes_restart_only_the_nodes_that_they_concern() -> None:
    small = {"replicas": 3, "resources": {"limits": {"memory": "1Gi"}}}
    assert plan(changed(controllers=small), now()) == [
        "restart controller 10001: resources or pod template changed"
    ]
    large = {"limits": {"memory": "4Gi"}}
    assert plan(changed(resources=large), now())[0].startswith("restart broker ")
    # The controller creates topics with its own defaults, so it needs these settings.
    assert plan(changed(config={"num.partitions": 4}), now()) == [
        "restart controller 10001: num.partitions changed"
    ]
    assert plan(changed(config={"log.cleaner.threads": 2}), now()) == [
        "alter all brokers: without a restart: log.cleaner.threads=2"
    ]


def test_more_brokers_restart_nobody() -> None:
    assert plan(changed(brokers=4), now()) == ["start broker 3: broker 3 does not exist yet"]


def test_a_controller_that_is_gone_comes_back() -> None:
    observed = with_phase(now(), Phase.STOPPED, C2)
    assert plan(cluster(**DEDICATED), observed)[0] == (
        "start controller 10002: controller 10002 is not running"
    )


@pytest.mark.parametrize("dedicated", [True, False])
def test_a_cluster_stays_as_it_was_formed(dedicated: bool) -> None:
    """Volumes of an earlier cluster: the API server has no old object to compare with."""
    combined = {"engine": "apache", "brokers": 3}
    before = cluster(**(DEDICATED if dedicated else combined))
    after = cluster(known(before), **(combined if dedicated else DEDICATED))
    assert {n: b.settings for n, b in after.nodes.items()} == {
        n: b.settings for n, b in before.nodes.items()
    }
    assert plan(after, running(before, *TOPIC)) == [
        "refuse: spec.controllers: dedicated controllers cannot be added to a cluster or removed "
        "from it: create a new cluster and copy the topics with `odradek migrate`"
    ]


def test_the_number_of_controllers_stays_as_it_was_formed() -> None:
    before = cluster(**DEDICATED)
    after = cluster(known(before), **{**DEDICATED, "controllers": {"replicas": 1}})
    assert after.controllers.keys() == before.controllers.keys()
    assert plan(after, running(before, *TOPIC)) == [
        "refuse: spec.controllers: the number of controllers cannot change"
    ]


def test_status() -> None:
    desired = changed(annotations={"odradek.dev/restart": "1"})
    observed = with_phase(now(controller=C1), Phase.STARTING, C0)
    found = cluster_status(desired, observed, make_plan(desired, observed))
    assert [(c.id, c.rack, c.ready, c.active) for c in found.controllers] == [
        (C0, "a", False, False), (C1, "b", True, True), (C2, "c", True, False),
    ]  # fmt: skip
    assert found.controller == C1
    assert [b.id for b in found.brokers] == [0, 1, 2]
    assert found.rolling is not None
    assert found.rolling.remaining == [C0, C1, C2, 0, 1, 2]
    ready = {c.type: c for c in found.conditions}["Ready"]
    assert (ready.status, ready.message) == ("False", "controller 10000 of 3 is not ready")
    assert found.selector == "odradek.dev/cluster=main,odradek.dev/role=broker"
