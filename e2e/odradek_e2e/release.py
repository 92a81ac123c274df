"""A release of the chart on a cluster, for tests: installed, asked, and removed with its CRDs.

with Release(kubernetes, "kafka", "--set=replicas=3") as release:
    release.account_kubeconfig(path)     # to be the operator, with its rights and no others

`settle` is for a release that outlives the tests, on kind.
"""

import json
from pathlib import Path

import yaml

from odradek_e2e.chart import CHART, RELEASE, HelmError, helm
from odradek_testkit.kubernetes.control_plane import ControlPlane

# Helm refuses every further operation on a release that it believes to be at work still.
INTERRUPTED = ("pending-install", "pending-upgrade", "pending-rollback", "uninstalling")


def settle(name: str, namespace: str, *options: str, kubeconfig: Path) -> str:
    """Installed or upgraded, whatever was there before; what Helm says to the user.

    A release whose Helm was interrupted is removed first: CRDs, and so all KafkaClusters, stay.
    """
    where = f"--namespace={namespace}"
    if state(name, namespace, kubeconfig) in INTERRUPTED:
        helm("uninstall", name, where, "--no-hooks", "--wait", kubeconfig=kubeconfig)
    return helm("upgrade", "--install", name, str(CHART), where, *options, kubeconfig=kubeconfig)


def state(name: str, namespace: str, kubeconfig: Path) -> str:
    """In Helm's words; empty if there is no such release."""
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
            # Of a kind that nobody has read yet, the API server has no cache; its finalizer then
            # fails and comes back ever later, for minutes.
            kubectl("get", ",".join(kind.partition("/")[2] for kind in kinds), "--all-namespaces")
            kubectl("delete", "crds", managed, "--timeout=150s")

    def install(self) -> str:
        """What Helm says to the user."""
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
        """Of the operator's service account, with a token as the kubelet would mount it."""
        token = self._kubernetes.kubectl("create", "token", self.name, f"-n={self.namespace}")
        config = yaml.safe_load(self._kubernetes.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token.strip()}
        path.write_text(yaml.safe_dump(config))
        return path

    def _helm(self, *args: str) -> str:
        return helm(*args, f"--namespace={self.namespace}", kubeconfig=self._kubernetes.kubeconfig)
