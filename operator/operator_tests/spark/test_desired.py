"""The objects of a SparkPipeline on Kubernetes, held by golden files (ODRADEK_GOLDEN=write)."""

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from odradek_api.base import RESTART_ANNOTATION, Condition
from odradek_api.kafka_cluster.status import KafkaClusterStatus
from odradek_api.kafka_user.status import KafkaUserStatus
from odradek_api.parse import load, parse
from odradek_api.pipeline.common import UserRef
from odradek_api.pipeline.job import clusters_of, read_job, users_of
from odradek_api.pipeline.status import JobStatus, QueryProgress, SparkPipelineStatus
from odradek_api.topic import TopicStatus
from odradek_operator.kubernetes.pipeline_controller import with_progress
from odradek_operator.kubernetes.spark_manifests import (
    executor_template,
    memory_mb,
    objects,
    submit_arguments,
)
from odradek_operator.spark.desired import application, config_map, job_of, own_claim, unusable
from odradek_operator.spark.plan import submission_of
from odradek_operator.spark.waiting import waits_for

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


def golden(name: str, made: Iterable[dict[str, Any]]) -> None:
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


def test_without_executors_one_pod_has_a_claim_of_its_own() -> None:
    one = pipeline()
    config = config_map(one, job_of(one, CLUSTERS, ZONE), OWNER)
    made = application(one, config["metadata"]["name"], "odradek/spark:test", OWNER)
    claim = own_claim(one, OWNER)
    assert claim is not None
    assert "ownerReferences" not in claim["metadata"], "tables outlive the pipeline"
    run_by_us = {**made, "metadata": {**made["metadata"], "uid": "a"}}
    pod = objects(run_by_us, submission_of(run_by_us))[-1]
    golden("one-pod", [claim, made, pod])
    deleted = own_claim(pipeline(storage={"deleteClaim": True}), OWNER)
    assert deleted is not None
    assert deleted["metadata"]["ownerReferences"] == [OWNER]


def declarative(**changes: Any) -> Any:
    document = yaml.safe_load((EXAMPLES / "declarative" / "pipeline.yaml").read_text())
    document["spec"] |= changes
    return parse(document)


def test_a_project_of_declarative_pipelines() -> None:
    """Its ConfigMap is mounted where the relative path leads; tables are on a claim of its own."""
    one = declarative()
    config = config_map(one, job_of(one, CLUSTERS, ZONE), OWNER)
    made = application(one, config["metadata"]["name"], "odradek/spark:test", OWNER)
    claim = own_claim(one, OWNER)
    assert claim is not None
    golden("declarative", [config, claim, made])
    job = read_job(config["data"]["job.json"].encode())
    assert f"{job.directory}/{job.spec.sdp.path}" == "/etc/odradek/files/project"  # type: ignore[union-attr]
    assert "spec.sdp.path: set spec.kubernetes.files" in unusable(declarative(kubernetes={}).spec)
    image = declarative(kubernetes={}, sdp={"path": "/opt/shop"})
    assert not unusable(image.spec)


def test_a_job_without_new_fields_is_the_text_of_earlier_versions() -> None:
    """Or an upgrade of the operator would restart every pipeline."""
    one = pipeline()
    assert one.spec.tests
    text = json.loads(config_map(one, job_of(one, CLUSTERS, ZONE), OWNER)["data"]["job.json"])
    assert not {"sdp", "user", "tests"} & text["spec"].keys()
    assert not {"table", "tombstones"} & text["spec"]["sources"][0].keys()


def test_a_claim_only_where_something_is_kept() -> None:
    one = pipeline()
    remote = replace(one, spec=msgspec.structs.replace(one.spec, checkpoint="s3a://b/c"))
    assert own_claim(remote, OWNER) is None
    assert own_claim(pipeline(volumeClaim="shared"), OWNER) is None
    assert "spec.checkpoint: driver and executors must share it" in unusable(
        pipeline(executor={}).spec
    )
    assert not unusable(one.spec)


