"""The chart's output compared with golden files, and the values that it refuses."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from odradek_e2e.chart import (
    CHART,
    GOLDEN,
    ROOT,
    HelmError,
    golden_difference,
    helm,
    lint,
    objects,
    render,
    value_sets,
)

pytestmark = pytest.mark.usefixtures("helm_program")


@pytest.mark.parametrize("value_set", value_sets())
def test_the_chart_renders_its_golden_file(value_set: str) -> None:
    difference = golden_difference(value_set)
    assert not difference, f"{difference}\nIf that is wanted: make helm-golden"


def test_every_golden_file_has_its_values() -> None:
    assert sorted(path.stem for path in GOLDEN.glob("*.yaml")) == sorted(value_sets())


def test_helm_lint_finds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    lint()
    assert capsys.readouterr().out.count("helm lint") == len(value_sets())


def test_the_crds_of_the_chart_are_those_of_the_types() -> None:
    ours = {path.name: path.read_text() for path in (ROOT / "crds").glob("*.yaml")}
    shipped = {path.name: path.read_text() for path in (CHART / "files" / "crds").glob("*.yaml")}
    assert ours, "no CRDs at all"
    assert shipped == ours, "make gen copies them"

    rendered = crds_of(render("--set=spark.installCrd=false"))
    assert len(rendered) == len(ours)
    for crd in rendered:
        group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
        assert crd["spec"] == yaml.safe_load(ours[f"{group}_{plural}.yaml"])["spec"]
        assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_crds_that_may_go_with_the_release_are_not_held() -> None:
    crds = crds_of(render("--set=crds.keep=false"))
    assert crds
    held = "helm.sh/resource-policy"
    assert all(held not in crd["metadata"].get("annotations", {}) for crd in crds)


def test_the_crd_of_sparkapplications_comes_with_our_runner_only() -> None:
    name = "sparkapplications.sparkoperator.k8s.io"
    for option, there in (("mode=auto", True), ("mode=native", True), ("mode=kubeflow", False),
                          ("mode=off", False), ("installCrd=false", False)):  # fmt: skip
        found = [crd["metadata"]["name"] for crd in crds_of(render(f"--set=spark.{option}"))]
        assert (name in found) == there, option
    assert crds_of(render("--set=crds.install=false")) == []


def crds_of(text: str) -> list[dict[str, Any]]:
    return [one for one in objects(text) if one["kind"] == "CustomResourceDefinition"]


def test_the_version_is_that_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart["appVersion"] == project["version"]


def test_secrets_are_read_by_name_only() -> None:
    """Nothing may list or watch them."""
    for value_set in ("--set=watch.scope=Cluster", "--set=watch.scope=Namespaced"):
        roles = [o for o in objects(render(value_set)) if o["kind"] in ("Role", "ClusterRole")]
        rules = [rule for role in roles for rule in role["rules"]]
        assert rules
        for rule in rules:
            if "secrets" in rule["resources"]:
                assert set(rule["verbs"]) <= {"get", "create", "update", "patch", "delete"}
            assert "*" not in rule["resources"] + rule["verbs"] + rule["apiGroups"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--set=replica=3"], "replica"),
        (["--set=replicas=0"], "replicas"),
        (["--set=replicas=two"], "replicas"),
        (["--set=watch.scope=Galaxy"], "scope"),
        (["--set=watch.namespaces={Team_A}"], "namespaces"),
        (["--set=watch.scope=Cluster", "--set=watch.namespaces={a}"], "leave watch.namespaces"),
        (["--set=image.digest=sha256:12"], "digest"),
        (["--set=image.repository=a/b@sha256:12"], "repository"),
        (["--set=metrics.port=80"], "port"),
        (["--set=metrics.service=false", "--set=metrics.serviceMonitor.enabled=true"],
         "metrics.serviceMonitor needs metrics.service"),
        (["--set=serviceAccount.create=false"], "serviceAccount.name says which"),
        (["--set=image.pullPolicy=Sometimes"], "pullPolicy"),
        (["--kube-version=v1.28.0"], "incompatible with Kubernetes v1.28.0"),
    ],
)  # fmt: skip
def test_invalid_values_are_refused(options: list[str], said: str) -> None:
    with pytest.raises(HelmError, match=re.escape(said)):
        render(*options)


def test_the_schema_knows_every_value_and_no_other() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    missing = _unlike(values, schema, "")
    assert missing == []


def _unlike(values: dict[str, object], schema: dict[str, object], where: str) -> list[str]:
    """Names in only one of them; objects without a schema are not compared."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return []
    own = {"global", "claims"}  # allowed, and empty by default
    unlike = [f"{where}{name}" for name in (values.keys() ^ properties.keys()) - own]
    for name, value in values.items():
        if isinstance(value, dict) and name in properties:
            unlike += _unlike(value, properties[name], f"{where}{name}.")
    return unlike


def test_the_package_holds_what_the_templates_read(tmp_path: Path) -> None:
    """A file that .helmignore excludes would be missing only in the package."""
    helm("package", str(CHART), f"--destination={tmp_path}")
    (package,) = tmp_path.glob("*.tgz")
    whole = helm("template", "odradek", str(package), "--kube-version=v1.34.3", "-n=kafka-system")
    assert objects(whole) == objects(render())
