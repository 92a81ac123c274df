"""SparkPipelines on a real API server; the test simulates the driver's pod."""

import json
from collections.abc import Iterator
from datetime import datetime

import pytest

from odradek_api.base import instant
from odradek_api.pipeline.status import PROGRESS_ANNOTATION
from odradek_operator.kubernetes.objects import served
from odradek_operator.kubernetes.spark_worker import SparkWorker
from odradek_operator.kubernetes.topic_book import TopicBook
from odradek_operator.kubernetes.user_book import UserBook
from odradek_operator.spark.modes import GROUP_VERSION
from odradek_testkit.kubernetes.control_plane import ControlPlane
from odradek_testkit.kubernetes.pipeline_world import CRD, PipelineWorld
from odradek_testkit.kubernetes.world import connect
from odradek_testkit.waiting import wait_until


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
    """Waits, runs, reports its lag, fails, is retried, suspended, and deleted with its objects."""
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
    main = {"batch": 4, "processRate": 10.5, "lag": {"visits": 7}, "rows": 90, "rowsOut": 5,
            "stateBytes": 900, "watermark": "2026-11-16T12:00:00Z"}  # fmt: skip
    queries = {"main": main, "dead-letter": {"rowsOut": 2}}
    said = {"pipeline": "x", "state": "Running", "queries": queries}
    cluster.kubectl("annotate", "pod", "page-views-driver", "-n", cluster.namespace,
                    f"{PROGRESS_ANNOTATION}={json.dumps(said)}")  # fmt: skip
    cluster.settle()
    assert cluster.state() == "RUNNING"
    status = cluster.get("sparkpipeline", "page-views")["status"]
    assert (status["state"], status["lagRecords"], status["batch"]) == ("RUNNING", 7, 4)
    assert (status["rowsIn"], status["rowsOut"], status["deadLetters"]) == (90, 5, 2)
    assert (status["stateBytes"], status["watermark"]) == (900, "2026-11-16T12:00:00Z")
    assert status["lag"] == [{"topic": "visits", "records": 7}]
    assert cluster.ready().startswith("True Running: the driver is running")
    seen = cluster.worker.statuses[f"{cluster.namespace}/page-views"]
    assert (seen.lag_records, seen.rows_in) == (7, 90)
    before = cluster.get("sparkpipeline", "page-views")["metadata"]["resourceVersion"]
    cluster.settle(3)
    after = cluster.get("sparkpipeline", "page-views")["metadata"]["resourceVersion"]
    assert before == after, "a pass without changes wrote something"

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


def test_a_missing_acl_stays_in_the_status_until_a_driver_runs(cluster: PipelineWorld) -> None:
    """Exit code 1: the driver is started again, and meanwhile the status has the reason."""
    cluster.kafka()
    cluster.kafka_ready()
    cluster.topic_ready()
    cluster.pipeline(restartPolicy={"type": "OnFailure", "intervalSeconds": 1})
    cluster.settle()
    first = cluster.uid()
    denied = {"pipeline": "x", "state": "Failed", "field": "spec.user", "message": "no ACL"}
    cluster.kubectl("annotate", "pod", "page-views-driver", "-n", cluster.namespace,
                    f"{PROGRESS_ANNOTATION}={json.dumps(denied)}")  # fmt: skip
    cluster.phase("Failed", 1)
    cluster.eventually(lambda: cluster.uid() not in (first, ""))
    cluster.settle()
    assert cluster.state() == "SUBMITTED"
    assert cluster.ready() == "False Failed: spec.user: no ACL"
    cluster.phase("Running")
    cluster.settle()
    assert cluster.ready() == "True Running: the driver is running"


def test_a_schedule(cluster: PipelineWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """No run before its time; then one run, and after it the next one."""
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
    cluster.pipeline(kubernetes={"executor": {"instances": 2}})
    cluster.settle(2)
    assert cluster.ready().startswith("False InvalidSpec: spec.checkpoint: driver and executors")


def test_without_kubernetes_fields_one_pod_does_everything(cluster: PipelineWorld) -> None:
    """The example as it stands; its claim outlives it, and the next one of that name gets it."""
    cluster.kafka()
    cluster.kafka_ready()
    cluster.topic_ready()
    cluster.pipeline(kubernetes=None)
    cluster.settle()
    assert cluster.state() == "SUBMITTED"
    claim = cluster.get("pvc", "page-views-data")
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert claim["spec"]["resources"]["requests"] == {"storage": "5Gi"}
    pod = cluster.get("pod", "page-views-driver")["spec"]
    arguments = pod["containers"][0]["args"]
    assert arguments[arguments.index("--master") + 1] == "local[1,8]"
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "page-views-data"}} in (
        pod["volumes"]
    )
    (config,) = [n for n in cluster.names("configmaps") if n.startswith("page-views-job-")]
    job = json.loads(cluster.get("configmap", config)["data"]["job.json"])
    assert (job["master"], job["data"]) == ("local[1,8]", "/data")
    cluster.kubectl("delete", "sparkpipeline", "page-views", f"-n={cluster.namespace}")
    wait_until(lambda: cluster.names("sparkapplications") == [], "its objects are deleted with it")
    before = claim["metadata"]["uid"]
    cluster.pipeline(kubernetes={"storage": {"size": "1Gi"}})
    cluster.settle()
    assert cluster.get("pvc", "page-views-data")["metadata"]["uid"] == before


