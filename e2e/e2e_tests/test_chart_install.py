"""The chart on a real API server: installed, upgraded, and removed.

Pods never run here; they do in the stories on kind.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e_tests.conftest import make_namespace
from odradek_e2e.chart import CHART, RELEASE, HelmError, objects, render, value_sets, values_of
from odradek_e2e.release import Release, settle, state
from odradek_testkit.kubernetes.client import ObjectClient
from odradek_testkit.kubernetes.control_plane import ControlPlane, ControlPlaneError
from odradek_testkit.kubernetes.programs import program

# Its CRDs belong to the Prometheus operator, which is not installed here.
FOREIGN = "monitoring.coreos.com/v1"


@pytest.mark.parametrize("value_set", value_sets())
def test_the_api_server_takes_every_object(
    kubernetes: ControlPlane, api: ObjectClient, namespace: str, value_set: str
) -> None:
    """The schema is strict: an unknown field is an error."""
    rendered = objects(render(*values_of(value_set), namespace=namespace))
    for other in {o["metadata"].get("namespace", namespace) for o in rendered} - {namespace}:
        # Roles in namespaces that the values name; another test may have made them.
        make_namespace(api, other)
    kept = [one for one in rendered if one["apiVersion"] != FOREIGN]
    said = _dry_run(kubernetes, *kept)
    assert len(said.splitlines()) == len(kept)


def test_a_field_that_does_not_exist_is_noticed(kubernetes: ControlPlane, namespace: str) -> None:
    """The check above can fail."""
    (deployment,) = _of_kind("Deployment", namespace)
    deployment["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    with pytest.raises(ControlPlaneError, match="livenessProb"):
        _dry_run(kubernetes, deployment)


def test_the_pods_are_of_the_restricted_profile(kubernetes: ControlPlane, namespace: str) -> None:
    (deployment,) = _of_kind("Deployment", namespace)
    (test,) = _of_kind("Pod", namespace)
    template = deployment["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", "namespace": namespace}}
    _dry_run(kubernetes, {**pod, "spec": template["spec"]}, test)

    del template["spec"]["containers"][0]["securityContext"]["capabilities"]
    with pytest.raises(ControlPlaneError, match="violates PodSecurity"):
        _dry_run(kubernetes, {**pod, "spec": template["spec"]})


def test_an_installed_operator_gets_two_pods_on_two_nodes(
    kubernetes: ControlPlane, api: ObjectClient, namespace: str
) -> None:
    with Release(kubernetes, namespace):
        kubernetes.kubectl(
            "wait", f"-n={namespace}", "--for=jsonpath={.status.replicas}=2", "deployment/odradek"
        )
        kubernetes.kubectl(
            "wait", f"-n={namespace}", "--for=condition=PodScheduled", "pods", "--all"
        )
        assert len({pod["spec"]["nodeName"] for pod in api.find("Pod", namespace)}) == 2


def test_the_manifest_in_the_notes_is_accepted(kubernetes: ControlPlane, namespace: str) -> None:
    with Release(kubernetes, namespace, "--set=readNodes=false") as release:
        found = re.search(r"<<EOF\n(.*?)\n  EOF", release.notes, re.S)
        assert found is not None
        example = objects(re.sub(r"^  ", "", found[1], flags=re.M))
        assert [one["kind"] for one in example] == ["KafkaCluster", "Topic"]
        said = kubernetes.kubectl(
            "apply", "--dry-run=server", f"-n={namespace}", "-f", "-",
            stdin=yaml.safe_dump_all(example),
        )  # fmt: skip
        assert said.count("created") == 2


def test_crds_are_upgraded_with_the_chart_and_outlive_it(
    kubernetes: ControlPlane, api: ObjectClient, namespace: str, tmp_path: Path
) -> None:
    """
    1. A release installs the CRDs; a KafkaCluster is created.
    2. An upgrade to a chart with a new field adds the field.
    3. The release is removed: the CRDs and the KafkaCluster stay.
    4. It is installed again and adopts the CRDs.
    """
    with Release(kubernetes, namespace) as release:
        cluster = {
            "apiVersion": "odradek.dev/v1alpha1",
            "kind": "KafkaCluster",
            "metadata": {"name": "main"},
            "spec": {"brokers": 3, "config": {"a.b": 1}},
        }
        api.apply(cluster, namespace)
        release.upgrade(_with_a_new_field(tmp_path))
        assert "flavour" in _fields_of_a_cluster(api)

        said = release.uninstall()
        assert "kept due to the resource policy" in said
        uid = api.uid("KafkaCluster", "main", namespace)
        assert uid

        release.install()
        assert api.uid("KafkaCluster", "main", namespace) == uid
        assert "flavour" not in _fields_of_a_cluster(api)  # it is the old chart again


def test_an_interrupted_installation_is_no_obstacle(
    kubernetes: ControlPlane, api: ObjectClient, namespace: str, tmp_path: Path
) -> None:
    """
    1. helm installs and waits for pods, which never run here; it is killed.
    2. An upgrade is refused: helm finds an operation in progress.
    3. `settle` installs nevertheless, and a second time upgrades.
    """
    where = (RELEASE, namespace, kubernetes.kubeconfig)
    words = [str(program("helm")), "install", RELEASE, str(CHART), f"--namespace={namespace}",
             f"--kubeconfig={kubernetes.kubeconfig}", "--wait"]  # fmt: skip
    waiting = subprocess.Popen(
        words, env={"HOME": str(tmp_path)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        kubernetes.kubectl("wait", "--for=create", "deployment/odradek", "-n", namespace,
                           "--timeout=150s")  # fmt: skip
    finally:
        waiting.kill()
        waiting.wait()
    try:
        assert state(*where) == "pending-install"
        with pytest.raises(HelmError, match="another operation"):
            Release(kubernetes, namespace).upgrade(CHART)
        for _ in range(2):
            settle(RELEASE, namespace, kubeconfig=kubernetes.kubeconfig)
            assert state(*where) == "deployed"
        assert api.find("Deployment", namespace)
    finally:
        Release(kubernetes, namespace).__exit__()
    assert state(*where) == ""


def test_a_second_release_leaves_the_crds_to_the_first(
    kubernetes: ControlPlane, api: ObjectClient, namespace: str
) -> None:
    with Release(kubernetes, namespace):
        second = Release(kubernetes, namespace, name="second")
        with pytest.raises(HelmError, match="cannot be imported into the current release"):
            second.install()
        second = Release(kubernetes, namespace, "--set=crds.install=false", name="second")
        second.install()
        second.uninstall()
        kinds = [one["spec"]["group"] for one in api.find("CustomResourceDefinition")]
        assert kinds.count("odradek.dev") == len(list((CHART / "files" / "crds").glob("*.yaml")))


def _of_kind(kind: str, namespace: str) -> list[dict[str, Any]]:
    return [one for one in objects(render(namespace=namespace)) if one["kind"] == kind]


def _dry_run(kubernetes: ControlPlane, *given: dict[str, Any]) -> str:
    """A server-side dry run: validation and admission without the write."""
    return kubernetes.kubectl(
        "apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump_all(given)
    )


def _fields_of_a_cluster(api: ObjectClient) -> list[str]:
    crd = api.get("CustomResourceDefinition", "kafkaclusters.odradek.dev")
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return list(schema["properties"]["spec"]["properties"])


def _with_a_new_field(tmp_path: Path) -> Path:
    chart = Path(shutil.copytree(CHART, tmp_path / "chart"))
    path = chart / "files" / "crds" / "odradek.dev_kafkaclusters.yaml"
    crd = yaml.safe_load(path.read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["flavour"] = {"type": "string"}
    path.write_text(yaml.safe_dump(crd))
    return chart
