"""The evidence of a failed story, in one folder: all that a person needs to find the cause."""

from __future__ import annotations

import shutil
from pathlib import Path

from e2e_tests.kind.story import KubectlError, kubectl
from odradek_testkit.kubernetes.client import ObjectClient

VIEWS = {
    "objects.txt": (
        "get",
        "kafkaclusters,topics,kafkarebalances,statefulsets,pods,pvc,services,pdb",
        "-o",
        "wide",
    ),
    "resources.yaml": (
        "get",
        "kafkaclusters,topics,kafkarebalances,statefulsets,configmaps",
        "-o",
        "yaml",
    ),
    "events.txt": ("get", "events", "--sort-by=.lastTimestamp"),
    "describe.txt": ("describe", "pods"),
}


def collect(objects: ObjectClient, namespace: str, operator: str, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, words in VIEWS.items():
        (folder / name).write_text(_output(f"--namespace={namespace}", *words))
    (folder / "nodes.txt").write_text(_output("describe", "nodes"))
    for place, prefix in ((namespace, ""), (operator, "operator-")):
        _logs(objects, place, folder, prefix)
    return folder


def _logs(objects: ObjectClient, namespace: str, folder: Path, prefix: str) -> None:
    for pod in objects.find("Pod", namespace):
        name = pod["metadata"]["name"]
        for suffix, more in (("", ()), (".previous", ("--previous",))):
            log = _output(f"--namespace={namespace}", "logs", name, *more)
            if not (more and "not found" in log):
                (folder / f"{prefix}{name}{suffix}.log").write_text(log)


def _output(*words: str) -> str:
    try:
        return kubectl(*words)
    except KubectlError as error:
        return f"{error}\n"