GARBAGE_S = 120.0
SCHEDULED = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "scheduledsparkapplications.sparkoperator.k8s.io",
                 "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}},
    "spec": {
        "group": "sparkoperator.k8s.io",
        "names": {"kind": "ScheduledSparkApplication", "plural": "scheduledsparkapplications"},
        "scope": "Namespaced",
        "versions": [{"name": "v1beta2", "served": True, "storage": True, "schema": {
            "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        }}],
    },
}  # fmt: skip


def test_auto_leaves_applications_to_kubeflows_operator(cluster: PipelineWorld) -> None:
    """Its second CRD shows that it is installed; without it our operator runs them."""
    cluster.kafka()
    cluster.kafka_ready()
    cluster.topic_ready()
    cluster.kubernetes.apply(SCHEDULED)
    crd = SCHEDULED["metadata"]["name"]  # type: ignore[index]
    cluster.kubectl("wait", "--for=condition=Established", "crd", crd)
    wait_until(lambda: "scheduledsparkapplications" in served(cluster.client, GROUP_VERSION),
               "the API server serves the CRD")  # fmt: skip
    try:
        cluster.pipeline()
        cluster.settle()
        assert cluster.names("sparkapplications") == ["page-views"]
        assert cluster.names("pods") == []
        spec = cluster.get("sparkapplication", "page-views")["spec"]
        assert "suspend" not in spec, "version 2.3 does not know it"
        assert "NetworkPolicy" in "".join(spec["sparkConf"].values()), (
            "it has no right to create one"
        )
        assert spec["driver"]["podSecurityContext"] == {"fsGroup": 10001}, "who writes to the claim"
        assert [one["name"] for one in spec["driver"]["env"]][-1] == "ODRADEK_POD_NAMESPACE"
        for kind in ("serviceaccounts", "roles", "rolebindings"):
            assert "page-views-driver" in cluster.names(kind)
        cluster.pipeline(suspend=True)
        cluster.settle(2)
        assert cluster.names("sparkapplications") == []
        assert cluster.ready() == "False Waiting: spec.suspend is true"
        cluster.pipeline(suspend=False)
        cluster.settle(2)
        assert cluster.names("sparkapplications") == ["page-views"]
        # what kubeflow's operator writes
        said = {"applicationState": {"state": "FAILED", "errorMessage": "no such image"}}
        cluster.status("sparkapplication", "page-views", said)
        cluster.settle(2)
        assert cluster.ready() == "False Failed: no such image"
    finally:
        cluster.kubectl("delete", "crd", crd)
    cluster.kubectl("delete", "sparkpipeline", "page-views", f"-n={cluster.namespace}")
    # The garbage collector looks for new kinds twice a minute.
    wait_until(lambda: cluster.names("sparkapplications") == [], "it is deleted with its pipeline",
               GARBAGE_S)  # fmt: skip
    wait_until(lambda: "scheduledsparkapplications" not in served(cluster.client, GROUP_VERSION),
               "the CRD is gone")  # fmt: skip
    young = PipelineWorld(cluster.kubernetes, cluster.namespace)
    young.pipeline()
    young.settle()
    assert young.state() == "SUBMITTED"
    assert young.names("pods") == ["page-views-driver"]
    young.client.close()


def test_the_api_server_refuses_two_sinks(cluster: PipelineWorld) -> None:
    with pytest.raises(Exception, match="exactly one of topic, table, mirror and console"):
        cluster.pipeline(sink={"console": {}, "table": {"path": "x"}})


def test_without_the_crd_nothing_happens(kubernetes: ControlPlane, namespace: str) -> None:
    client = connect(kubernetes)
    try:
        worker = SparkWorker(client, TopicBook(), UserBook(), [namespace], "i", mode="auto")
        assert worker.one_pass() > 0
    finally:
        client.close()
