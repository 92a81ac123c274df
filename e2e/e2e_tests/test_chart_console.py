"""The console of the chart: its rights, and its process as the Deployment starts it.

Pods never run here: the process has the arguments of the pod and the token of its account.
"""

from __future__ import annotations

import http.cookiejar
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from odradek_e2e.chart import CHART, HelmError, objects, render
from odradek_e2e.release import Release
from odradek_testkit.engines import RunningBroker
from odradek_testkit.kubernetes.control_plane import ControlPlane
from odradek_testkit.ports import free_port

ENABLED = ("--set=console.enabled=true", "--set=console.cluster.name=main")
LOGIN = (*ENABLED, "--set=console.login=SCRAM-SHA-512")
READ = {f"{kind}.odradek.dev"
        for kind in ("kafkaclusters", "topics", "kafkarebalances", "sparkpipelines")}  # fmt: skip


def of_console(text: str) -> dict[str, dict[str, Any]]:
    found = [o for o in objects(text) if o["metadata"]["name"].endswith("-console")]
    return {one["kind"]: one for one in found}


@pytest.mark.usefixtures("helm_program")
def test_without_it_there_is_nothing() -> None:
    assert of_console(render()) == {}


@pytest.mark.usefixtures("helm_program")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--set=console.enabled=true",), "console.cluster.name: the KafkaCluster"),
        (LOGIN, "credentials would cross the network in clear text"),
        ((*LOGIN, "--set=console.tlsSecret=a", "--set=console.behindTlsProxy=true"),
         "set one of them"),
        ((*ENABLED, "--set=console.login=OAUTHBEARER"), "login"),
        ((*ENABLED, "--set=console.behindTlsProxy=true", "--set=console.login=OIDC"),
         "needs console.oidc.issuer"),
        ((*ENABLED, "--set=console.oidc.issuer=http://id.example.com"), "issuer"),
        ((*ENABLED, "--set=console.behindTlsProxy=true", "--set=console.login=CERTIFICATE"),
         "needs console.clientConfigSecret"),
        ((*ENABLED, "--set=console.port=80"), "port"),
    ],
)  # fmt: skip
def test_values_that_are_refused(options: tuple[str, ...], said: str) -> None:
    with pytest.raises(HelmError, match=re.escape(said)):
        render(*options)


@pytest.mark.usefixtures("helm_program")
def test_actions_are_two_kinds_of_patches() -> None:
    """The KafkaCluster by its name; and none for a console that is read-only."""
    for more, verbs in (
        ((), [["get", "list"]]),
        (("--set=console.actions=true",), [["get", "list"], ["patch"], ["patch"]]),
        (("--set=console.actions=true", "--set=console.readOnly=true"), [["get", "list"]]),
    ):
        rules = of_console(render(*ENABLED, *more))["Role"]["rules"]
        assert [one["verbs"] for one in rules] == verbs
        patched = {one["resources"][0]: one.get("resourceNames") for one in rules[1:]}
        assert patched in ({}, {"kafkaclusters": ["main"], "sparkpipelines": None})


@pytest.mark.usefixtures("helm_program")
def test_without_a_login_nothing_can_connect() -> None:
    found = of_console(render(*ENABLED))
    assert "Service" not in found
    assert "ingress" not in found["NetworkPolicy"]["spec"]
    (container,) = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert "--listen=127.0.0.1:8080" in container["args"]
    assert "ports" not in container


def test_its_account_may_read_our_resources_and_nothing_else(
    kubernetes: ControlPlane, namespace: str
) -> None:
    with Release(kubernetes, namespace, *ENABLED):
        account = f"system:serviceaccount:{namespace}:odradek-console"
        said = kubernetes.kubectl("auth", "can-i", "--list", f"--as={account}", f"-n={namespace}")
        rules = {line.split()[0]: line for line in said.splitlines()[1:] if line.split()}
        own = {kind: line for kind, line in rules.items() if "odradek.dev" in kind}
        assert own.keys() == READ
        assert {re.findall(r"\[[^]]*\]", line)[-1] for line in own.values()} == {"[get list]"}
        others = rules.keys() - own.keys()  # every account has these, and the discovery paths
        reviews = {one for one in others if one.startswith(("selfsubject", "clustertrust"))}
        assert {one for one in others - reviews if not one.startswith("[")} == set()
        for elsewhere in ("default", "kube-system"):
            answer = kubernetes.kubectl(
                "auth", "can-i", "--list", f"--as={account}", f"-n={elsewhere}"
            )
            assert "odradek.dev" not in answer


def test_the_api_server_accepts_its_pod_as_restricted(
    kubernetes: ControlPlane, namespace: str
) -> None:
    text = render(f"--values={CHART / 'ci' / 'console.yaml'}", namespace=namespace)
    template = of_console(text)["Deployment"]["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", "namespace": namespace},
           "spec": template["spec"]}  # fmt: skip
    kubernetes.kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(pod))
    (container,) = template["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]


def test_it_starts_with_the_arguments_of_its_pod_and_reads_the_cluster(
    kubernetes: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    port = free_port()
    with (
        RunningBroker(directory=tmp_path / "broker") as broker,
        Release(kubernetes, namespace, *ENABLED),
    ):
        metadata = {"name": "main", "namespace": namespace}
        kubernetes.apply({"apiVersion": "odradek.dev/v1alpha1", "kind": "KafkaCluster",
                          "metadata": metadata, "spec": {"brokers": 3}})  # fmt: skip
        set_up = (*ENABLED, f"--set=console.port={port}",
                  f"--set=console.bootstrapServers={broker.bootstrap}")  # fmt: skip
        deployment = of_console(render(*set_up, namespace=namespace))["Deployment"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        # kubectl waits for the storage of a new kind; the console would show that it is not there.
        kinds = "kafkaclusters,topics,sparkpipelines,kafkarebalances"
        kubernetes.kubectl("get", kinds, f"-n={namespace}")
        page = _page(container["args"], _kubeconfig(kubernetes, namespace, tmp_path), tmp_path)
        assert f"KafkaCluster {namespace}/main" in page
        assert "The operator has not reported anything yet" in page
        kubernetes.kubectl("delete", "kc", "main", f"-n={namespace}")


def _kubeconfig(kubernetes: ControlPlane, namespace: str, directory: Path) -> Path:
    token = kubernetes.kubectl("create", "token", "odradek-console", f"-n={namespace}")
    config = yaml.safe_load(kubernetes.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token.strip()}
    path = directory / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


def _page(args: list[str], kubeconfig: Path, home: Path) -> str:
    """/plan, as somebody reads it who has the address of the console's log."""
    with subprocess.Popen(
        [sys.executable, "-m", "odradek_cli", *args], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(home)},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        address = process.stdout.readline().removeprefix("ready: ").strip()
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        opener = urllib.request.build_opener(cookies)
        try:
            opener.open(address).close()
            with opener.open(address.partition("?")[0] + "plan") as answer:
                return str(answer.read().decode())
        finally:
            process.send_signal(signal.SIGTERM)