def test_several_sinks_need_what_each_of_them_needs() -> None:
    """Their clusters, users, topics and tables; and the status has each of them."""
    document = yaml.safe_load((EXAMPLES / "web-activity" / "pipeline.yaml").read_text())
    del document["spec"]["sink"]
    document["spec"]["sinks"] = [
        {"name": "views", "topic": {"name": "page-views"}},
        {"name": "copy", "topic": {"name": "copied"}, "cluster": {"name": "far"},
         "user": {"name": "writer"}},
        {"name": "kept", "from": "visits", "table": {"path": "kept"}},
    ]  # fmt: skip
    document["spec"]["checkpoint"] = "s3a://bucket/checkpoint"
    document["spec"]["kubernetes"] = {"executor": {}}
    one = parse(document)
    assert one is not None
    assert unusable(one.spec).startswith(
        "spec.sinks[2].table.path: driver and executors must share"
    )
    assert clusters_of(one.spec, "default") == {"default/main", "default/far"}
    assert users_of(one.spec) == {"writer"}
    text = config_map(one, job_of(one, CLUSTERS, ZONE), OWNER)["data"]["job.json"]
    assert read_job(text.encode()).spec.sinks == one.spec.sinks
    ready = {key: KafkaClusterStatus(bootstrap_servers="x:1", conditions=conditions("True"))
             for key in ("default/main", "default/far")}  # fmt: skip
    users = {"default/writer": KafkaUserStatus(secret="default/writer",
                                               conditions=conditions("True"))}  # fmt: skip
    missing = {"default/far": {"t": TopicStatus(topic_name="copied",
                                                conditions=conditions("False"))}}  # fmt: skip
    assert waits_for(one, ready, missing, users) == "Topic copied is not ready"
    assert waits_for(one, ready, {}, users) == ""


def test_the_status_has_each_of_several_sinks() -> None:
    far = QueryProgress(batch=2, lag={"visits": 9}, rows_out=4, checkpoint="2")
    near = QueryProgress(batch=7, lag={"visits": 0}, rows_out=40, checkpoint="7")
    job = JobStatus(pipeline="x", state="Running", queries={"near": near, "far": far})
    made = with_progress(SparkPipelineStatus(), job)
    assert (made.lag_records, made.rows_out, made.batch) == (9, 44, 2)
    assert [(s.name, s.rows_out, s.lag_records) for s in made.sinks] == [
        ("far", 4, 9), ("near", 40, 0),
    ]  # fmt: skip
    job = JobStatus(pipeline="x", state="Running", queries={"main": near})
    assert with_progress(SparkPipelineStatus(), job).sinks == [], "the numbers are in the status"


def conditions(ready: str) -> list[Condition]:
    return [Condition(type="Ready", status=ready, reason="Test")]


def test_the_job_is_read_by_the_driver() -> None:
    """odradek_spark reads the job that the operator writes; its rack is that of its executors."""
    one = pipeline(executor={"nodeSelector": {ZONE: "zone-a"}})
    config = config_map(one, job_of(one, CLUSTERS, ZONE), OWNER)
    job = read_job(config["data"]["job.json"].encode())
    assert job.spec == msgspec.structs.replace(one.spec, tests=[]), "tests are not for the driver"
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
def test_memory_of_the_container(pod: dict[str, str], kind: str, expected: int) -> None:
    assert memory_mb(pod, kind) == expected


def test_the_secret_of_a_user_is_mounted_and_not_part_of_the_text() -> None:
    """In driver and executors; the pipeline's user and another one of its sink."""
    one = pipeline(volumeClaim="pipelines")
    sink = msgspec.structs.replace(one.spec.sink, user=UserRef(name="writer"))
    spec = msgspec.structs.replace(one.spec, user=UserRef(name="reader"), sink=sink)
    one = replace(one, spec=spec)
    job = job_of(one, CLUSTERS, ZONE)
    assert job.users == {n: f"/etc/odradek/users/{n}" for n in ("reader", "writer")}
    made = application(one, "c", "i", OWNER, secrets={"reader": "reader", "writer": "of-writer"})
    volumes = {v["name"]: v["secret"]["secretName"] for v in made["spec"]["volumes"]
               if "secret" in v}  # fmt: skip
    assert volumes == {"user-0": "reader", "user-1": "of-writer"}
    for pod in ("driver", "executor"):
        mounts = {m["name"]: m["mountPath"] for m in made["spec"][pod]["volumeMounts"]}
        assert mounts["user-1"] == "/etc/odradek/users/writer"


def test_a_restart_that_was_asked_for_is_a_new_submission() -> None:
    one = pipeline()
    config = config_map(one, job_of(one, CLUSTERS, ZONE), OWNER)["metadata"]["name"]
    before = application(one, config, "odradek/spark:test", OWNER)
    asked = replace(one, annotations={RESTART_ANNOTATION: "now"})
    after = application(asked, config, "odradek/spark:test", OWNER)
    assert after["spec"]["driver"]["annotations"] == {RESTART_ANNOTATION: "now"}
    assert submission_of(before) != submission_of(after)
    again = replace(one, annotations={RESTART_ANNOTATION: "later"})
    assert submission_of(application(again, config, "x", OWNER)) != submission_of(after)
