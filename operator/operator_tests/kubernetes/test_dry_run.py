"""odradek plan --kubernetes: what would be done, on a real API server, without a single write."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from odradek_api.base import InvalidManifestError
from odradek_api.parse import load
from odradek_operator.admin.kafka_admin import KafkaAdmin
from odradek_operator.kubernetes.dry_run import dry_run
from odradek_testkit.kubernetes.control_plane import ControlPlane
from odradek_testkit.kubernetes.world import World

API = "odradek.dev/v1alpha1"


def manifests(
    directory: Path, namespace: str, spec: dict[str, Any] | None, **topics: dict[str, Any]
) -> Path:
    def one(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        metadata = {"name": name, "namespace": namespace}
        return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}

    documents = [one("KafkaCluster", "main", spec)] if spec is not None else []
    documents += [
        one("Topic", n, {"cluster": {"name": "main"}, **topic}) for n, topic in topics.items()
    ]
    path = directory / "all.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return path


def lines(world: World, path: Path) -> list[str]:
    assert world.client is not None
    before = len(world.wire.writes)
    admin = lambda: cast(KafkaAdmin, world.kafka)  # noqa: E731
    image = world.tools.image
    (found,) = dry_run(world.client, load([path]), image, admin)
    assert found.key == world.key
    assert world.wire.writes[before:] == []
    return found.lines


def test_before_and_after(world: World, tmp_path: Path) -> None:
    space = world.namespace
    path = manifests(tmp_path, space, {"brokers": 3}, orders={"partitions": 2})
    first = lines(world, path)
    assert first[:2] == [
        "start brokers 0, 1 and 2: brokers 0, 1 and 2 do not exist yet",
        "wait: topic orders can be created when the cluster answers",
    ]
    assert "create StatefulSet main-zone-b" in first
    assert world.get("KafkaCluster") is None
    world.cluster(brokers=3)
    world.topic("orders", partitions=2)
    world.settle()
    assert lines(world, path) == []
    changed = manifests(
        tmp_path, space, {"brokers": 3, "config": {"num.io.threads": 3}}, orders={"partitions": 4}
    )
    assert lines(world, changed)[:2] == [
        "restart broker 1: num.io.threads changed",
        "add partitions to topic orders: orders from 2 to 4",
    ]
    assert lines(world, manifests(tmp_path, space, None, orders={"partitions": 1})) == [
        f"refuse {space}/orders: topic orders has 2 partitions, which cannot be removed"
    ]
    world.cluster(brokers=3, storage={"size": "20Gi"})
    with pytest.raises(InvalidManifestError, match="cannot shrink"):
        lines(world, manifests(tmp_path, space, {"brokers": 3, "storage": {"size": "1Gi"}}))


def test_as_a_person_types_it(kubernetes: ControlPlane, namespace: str, tmp_path: Path) -> None:
    path = manifests(tmp_path, namespace, {"brokers": 1})
    env = {**os.environ, "KUBECONFIG": str(kubernetes.kubeconfig)}
    done = subprocess.run(
        [sys.executable, "-m", "odradek_cli", "plan", "--kubernetes", "-f", "-"],
        input=path.read_text(), env=env, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[0] == f"KafkaCluster {namespace}/main:"
    assert said[1] == "  start broker 0: broker 0 does not exist yet"
    inside = subprocess.run(
        [sys.executable, "-m", "odradek_operator.main", "plan"],
        input=path.read_text(), env=env, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert inside.stdout == done.stdout, inside.stderr
    env["KUBECONFIG"] = str(tmp_path / "nowhere")
    done = subprocess.run(
        [sys.executable, "-m", "odradek_cli", "plan", "--kubernetes", "-f", str(path)],
        env=env, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("odradek: Kubernetes: ")
    assert done.stderr.count("\n") == 1
