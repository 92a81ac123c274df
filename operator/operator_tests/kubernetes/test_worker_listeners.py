"""Passes of the operator on a real API server: listeners outside of the cluster."""

import pytest

from odradek_operator.kubernetes import platform
from odradek_operator.security.pki import read
from odradek_testkit.kubernetes.world import World
from operator_tests.kubernetes.worker_support import found, quiet, said, uids


def test_external_addresses_are_known_before_a_broker_starts(world: World) -> None:
    world.cluster(brokers=3, listeners={"external": {"type": "NodePort"}})
    world.settle()
    services = found(world, "service")
    port = services["main-zone-a-0-external"]["spec"]["ports"][0]["nodePort"]
    advertised = world.kafka.up[0]["advertised.listeners"]
    assert advertised.endswith(f",EXTERNAL://${{env:HOST_IP}}:{port}")
    assert len([w for w in world.wire.writes if w.endswith("/eviction")]) == 0
    world.cluster(brokers=3, listeners={})
    world.settle()
    assert "EXTERNAL" not in world.kafka.up[0]["advertised.listeners"]
    assert sorted(found(world, "service")) == ["main-bootstrap", "main-brokers"]
    quiet(world)


def test_load_balancers_give_every_broker_its_address(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed = [{"id": 2, "host": "kafka-2.example", "port": 30002}]
    external = {"type": "LoadBalancer", "port": 9095, "brokers": fixed}
    world.cluster(brokers=3, listeners={"external": external})
    world.one_pass()
    world.one_pass()
    assert not found(world, "pod")  # no address, no broker: it would have to be restarted
    assert said(world, "Waiting") == {"Normal"}
    assert not said(world, "Failed")
    monkeypatch.setattr(platform, "ADDRESS_GRACE_S", -1.0)
    world.one_pass()
    assert said(world, "Failed") == {"Warning"}  # they get no address: that is reported
    for letter in "abc":
        ingress = {"loadBalancer": {"ingress": [{"hostname": f"lb-{letter}.example"}]}}
        name = f"main-zone-{letter}-0-external"
        world.kubernetes.patch_status("service", name, ingress, world.namespace)
    world.settle()
    told = {b: s["advertised.listeners"].rpartition(",")[2] for b, s in world.kafka.up.items()}
    assert told == {
        0: "EXTERNAL://lb-a.example:9095",
        1: "EXTERNAL://lb-b.example:9095",
        2: "EXTERNAL://kafka-2.example:30002",
    }
    assert len([w for w in world.wire.writes if w.endswith("/eviction")]) == 0
    quiet(world)


def test_several_external_listeners_and_a_proxy_that_passes_tls_through(world: World) -> None:
    """Node ports, load balancers and SNI at a time; one of them is added while brokers run."""
    scram = {"tls": True, "authentication": {"type": "scram-sha-512"}}
    inside = {"name": "clients", "port": 9092, **scram}
    ports = {"name": "nodes", "port": 9094, "type": "nodeport", **scram,
             "advertised": [{"id": 1, "host": "one.example", "port": 31001}]}  # fmt: skip
    proxy = {"name": "web", "port": 9096, "type": "passthrough", **scram,
             "hostPattern": "kafka-{id}.example"}  # fmt: skip
    world.cluster(brokers=3, security="strict", listeners=[inside, ports])
    world.settle()
    before = uids(world)
    world.cluster(brokers=3, security="strict", listeners=[inside, ports, proxy])
    world.settle()
    assert not set(uids(world).values()) & set(before.values()), "a listener needs a restart"
    services = found(world, "service")
    node_port = services["main-zone-a-0-nodes"]["spec"]["ports"][0]["nodePort"]
    assert services["main-zone-c-0-web"]["spec"]["type"] == "ClusterIP"
    assert services["main-web-bootstrap"]["spec"]["ports"][0]["targetPort"] == 9096
    told = {
        broker: dict(one.split("://") for one in settings["advertised.listeners"].split(","))
        for broker, settings in world.kafka.up.items()
    }
    assert told[0]["NODES"] == f"${{env:HOST_IP}}:{node_port}"
    assert told[1]["NODES"] == "one.example:31001"
    assert [told[n]["WEB"] for n in (0, 1, 2)] == [f"kafka-{n}.example:443" for n in (0, 1, 2)]
    shown = read(world.certificates.loaded[1].certificate_pem)
    assert {"kafka-1.example", "kafka-bootstrap.example", "one.example"} <= shown.dns
    assert "kafka-0.example" not in shown.dns
    quiet(world)
    world.cluster(brokers=3, security="strict", listeners=[inside])
    world.settle()
    assert sorted(found(world, "service")) == ["main-bootstrap", "main-brokers"]
