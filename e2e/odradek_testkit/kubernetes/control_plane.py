"""A real Kubernetes control plane of plain processes, for tests: no container, no kubelet.

    with ControlPlane(directory) as kubernetes:
        kubernetes.add_node("node-a", zone="zone-a")
        kubernetes.kubeconfig      # for kopf, kubectl, the kubernetes package

etcd and kube-apiserver, and on request kube-controller-manager (owner references, StatefulSets,
deletion of namespaces) and kube-scheduler. Pods are scheduled onto Node objects and
never run: a test that needs a "running" pod writes its status, as a kubelet would. Everything
listens on loopback, on free ports, and ends with the test. Ready after about 5 s, 500 MB.
"""

import contextlib
import json
import os
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from odradek_testkit.kubernetes.programs import program
from odradek_testkit.ports import free_port

TOKEN = "tests-only"
READY_SECONDS = 60.0
STOP_SECONDS = 10.0


class ControlPlaneError(Exception):
    """A program did not start, or kubectl failed; the text has its output."""


class ControlPlane:
    """Kubernetes' own servers as processes of this test; a context manager."""

    def __init__(self, directory: Path, *, controllers: bool = True) -> None:
        """`controllers`: also the controller manager and the scheduler."""
        self._dir = directory
        self._controllers = controllers
        self._etcd_port, self._peer_port, self._port = free_port(), free_port(), free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.kubeconfig = directory / "kubeconfig"
        self.url = f"https://127.0.0.1:{self._port}"

    def __enter__(self) -> "ControlPlane":
        try:
            self._prepare()
            self._start_etcd()
            self.start_api_server()
            if self._controllers:
                self._start_controllers()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for name in reversed(list(self._processes)):
            self._stop(name)

    # --- programs -------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._dir.mkdir(parents=True, exist_ok=True)
        key = self._dir / "sa.key"
        subprocess.run(
            ["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True
        )
        (self._dir / "tokens").write_text(f"{TOKEN},admin,1,system:masters\n")
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {"server": self.url, "insecure-skip-tls-verify": True},
                }
            ],
            "users": [{"name": "admin", "user": {"token": TOKEN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        }
        self.kubeconfig.write_text(yaml.safe_dump(config))

    def _start_etcd(self) -> None:
        url = f"http://127.0.0.1:{self._etcd_port}"
        peer_url = f"http://127.0.0.1:{self._peer_port}"
        self._start(
            "etcd",
            f"--data-dir={self._dir / 'etcd'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=default={peer_url}",
            "--unsafe-no-fsync",
        )

    def start_api_server(self) -> None:
        """Also starts it again after `stop_api_server`: the objects are in etcd."""
        key = self._dir / "sa.key"
        self._start(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--secure-port={self._port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self._dir / 'certs'}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=Node,RBAC",
            f"--token-auth-file={self._dir / 'tokens'}",
            "--allow-privileged",
            "--disable-admission-plugins=ServiceAccount",
        )
        self._await_ready()

    def compact_etcd(self) -> None:
        """Compacts etcd: a watch from an earlier resource version gets 410 Gone."""
        url = f"http://127.0.0.1:{self._etcd_port}/v3/kv"
        asked = json.dumps({"key": "AA==", "range_end": "AA==", "count_only": True}).encode()
        with urllib.request.urlopen(f"{url}/range", asked) as answer:
            revision = json.load(answer)["header"]["revision"]
        compaction = json.dumps({"revision": revision, "physical": True}).encode()
        urllib.request.urlopen(f"{url}/compaction", compaction).close()

    def stop_api_server(self) -> None:
        self._stop("kube-apiserver")

    def _start_controllers(self) -> None:
        self._start(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            f"--service-account-private-key-file={self._dir / 'sa.key'}",
            "--use-service-account-credentials=false",
            "--leader-elect=false",
            "--secure-port=0",
            "--node-monitor-grace-period=1h",  # no kubelet renews the leases of these nodes
        )
        self._start(
            "kube-scheduler",
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--secure-port=0",
        )

    def _start(self, name: str, *args: str) -> None:
        path = program(name)
        with open(self._dir / f"{name}.log", "ab") as log:
            self._processes[name] = subprocess.Popen(
                [str(path), *args], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def _stop(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _await_ready(self) -> None:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        request = urllib.request.Request(
            f"{self.url}/readyz", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        deadline = time.monotonic() + READY_SECONDS
        while True:
            with (
                contextlib.suppress(OSError),  # not listening yet, or not ready yet
                urllib.request.urlopen(request, context=context, timeout=2),
            ):
                return
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise ControlPlaneError(f"{name} ended:\n{self.log_of(name)[-2000:]}")
            if time.monotonic() > deadline:
                raise ControlPlaneError(
                    f"kube-apiserver is not ready after {READY_SECONDS:.0f} s:\n"
                    f"{self.log_of('kube-apiserver')[-2000:]}"
                )
            time.sleep(0.1)

    def log_of(self, name: str) -> str:
        return (self._dir / f"{name}.log").read_text(errors="replace")

    # --- for tests --------------------------------------------------------------------------

    def kubectl(self, *args: str, stdin: str | None = None) -> str:
        """Its standard output; ControlPlaneError with its error output if it fails."""
        command: Sequence[str] = [str(program("kubectl")), f"--kubeconfig={self.kubeconfig}", *args]
        environment = {
            **os.environ,
            "HOME": str(self._dir),
        }  # its discovery cache ends with the test
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, env=environment, check=False
        )
        if done.returncode != 0:
            raise ControlPlaneError(f"kubectl {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, *objects: dict[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def add_node(self, name: str, *, zone: str | None = None, pods: int = 110) -> None:
        """A Ready node with 4 CPUs and 8 GiB, on which pods are scheduled and never run."""
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
        if zone is not None:
            labels["topology.kubernetes.io/zone"] = zone
        resources = {"cpu": "4", "memory": "8Gi", "pods": str(pods)}
        ready = {"type": "Ready", "status": "True", "reason": "Test", "message": "no kubelet"}
        self.apply(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        )
        status = {"capacity": resources, "allocatable": resources, "conditions": [ready]}
        self.patch_status("node", name, status)
        # The controller manager taints a node that it has not seen Ready yet.
        self.kubectl("patch", "node", name, "--type=merge", "-p", '{"spec":{"taints":null}}')

    def patch_status(
        self, kind: str, name: str, status: dict[str, Any], namespace: str = "default"
    ) -> None:
        where = (kind, name, f"-n={namespace}", "--subresource=status")
        self.kubectl("patch", *where, "--type=merge", "-p", json.dumps({"status": status}))
