"""The CRDs on a real API server: accepted, defaults filled in, invalid specs refused."""

from typing import Any

import pytest
import yaml

from odradek_testkit.kubernetes.control_plane import ControlPlane, ControlPlaneError


def cluster(namespace: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "odradek.dev/v1alpha1",
        "kind": "KafkaCluster",
        "metadata": {"name": "main", "namespace": namespace},
        "spec": spec,
    }


def test_defaults_are_filled_in(kubernetes: ControlPlane, namespace: str) -> None:
    kubernetes.apply(cluster(namespace))
    text = kubernetes.kubectl("get", "kafkacluster", "main", "-n", namespace, "-o", "yaml")
    spec = yaml.safe_load(text)["spec"]
    assert spec["brokers"] == 3
    assert spec["engine"] == "embedded"
    assert spec["storage"] == {"size": "10Gi", "volumes": 1, "deletionPolicy": "Retain"}
    assert "listeners" not in spec  # has two forms, which only the operator's parser knows


def test_columns_and_short_names(kubernetes: ControlPlane, namespace: str) -> None:
    kubernetes.apply(cluster(namespace))
    head, row = kubernetes.kubectl("get", "kc", "-n", namespace).splitlines()
    assert head.split()[:3] == ["NAME", "ENGINE", "BROKERS"]
    assert row.split()[:3] == ["main", "embedded", "3"]


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"brokers": 3, "replication": {"factor": 5}}, "must not exceed the number of brokers"),
        ({"brokers": 0}, "spec.brokers"),
        ({"storage": {"size": "ten"}}, "spec.storage.size"),
        (
            {"replication": {"factor": 2, "minInsyncReplicas": 3}},
            "exceed the replication factor",
        ),
        ({"controllers": {"replicas": 3}}, "dedicated controllers need engine apache"),
        ({"engine": "apache", "controllers": {"replicas": 4}}, "an even number tolerates"),
        ({"colour": "green"}, "spec.colour"),
    ],
)
def test_invalid_specs_are_refused(
    kubernetes: ControlPlane, spec: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ControlPlaneError, match=sentence):
        kubernetes.apply(cluster("default", **spec))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"engine": "apache"}, "cannot change"),
        ({"storage": {"size": "1Gi"}}, "cannot shrink"),
    ],
    ids=["engine", "storage"],
)
def test_changes_of_immutable_fields_are_refused(
    kubernetes: ControlPlane, namespace: str, change: dict[str, Any], sentence: str
) -> None:
    kubernetes.apply(cluster(namespace))
    with pytest.raises(ControlPlaneError, match=sentence):
        kubernetes.apply(cluster(namespace, **change))


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (None, {"replicas": 3}, "dedicated controllers cannot be added"),
        ({"replicas": 3}, {"replicas": 5}, "the number of controllers cannot change"),
        ({"storage": {"size": "2Gi"}}, {"storage": {"size": "1Gi"}}, "cannot shrink"),
    ],
    ids=["dedicated", "number", "storage"],
)
def test_controllers_stay(
    kubernetes: ControlPlane,
    namespace: str,
    old: dict[str, Any] | None,
    new: dict[str, Any],
    sentence: str,
) -> None:
    before = {"controllers": old} if old else {}
    kubernetes.apply(cluster(namespace, engine="apache", **before))
    with pytest.raises(ControlPlaneError, match=sentence):
        kubernetes.apply(cluster(namespace, engine="apache", controllers=new))
    if old:
        larger = {**old, "storage": {"size": "7Gi"}}
        kubernetes.apply(cluster(namespace, engine="apache", controllers=larger))


def test_scale(kubernetes: ControlPlane, namespace: str) -> None:
    kubernetes.apply(cluster(namespace))
    kubernetes.kubectl("scale", "kafkacluster/main", "--replicas=5", "-n", namespace)
    path = "jsonpath={.spec.brokers}"
    assert kubernetes.kubectl("get", "kc", "main", "-n", namespace, "-o", path) == "5"


def pipeline(namespace: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "odradek.dev/v1alpha1",
        "kind": "SparkPipeline",
        "metadata": {"name": "main", "namespace": namespace},
        "spec": {"cluster": {"name": "main"}, "sources": [{"topics": ["a"]}], **spec},
    }


TWO: list[dict[str, Any]] = [
    {"name": "a", "console": {}},
    {"name": "b", "from": "source", "topic": {"name": "t"}},
]


def test_a_pipeline_with_several_sinks_and_lookups(
    kubernetes: ControlPlane, namespace: str
) -> None:
    found = [{"name": "seen", "topic": {"name": "seen"}}]
    kubernetes.apply(pipeline(namespace, sinks=TWO, lookups=found, batchTarget="10 seconds"))
    text = kubernetes.kubectl("get", "sparkpipeline", "main", "-n", namespace, "-o", "yaml")
    spec = yaml.safe_load(text)["spec"]
    assert [(sink["name"], sink["outputMode"]) for sink in spec["sinks"]] == [
        ("a", "append"), ("b", "append"),
    ]  # fmt: skip
    assert spec["lookups"][0]["refresh"] == "1 minute"


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({}, "exactly one of topic, table, mirror and console is required"),
        ({"sinks": TWO, "sink": {"console": {}}}, "excludes sink"),
        ({"sinks": [{"name": "a"}]}, "each sink needs exactly one of"),
        ({"sinks": [{"name": "A", "console": {}}]}, "spec.sinks"),
        ({"sinks": [{**TWO[0], "name": f"s{n}"} for n in range(9)]}, "spec.sinks"),
        ({"sinks": TWO, "lookups": [{"name": "x"}]}, "each lookup needs exactly one of"),
        ({"sdp": {"path": "p"}, "sources": [], "sinks": TWO}, "remove sources, lookups"),
    ],
)
def test_invalid_pipelines_are_refused(
    kubernetes: ControlPlane, spec: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ControlPlaneError, match=sentence):
        kubernetes.apply(pipeline("default", **spec))
