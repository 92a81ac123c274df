"""A release of the chart on a cluster, for tests: installed, and removed with its CRDs.

with Release(kubernetes, "kafka", "--set=replicas=3") as release:
    release.account_kubeconfig(path)     # for a client with exactly the operator's rights

`settle` is for a release that outlives the tests, on kind.
"""

import json
from pathlib import Path

import yaml

from odradek_e2e.chart import CHART, RELEASE, HelmError, helm
from odradek_testkit.kubernetes.control_plane import ControlPlane

# Helm refuses every further operation on a release in one of these states.
INTERRUPTED = ("pending-install", "pending-upgrade", "pending-rollback", "uninstalling")


def settle(name: str, namespace: str, *options: str, kubeconfig: Path, chart: Path = CHART) -> str:
    """Installs or upgrades, whatever was there before; Helm's output for the user.

    A release whose Helm was interrupted is uninstalled first. CRDs, and so all KafkaClusters, stay.
    """
    where = f"--namespace={namespace}"
    if state(name, namespace, kubeconfig) in INTERRUPTED:
        helm("uninstall", name, where, "--no-hooks", "--wait", kubeconfig=kubeconfig)
    return helm("upgrade", "--install", name, str(chart), where, *options, kubeconfig=kubeconfig)


def state(name: str, namespace: str, kubeconfig: Path) -> str:
    """Helm's status of the release; empty if there is none."""
    try:
        said = helm("status", name, f"--namespace={namespace}", "-o=json", kubeconfig=kubeconfig)
    except HelmError as error:
        if "not found" in str(error):
            return ""
        raise
    return str(json.loads(said)["info"]["status"])


class Release:
    """The chart, installed in a namespace; removed with its CRDs at the end."""

    def __init__(
        self,
        kubernetes: ControlPlane,
        namespace: str,
        *options: str,
        name: str = RELEASE,
        chart: Path = CHART,
    ) -> None:
        self._kubernetes = kubernetes
        self._options, self._chart = options, chart
        self.namespace, self.name = namespace, name

    def __enter__(self) -> "Release":
        self.notes = self.install()
        return self

    def __exit__(self, *_: object) -> None:
        self.uninstall()
        kubectl = self._kubernetes.kubectl
        managed = "-l=app.kubernetes.io/managed-by=Helm"
        kinds = kubectl("get", "crds", managed, "-o=name").split()
        if kinds:
            # The API server has no watch cache for a kind that was never read; deleting its CRD
            # then fails and is retried with growing delays, for minutes.
            kubectl("get", ",".join(kind.partition("/")[2] for kind in kinds), "--all-namespaces")
            kubectl("delete", "crds", managed, "--timeout=150s")

    def install(self) -> str:
        """Helm's output for the user."""
        said = self._helm("install", self.name, str(self._chart), *self._options)
        self._kubernetes.kubectl("wait", "--for=condition=Established", "crd", "--all")
        return said

    def upgrade(self, chart: Path, *options: str) -> str:
        return self._helm("upgrade", self.name, str(chart), *options)

    def uninstall(self) -> str:
        return self._helm("uninstall", self.name)

    @property
    def account(self) -> str:
        return f"system:serviceaccount:{self.namespace}:{self.name}"

    def account_kubeconfig(self, path: Path) -> Path:
        """A kubeconfig of the operator's service account, with a token like a mounted one."""
        token = self._kubernetes.kubectl("create", "token", self.name, f"-n={self.namespace}")
        config = yaml.safe_load(self._kubernetes.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token.strip()}
        path.write_text(yaml.safe_dump(config))
        return path

    def _helm(self, *args: str) -> str:
        return helm(*args, f"--namespace={self.namespace}", kubeconfig=self._kubernetes.kubeconfig)
