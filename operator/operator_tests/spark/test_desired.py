"""What a SparkPipeline becomes on Kubernetes, held by golden files; ODRADEK_GOLDEN=write renews."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from odradek_api.parse import load, parse
from odradek_api.pipeline.job import read_job
from odradek_operator.kubernetes.spark_manifests import (
    executor_template,
    memory_mb,
    objects,
    submit_arguments,
)
from odradek_operator.spark.desired import application, config_map, job_of
from odradek_operator.spark.plan import submission_of

EXAMPLES = Path(__file__).parents[3] / "examples" / "pipelines"
GOLDEN = Path(__file__).parent / "golden"
OWNER = {"apiVersion": "odradek.dev/v1alpha1", "kind": "SparkPipeline", "name": "x", "uid": "u"}
CLUSTERS = {"default/main": "main-bootstrap.default.svc:9092"}
ZONE = "topology.kubernetes.io/zone"


def pipeline(**kubernetes: Any) -> Any:
    (found,) = [r for r in load([EXAMPLES / "web-activity"]) if r.kind == "SparkPipeline"]
    document = yaml.safe_load((EXAMPLES / "web-activity" / "pipeline.yaml").read_text())
    document["spec"]["kubernetes"] = kubernetes
    made = parse(document)
    assert made is not None
    assert made.name == found.name
    return made


def golden(name: str, made: Any) -> None:
    text = yaml.safe_dump_all(made, sort_keys=True, width=100)
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("ODRADEK_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text


def test_a_pipeline_as_a_sparkapplication() -> None:
    one = pipeline(
        volumeClaim="pipelines", timeToLiveSeconds=600, imagePullSecrets=["registry"],
        executor={"instances": 2, "memory": "2g", "nodeSelector": {ZONE: "zone-a"}},
        driver={"env": [{"name": "A", "value": "1"}]},
        dynamicAllocation={"enabled": True, "minExecutors": 1, "maxExecutors": 4},
    )  # fmt: skip
    config = config_map(one, job_of(one, CLUSTERS, ZONE), OWNER)
    made = application(one, config["metadata"]["name"], "odradek/spark:test", OWNER)
    golden("spark-application", [config, made])
    run_by_us = {**made, "metadata": {**made["metadata"], "uid": "a"}}
    golden("spark-driver", objects(run_by_us, submission_of(run_by_us)))


def test_the_job_is_read_by_the_driver() -> None:
    """What the operator writes is what odradek_spark takes; its rack is that of its executors."""
    one = pipeline(executor={"nodeSelector": {ZONE: "zone-a"}})
    config = config_map(one, job_of(one, CLUSTERS, ZONE), OWNER)
    job = read_job(config["data"]["job.json"].encode())
    assert job.spec == one.spec
    assert job.client_rack == "zone-a"
    source = job.spec.sources[0]
    assert job.bootstrap("x", source.cluster, source.kafka) == CLUSTERS["default/main"]


def test_another_job_is_another_submission() -> None:
    one = pipeline()
    names = [
        config_map(one, job_of(one, {"default/main": where}, ZONE), OWNER)["metadata"]["name"]
        for where in ("a:1", "b:1")
    ]
    assert len(set(names)) == 2
    digests = {submission_of(application(one, name, "i", OWNER)) for name in names}
    assert len(digests) == 2


def test_a_plain_sparkapplication_of_a_user() -> None:
    """Scala, with dependencies: the arguments of spark-submit."""
    made = {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "pi", "namespace": "team"},
        "spec": {
            "type": "Scala", "mode": "cluster", "image": "spark:4.0.0",
            "mainClass": "org.example.Pi", "mainApplicationFile": "local:///opt/pi.jar",
            "arguments": ["10"], "deps": {"jars": ["a.jar", "b.jar"]},
            "sparkConf": {"spark.executor.instances": "7"}, "hadoopConf": {"fs.x": "y"},
            "driver": {"serviceAccount": "own"},
            "executor": {"env": [{"name": "P", "valueFrom": {
                "secretKeyRef": {"name": "s", "key": "k"}}}]},
        },
    }  # fmt: skip
    arguments = submit_arguments(made)
    assert arguments[:6] == ["--master", "k8s://https://kubernetes.default.svc", "--name", "pi",
                             "--class", "org.example.Pi"]  # fmt: skip
    assert arguments[-2:] == ["local:///opt/pi.jar", "10"]
    for conf in ("spark.jars=a.jar,b.jar", "spark.executor.instances=7", "spark.hadoop.fs.x=y",
                 "spark.driver.host=pi-driver.team.svc"):  # fmt: skip
        assert conf in arguments
    assert [one["kind"] for one in objects(made, "s")] == [
        "ConfigMap", "Service", "Service", "Pod"]  # fmt: skip
    (container,) = executor_template(made)["spec"]["containers"]
    assert container["env"] == made["spec"]["executor"]["env"]  # type: ignore[index]

    assert json.dumps(objects(made, "s"))


@pytest.mark.parametrize(
    ("pod", "kind", "expected"),
    [
        ({}, "Java", 1024 + 384),
        ({"memory": "2g"}, "Python", 2048 + 819),
        ({"memory": "512m", "memoryOverhead": "1g"}, "Python", 1536),
        ({"memory": "8Gi"}, "Scala", 8192 + 819),
    ],
)
def test_memory_of_the_container(pod: Any, kind: str, expected: int) -> None:
    assert memory_mb(pod, kind) == expected
