"""What is kept of a story that failed, in one folder: a person should need nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from e2e_tests.kind.story import KubectlError, kubectl

VIEWS = {
    "objects.txt": ("get", "kafkaclusters,topics,statefulsets,pods,pvc,services,pdb", "-o", "wide"),
    "resources.yaml": ("get", "kafkaclusters,topics,statefulsets,configmaps", "-o", "yaml"),
    "events.txt": ("get", "events", "--sort-by=.lastTimestamp"),
    "describe.txt": ("describe", "pods"),
}


def collect(namespace: str, operator: str, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, words in VIEWS.items():
        (folder / name).write_text(_said(f"--namespace={namespace}", *words))
    (folder / "nodes.txt").write_text(_said("describe", "nodes"))
    for place, prefix in ((namespace, ""), (operator, "operator-")):
        _logs(place, folder, prefix)
    return folder


def _logs(namespace: str, folder: Path, prefix: str) -> None:
    try:
        listed = json.loads(_said(f"--namespace={namespace}", "get", "pods", "-o", "json"))
    except ValueError:
        return
    for pod in listed["items"]:
        name = pod["metadata"]["name"]
        for suffix, more in (("", ()), (".previous", ("--previous",))):
            said = _said(f"--namespace={namespace}", "logs", name, *more)
            if not (more and "not found" in said):
                (folder / f"{prefix}{name}{suffix}.log").write_text(said)


def _said(*words: str) -> str:
    try:
        return kubectl(*words)
    except KubectlError as error:
        return f"{error}\n"
