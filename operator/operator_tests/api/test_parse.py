"""Manifests: defaults, and the exact text of each error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek_api.base import InvalidManifestError, quantity_bytes, settings_text
from odradek_api.parse import load, parse

CLUSTER = {"apiVersion": "odradek.dev/v1alpha1", "kind": "KafkaCluster", "metadata": {"name": "m"}}
TOPIC = {"apiVersion": "odradek.dev/v1alpha1", "kind": "Topic", "metadata": {"name": "orders"}}


def cluster(**spec: Any) -> dict[str, Any]:
    return {**CLUSTER, "spec": spec}


def topic(**spec: Any) -> dict[str, Any]:
    return {**TOPIC, "spec": {"cluster": {"name": "m"}, **spec}}


def words(document: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
    before = parse(old) if old else None
    with pytest.raises(InvalidManifestError) as refused:
        parse(document, "f.yaml", before)
    return [str(problem) for problem in refused.value.problems]


def test_an_empty_spec_is_three_brokers_with_defaults() -> None:
    resource = parse(cluster())
    assert resource is not None
    spec = resource.spec
    assert (spec.brokers, spec.engine, spec.storage.size) == (3, "embedded", "10Gi")
    assert spec.racks.topology_key == "topology.kubernetes.io/zone"
    assert resource.key == "default/m"


WHO = "f.yaml: KafkaCluster default/m: "


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"brokers": 0}, "spec.brokers: expected an integer of at least 1"),
        ({"brokers": "3"}, "spec.brokers: expected an integer, got a string"),
        ({"brokrs": 3}, "spec.brokrs: unknown field; did you mean brokers?"),
        ({"storage": {"siez": 1}}, "spec.storage.siez: unknown field; did you mean size?"),
        (
            {"listeners": {"external": {"typ": "NodePort"}}},
            "spec.listeners.external.typ: unknown field; did you mean type?",
        ),
        (
            {"engine": "redpanda"},
            "spec.engine: 'redpanda' is not an allowed value; allowed are embedded, apache",
        ),
        (
            {"storage": {"size": "ten"}},
            "spec.storage.size: expected a quantity such as 10Gi (also Ki, Mi, Ti, Pi, and k, M, "
            "G, T, P for powers of 1000)",
        ),
        (
            {"replication": {"factor": 4}},
            "spec.replication.factor: must not exceed the number of brokers (spec.brokers)",
        ),
        (
            {"replication": {"factor": 2, "minInsyncReplicas": 3}},
            "spec.replication.minInsyncReplicas: must not exceed the replication factor: no write "
            "with acks=all would ever succeed",
        ),
        ({"racks": {"names": ["a", "a"]}}, "spec.racks.names: must not name a rack twice"),
        (
            {"metrics": {"port": 9092}},
            "spec.listeners: the ports of the listeners and metrics.port must differ",
        ),
        *(
            (
                {"engine": "apache", **ports},
                "spec.listeners: ports 9093 and 9090 are reserved for the controllers of engine "
                "apache: choose another port for the listener, or another metrics.port",
            )
            for ports in (
                {"listeners": {"port": 9093}},
                {"listeners": {"external": {"port": 9093}}},
                {"metrics": {"port": 9093}},
            )
        ),
        (
            {"controllers": {}},
            "spec.controllers: dedicated controllers need engine apache; brokers of engine "
            "embedded are controllers too",
        ),
        (
            {"engine": "apache", "controllers": {"replicas": 2}},
            "spec.controllers.replicas: must be odd: an even number tolerates no more failures "
            "than one controller fewer",
        ),
        ({"config": {"node.id": 7}}, "spec.config[node.id]: is reserved: the operator assigns "
         "broker ids"),
        ({"config": {"a": {"b": 1}}}, "spec.config[a]: must be a string, a number, true, false or "
         "a list"),
    ],
)  # fmt: skip
def test_refusals_name_the_field(spec: dict[str, Any], sentence: str) -> None:
    assert words(cluster(**spec)) == [WHO + sentence]


DEDICATED = cluster(engine="apache", controllers={})


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        (cluster(engine="embedded"), cluster(engine="apache"), "spec.engine: the engine of"),
        (
            cluster(storage={"size": "1Ti"}),
            cluster(storage={"size": "1023Gi"}),
            "cannot shrink",
        ),
        (cluster(storage={"volumes": 2}), cluster(), "volumes cannot be removed"),
        (
            DEDICATED,
            cluster(engine="apache"),
            "spec.controllers: dedicated controllers",
        ),
        (
            cluster(engine="apache"),
            DEDICATED,
            "spec.controllers: dedicated controllers",
        ),
        (
            DEDICATED,
            cluster(engine="apache", controllers={"replicas": 5}),
            "spec.controllers.replicas: the number of controllers cannot change",
        ),
        (
            DEDICATED,
            cluster(engine="apache", controllers={"storage": {"size": "1Gi"}}),
            "spec.controllers.storage.size: cannot shrink",
        ),
        (topic(), {**TOPIC, "spec": {"cluster": {"name": "other"}}}, "cannot move to another"),
        (topic(name="a"), topic(name="b"), "cannot be renamed"),
        (topic(partitions=6), topic(partitions=5), "spec.partitions: partitions cannot be removed"),
        (topic(partitions=6), topic(), "spec.partitions: partitions cannot be removed"),
    ],
)
def test_invalid_changes_are_refused(old: dict[str, Any], new: dict[str, Any], field: str) -> None:
    (sentence,) = words(new, old)
    assert field in sentence


def test_valid_changes_are_accepted() -> None:
    old = parse(cluster(storage={"size": "1024Mi"}))
    assert parse(cluster(storage={"size": "1Gi"}, brokers=6), old=old) is not None


def test_topics_with_more_in_sync_replicas_than_replicas() -> None:
    (sentence,) = words(topic(replicationFactor=2, config={"min.insync.replicas": 3}))
    assert "spec.config[min.insync.replicas]: 3 exceeds the replication factor 2" in sentence


def test_a_topic_needs_its_cluster() -> None:
    (sentence,) = words({**TOPIC, "spec": {}})
    assert sentence.endswith("Topic default/orders: spec.cluster: is missing")


def test_other_api_groups_are_left_alone_and_ours_are_not() -> None:
    assert parse({"apiVersion": "apps/v1", "kind": "Deployment"}) is None
    (sentence,) = words({"apiVersion": "odradek.dev/v1alpha1", "kind": "KafkaClustr"})
    assert sentence == "f.yaml: kind: KafkaClustr is unknown; did you mean KafkaCluster?"
    (sentence,) = words({"apiVersion": "odradek.dev/v2", "kind": "Topic"})
    assert "odradek.dev/v2 is not odradek.dev/v1alpha1" in sentence


def test_all_files_are_reported_at_once(tmp_path: Path) -> None:
    head = "apiVersion: odradek.dev/v1alpha1\nkind: KafkaCluster\nmetadata: {name: m}\n"
    (tmp_path / "a.yaml").write_text(head + "spec: {brokers: 0}\n---\n" + head + "spec: {}\n")
    (tmp_path / "b.yml").write_text(head + "spec: {}\n")
    with pytest.raises(InvalidManifestError) as refused:
        load([tmp_path])
    assert [str(p) for p in refused.value.problems] == [
        "a.yaml: KafkaCluster default/m: spec.brokers: expected an integer of at least 1",
        "b.yml: KafkaCluster default/m: is also defined in a.yaml",
    ]


def test_a_file_that_is_no_yaml(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: b\n  c: [\n")
    with pytest.raises(InvalidManifestError, match=r"a\.yaml: is not valid YAML: .* in line 2"):
        load([tmp_path])
    with pytest.raises(InvalidManifestError, match="no such file or directory"):
        load([tmp_path / "missing"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidManifestError, match=r"no \.yaml, \.yml or \.json file"):
        load([tmp_path / "empty"])


def test_quantities_and_settings() -> None:
    assert quantity_bytes("10Gi") == 10 << 30
    assert quantity_bytes("1.5k") == 1500
    assert settings_text({"a": True, "b": 3, "c": ["x", "y"]}) == {
        "a": "true",
        "b": "3",
        "c": "x,y",
    }


def test_a_json_file_of_data_in_a_directory_is_no_manifest(tmp_path: Path) -> None:
    (tmp_path / "topic.yaml").write_text(
        "apiVersion: odradek.dev/v1alpha1\nkind: Topic\nmetadata: {name: t}\n"
        "spec: {cluster: {name: c}}\n"
    )
    (tmp_path / "data.json").write_text('{"visits": 3}\n{"visits": 4}\n')
    assert [resource.name for resource in load([tmp_path])] == ["t"]
    (tmp_path / "broken.json").write_text('{"apiVersion": "odradek.dev/v1alpha1", ')
    with pytest.raises(InvalidManifestError, match=r"broken\.json: is not valid YAML"):
        load([tmp_path])
