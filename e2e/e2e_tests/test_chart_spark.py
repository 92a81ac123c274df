"""The chart with Spark: mode auto installs SparkApplication; its rights are enough, and no more.

Checked with access reviews, and by running a pipeline with only these rights.
"""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from e2e_tests.test_chart_rights import (
    ALLOWED,
    CORE,
    LEASE,
    NODES,
    OURS,
    RESOURCES,
    rights,
    same,
)
from odradek_e2e.chart import CHART
from odradek_e2e.release import Release
from odradek_testkit.kubernetes.client import ObjectClient
from odradek_testkit.kubernetes.control_plane import ControlPlane
from odradek_testkit.kubernetes.pipeline_world import PipelineWorld

SPARK, RBAC = "sparkoperator.k8s.io", "rbac.authorization.k8s.io"
DRIVERS = "get list watch create patch delete deletecollection"
# In addition to those of an operator without Spark.
PIPELINES = {
    (OURS, "sparkpipelines"): "list",
    (OURS, "sparkpipelines/status"): "patch",
    (OURS, "sparkpipelines/finalizers"): "update",
    (SPARK, "sparkapplications"): "list create patch delete",
    (RBAC, "roles"): "create patch",
    (RBAC, "rolebindings"): "create patch",
    **{(CORE, kind): DRIVERS
       for kind in ("pods", "configmaps", "services", "persistentvolumeclaims")},
}  # fmt: skip
NATIVE = {
    (SPARK, "sparkapplications/status"): "patch",
    (SPARK, "sparkapplications/finalizers"): "update",
}
ASKED = list(dict.fromkeys([*RESOURCES, *PIPELINES, *NATIVE]))
CRD = "sparkapplications.sparkoperator.k8s.io"


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("e2e_tests.test_chart_rights.RESOURCES", ASKED)


def test_rights_where_kubeflows_operator_runs_them(
    kubernetes: ControlPlane, api: ObjectClient, namespace: str
) -> None:
    with Release(kubernetes, namespace, "--set=spark.mode=kubeflow") as release:
        found = rights(api, release.account, namespace)
        assert same(found, ALLOWED, NODES, LEASE, PIPELINES)
        assert not api.uid("CustomResourceDefinition", CRD), "kubeflow's brings it"


def test_a_life_of_a_pipeline_with_these_rights(
    kubernetes: ControlPlane,
    api: ObjectClient,
    namespace: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """
    1. The chart as it is, with mode auto, installs the CRD; a pipeline is submitted: account, role,
       services, pod.
    2. Its driver fails and is recreated; the pipeline is changed, and its old job is deleted.
    3. It ends, its time to live passes, and the application is deleted.
    No request is forbidden.
    """
    caplog.set_level(logging.WARNING, "odradek_operator.kubernetes.spark_worker")
    with Release(kubernetes, namespace) as release:
        release.upgrade(CHART)
        assert api.uid("CustomResourceDefinition", CRD), "an upgrade keeps the CRD"
        found = rights(api, release.account, namespace)
        assert same(found, ALLOWED, NODES, LEASE, PIPELINES, NATIVE)
        assert same(rights(api, release.account, "default"), NODES)
        kubeconfig = release.account_kubeconfig(tmp_path / "kubeconfig")
        limited = cast(ControlPlane, SimpleNamespace(kubeconfig=kubeconfig))
        cluster = PipelineWorld(kubernetes, namespace, operator=limited)
        policy = {"type": "OnFailure", "retries": 1, "intervalSeconds": 1}
        claim = {"volumeClaim": "pipelines", "executor": {}}
        cluster.kafka()
        cluster.kafka_ready()
        cluster.topic_ready()
        cluster.pipeline(restartPolicy=policy)
        cluster.settle()
        assert cluster.state() == "SUBMITTED"
        assert "page-views-driver" in cluster.names("roles")
        first = cluster.uid()
        cluster.phase("Failed", 1)
        cluster.eventually(lambda: cluster.uid() not in (first, ""))
        second = cluster.uid()
        job = {name for name in cluster.names("configmaps") if "-job-" in name}
        cluster.pipeline(restartPolicy=policy, trigger="7 seconds",
                         kubernetes={**claim, "timeToLiveSeconds": 0})  # fmt: skip
        cluster.eventually(lambda: cluster.uid() not in (second, ""))
        assert not job & set(cluster.names("configmaps")), "the job that is no more"
        cluster.phase("Succeeded")
        cluster.eventually(lambda: cluster.names("sparkapplications") == [])
        cluster.settle()
        assert cluster.names("sparkapplications") == [], "what is done is not done again"
        cluster.client.close()
        api.delete("SparkPipeline", "page-views", namespace)
    assert [r.getMessage() for r in caplog.records if "request failed" in r.getMessage()] == []
