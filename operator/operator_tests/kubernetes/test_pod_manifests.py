"""Pod manifests, as far as they can be checked without an API server."""

from __future__ import annotations

from typing import Any

import pytest

from odradek_operator.kubernetes.manifests import manifests
from odradek_operator.kubernetes.racks import Rack
from operator_tests.worlds import cluster


def container(engine: str = "apache", **spec: Any) -> dict[str, Any]:
    desired = cluster(brokers=1, engine=engine, **spec)
    racks = {"a": Rack("a", (0,), 1)}
    made = manifests(desired, racks, {"main-a-0": "node.id=0\n"}, {}, "odradek/apache:test")
    (pods,) = (one for one in made if one["kind"] == "StatefulSet")
    found: dict[str, Any] = pods["spec"]["template"]["spec"]["containers"][0]
    return found


def heap(**spec: Any) -> str | None:
    given = {one["name"]: one.get("value") for one in container(**spec)["env"]}
    return given.get("KAFKA_HEAP_OPTS")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, None),
        ({"resources": {"requests": {"memory": "2Gi"}}}, None),
        ({"resources": {"limits": {"memory": "2Gi"}}}, "-Xms1024m -Xmx1024m"),
        ({"resources": {"limits": {"memory": 1_000_000_000}}}, "-Xms476m -Xmx476m"),
        ({"resources": {"limits": {"memory": "1e9"}}}, "-Xms476m -Xmx476m"),
        ({"resources": {"limits": {"memory": "much"}}}, None),
        (
            {
                "resources": {"limits": {"memory": "2Gi"}},
                "podTemplate": {"env": {"KAFKA_HEAP_OPTS": "-Xmx1500m"}},
            },
            "-Xmx1500m",
        ),
    ],
)
def test_the_heap_follows_the_memory_limit(spec: dict[str, Any], expected: str | None) -> None:
    assert heap(**spec) == expected


def test_metrics_are_where_our_own_brokers_are() -> None:
    found = container(metrics={"port": 9999})
    assert "--admin-port=9999" in found["args"]
    assert {"name": "admin", "containerPort": 9999} in found["ports"]


@pytest.mark.parametrize("engine", ["embedded", "apache"])
def test_the_probes(engine: str) -> None:
    """/readyz takes a broker out of the Service within seconds, /healthz restarts it in a minute.

    Both come from the admin port, whatever its number; a start is as patient as a restart.
    """
    found = container(engine, metrics={"port": 9999})
    assert {"name": "admin", "containerPort": 9999} in found["ports"]
    assert {name: found[name] for name in found if name.endswith("Probe")} == {
        "startupProbe": {"httpGet": {"path": "/healthz", "port": "admin"}, "periodSeconds": 2,
                         "failureThreshold": 30, "timeoutSeconds": 5},
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "admin"}, "periodSeconds": 10,
                          "failureThreshold": 6, "timeoutSeconds": 5},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "admin"}, "periodSeconds": 2,
                           "failureThreshold": 2, "timeoutSeconds": 5},
    }  # fmt: skip


@pytest.mark.parametrize("engine", ["embedded", "apache"])
def test_the_last_line_of_a_broker_is_in_the_status_of_its_pod(engine: str) -> None:
    assert container(engine)["terminationMessagePolicy"] == "FallbackToLogsOnError"
