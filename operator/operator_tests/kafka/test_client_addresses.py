"""Addresses of listeners in the status and in the Secrets of users: node ports need the machine."""

from __future__ import annotations

from dataclasses import replace

from odradek_operator.kafka.desired import DesiredCluster
from odradek_operator.kafka.make_plan import make_plan
from odradek_operator.kafka.observed import Observed
from odradek_operator.kafka.status import cluster_status
from odradek_operator.reconcile.entrance import entrance
from operator_tests.worlds import cluster, running

OUTSIDE = {"name": "outside", "port": 9096, "type": "nodeport"}


def with_node_ports() -> DesiredCluster:
    """Two brokers with the settings that their pods get on Kubernetes."""
    made = cluster(brokers=2, listeners=[{"name": "clients", "port": 9092}, OUTSIDE])
    brokers = {}
    for number, broker in made.brokers.items():
        inside, outside = f"CLIENTS://b{number}:9092", f"${{env:HOST_IP}}:3000{number}"
        advertised = {"advertised.listeners": f"{inside},OUTSIDE://{outside}"}
        brokers[number] = replace(broker, settings={**broker.settings, **advertised})
    return replace(made, brokers=brokers)


def on_machines(observed: Observed, *addresses: str) -> Observed:
    brokers = {
        number: replace(one, host_ip=address)
        for (number, one), address in zip(observed.brokers.items(), addresses, strict=True)
    }
    return replace(observed, brokers=brokers)


def bootstraps(desired: DesiredCluster, observed: Observed) -> tuple[dict[str, str], ...]:
    """In the status, and for users."""
    status = cluster_status(desired, observed, make_plan(desired, observed))
    doors = entrance(desired, observed, None).listeners
    return (
        {one.name: one.bootstrap_servers for one in status.listeners},
        {one.name: one.bootstrap for one in doors},
    )


def test_node_ports_are_at_the_addresses_of_the_machines() -> None:
    desired = with_node_ports()
    for found in bootstraps(desired, on_machines(running(desired), "10.0.0.1", "10.0.0.2")):
        assert found == {"clients": "b0:9092,b1:9092", "outside": "10.0.0.1:30000,10.0.0.2:30001"}


def test_a_broker_whose_machine_is_not_known_is_left_out() -> None:
    desired = with_node_ports()
    for found in bootstraps(desired, on_machines(running(desired), "", "10.0.0.2")):
        assert found == {"clients": "b0:9092,b1:9092", "outside": "10.0.0.2:30001"}
