"""SparkPipelines on a real API server; the driver's pod is played by hand."""

import json
from collections.abc import Iterator
from datetime import datetime

import pytest

from odradek_api.base import instant
from odradek_api.pipeline.status import PROGRESS_ANNOTATION
from odradek_operator.kubernetes.spark_worker import SparkWorker
from odradek_operator.kubernetes.topic_book import TopicBook
from odradek_testkit.kubernetes.control_plane import ControlPlane
from odradek_testkit.kubernetes.pipeline_world import CRD, PipelineWorld
from odradek_testkit.kubernetes.world import connect


@pytest.fixture
def cluster(kubernetes: ControlPlane, namespace: str) -> Iterator[PipelineWorld]:
    kubernetes.kubectl("apply", "-f", str(CRD))
    kubernetes.kubectl("wait", "--for=condition=Established", "crd",
                       "sparkapplications.sparkoperator.k8s.io")  # fmt: skip
    label = "pod-security.kubernetes.io/enforce=restricted"
    kubernetes.kubectl("label", "namespace", namespace, label)
    made = PipelineWorld(kubernetes, namespace)
    yield made
    made.client.close()


def test_a_pipeline_lives(cluster: PipelineWorld) -> None:
    """Waits, runs, tells its lag, fails, is tried again, is suspended, goes with all it made."""
    cluster.pipeline(restartPolicy={"type": "OnFailure", "retries": 1, "intervalSeconds": 1})
    cluster.settle(2)
    key = f"{cluster.namespace}/main"
    assert cluster.ready() == f"False Waiting: KafkaCluster {key} does not exist"
    cluster.kafka()
    cluster.settle(2)
    assert cluster.ready() == f"False Waiting: KafkaCluster {key} is not ready"
    cluster.kafka_ready()
    cluster.settle(2)
    assert cluster.ready() == "False Waiting: Topic visits is not ready"
    assert cluster.names("sparkapplications") == []
    cluster.topic_ready()

    cluster.settle()
    assert cluster.state() == "SUBMITTED"
    pod = cluster.get("pod", "page-views-driver")
    assert pod["spec"]["containers"][0]["args"][0] == "driver"
    assert set(cluster.names("services")) == {"page-views-driver", "page-views-ui-svc"}
    (config,) = [n for n in cluster.names("configmaps") if n.startswith("page-views-job-")]
    job = json.loads(cluster.get("configmap", config)["data"]["job.json"])
    assert job["clusters"] == {key: "main-bootstrap:9092"}

    cluster.phase("Running")
    main = {"batch": 4, "processRate": 10.5, "lag": {"visits": 7}}
    said = {"pipeline": "x", "state": "Running", "queries": {"main": main}}
    cluster.kubectl("annotate", "pod", "page-views-driver", "-n", cluster.namespace,
                    f"{PROGRESS_ANNOTATION}={json.dumps(said)}")  # fmt: skip
    cluster.settle()
    assert cluster.state() == "RUNNING"
    status = cluster.get("sparkpipeline", "page-views")["status"]
    assert (status["state"], status["lagRecords"], status["batch"]) == ("RUNNING", 7, 4)
    assert status["lag"] == [{"topic": "visits", "records": 7}]
    assert cluster.ready().startswith("True Running: the driver is running")
    before = cluster.get("sparkpipeline", "page-views")["metadata"]["resourceVersion"]
    cluster.settle(3)
    after = cluster.get("sparkpipeline", "page-views")["metadata"]["resourceVersion"]
    assert before == after, "a pass with no news wrote something"

    cluster.phase("Failed", 1)
    first = pod["metadata"]["uid"]
    cluster.eventually(lambda: cluster.uid() not in (first, ""))
    assert cluster.get("sparkapplication", "page-views")["status"]["executionAttempts"] == 2

    cluster.pipeline(suspend=True, restartPolicy={"type": "Never"})

    def suspended() -> bool:
        if "page-views-driver" in cluster.names("pods"):
            return False
        return cluster.state() == "SUSPENDED"

    cluster.eventually(suspended)


def test_a_refused_spec_is_not_tried_again(cluster: PipelineWorld) -> None:
    cluster.kafka()
    cluster.kafka_ready()
    cluster.topic_ready()
    cluster.pipeline(restartPolicy={"type": "OnFailure", "intervalSeconds": 1})
    cluster.settle()
    first = cluster.uid()
    said = {
        "pipeline": "x",
        "state": "Failed",
        "field": "spec.steps[0].sql",
        "message": "no column",
    }
    cluster.kubectl("annotate", "pod", "page-views-driver", "-n", cluster.namespace,
                    f"{PROGRESS_ANNOTATION}={json.dumps(said)}")  # fmt: skip
    cluster.phase("Failed", 2)
    cluster.settle(8)
    assert cluster.state() == "FAILED"
    assert cluster.uid() == first, "the driver's pod, with its log, is still there"
    assert cluster.ready() == "False Failed: spec.steps[0].sql: no column"


def test_a_schedule(cluster: PipelineWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing before its time; then a run, and after it the next one, each once."""
    cluster.kafka()
    cluster.topic_ready()
    cluster.pipeline(mode="availableNow", schedule="@hourly")
    made = cluster.get("sparkpipeline", "page-views")["metadata"]["creationTimestamp"]
    created = datetime.fromisoformat(made).timestamp()
    now = [created]
    monkeypatch.setattr("odradek_operator.kubernetes.pipeline_controller.time.time", lambda: now[0])
    cluster.settle()
    due = [instant((created // 3600 + n) * 3600) for n in range(4)]
    assert cluster.ready() == f"False Scheduled: the next run starts at {due[1]}"
    assert cluster.names("sparkapplications") == []

    now[0] += 3600
    cluster.settle(2)
    key = f"{cluster.namespace}/main"
    assert cluster.ready() == f"False Waiting: KafkaCluster {key} is not ready"
    cluster.kafka_ready()
    cluster.settle()
    assert cluster.state() == "SUBMITTED"
    first = cluster.uid()
    now[0] += 3600
    cluster.settle()
    assert cluster.uid() == first, "one at a time"
    cluster.phase("Succeeded")
    cluster.eventually(lambda: cluster.uid() not in (first, ""))
    status = cluster.get("sparkpipeline", "page-views")["status"]
    assert (status["lastScheduleTime"], status["nextScheduleTime"]) == (due[2], due[3])
    second = cluster.uid()
    cluster.phase("Succeeded")
    cluster.settle(8)
    assert (cluster.state(), cluster.uid()) == ("COMPLETED", second)


def test_a_wrong_pipeline_says_so(cluster: PipelineWorld) -> None:
    cluster.pipeline(steps=[{"python": "a.py", "inputs": ["nobody"]}])
    cluster.settle(2)
    assert cluster.ready().startswith("False InvalidSpec: spec.steps[0].inputs: there is no view")


def test_a_checkpoint_has_to_be_shared(cluster: PipelineWorld) -> None:
    cluster.pipeline(kubernetes={})
    cluster.settle(2)
    assert cluster.ready().startswith("False InvalidSpec: spec.checkpoint: driver and executors")


def test_the_api_server_refuses_two_sinks(cluster: PipelineWorld) -> None:
    with pytest.raises(Exception, match="exactly one of topic, table, mirror and console"):
        cluster.pipeline(sink={"console": {}, "table": {"path": "x"}})


def test_without_the_crd_nothing_happens(kubernetes: ControlPlane, namespace: str) -> None:
    client = connect(kubernetes)
    try:
        worker = SparkWorker(client, TopicBook(), [namespace], "i", native=True)
        assert worker.one_pass() > 0
    finally:
        client.close()
