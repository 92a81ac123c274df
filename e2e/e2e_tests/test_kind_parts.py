"""The parts of `make kind-up` and of CI that need no container."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from odradek_apache import main as apache
from odradek_e2e import ci
from odradek_e2e.chart import golden_file, objects, value_sets
from odradek_e2e.kind import cluster, leftovers, node_image
from odradek_e2e.kind.engine import ContainerEngine
from odradek_e2e.kind.places import FILES, ZONES, KindError
from odradek_e2e.kind.steps import Step, carry_out, minutes
from odradek_operator.main import parse_arguments

BEFORE = """\
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
-A FORWARD -i eth9 -j DROP
COMMIT
"""
AFTER = """\
*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:DOCKER - [0:0]
:DOCKER-USER - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -o odradek-kind -j DOCKER
-A FORWARD -i odradek-kind -o odradek-kind -j ACCEPT
-A FORWARD -i eth9 -j DROP
-A FORWARD -i eth8 -j ACCEPT
-A DOCKER-USER -j RETURN
COMMIT
"""


def test_only_the_engines_chains_are_removed() -> None:
    assert leftovers.undo(BEFORE, AFTER) == [
        ["-D", "FORWARD", "-j", "DOCKER-USER"],
        ["-D", "FORWARD", "-o", "odradek-kind", "-j", "DOCKER"],
        ["-D", "FORWARD", "-i", "odradek-kind", "-o", "odradek-kind", "-j", "ACCEPT"],
        ["-D", "DOCKER-USER", "-j", "RETURN"],
        ["-X", "DOCKER"],
        ["-X", "DOCKER-USER"],
        ["-P", "FORWARD", "ACCEPT"],
    ]
    assert leftovers.undo(BEFORE, BEFORE) == []


def test_another_engine_keeps_its_chains() -> None:
    assert leftovers.undo(AFTER, AFTER) == []


def test_steps_go_on_where_they_were(capsys: pytest.CaptureFixture[str]) -> None:
    done: list[str] = ["a"]
    steps = [
        Step(n, 60, lambda n=n: n in done, lambda n=n: done.append(n))  # type: ignore[misc]
        for n in "abc"
    ]
    carry_out(steps)
    assert done == ["a", "b", "c"]
    said = capsys.readouterr().err
    assert "2 of 3 steps to do, about 2 min 00 s" in said
    carry_out(steps)
    assert capsys.readouterr().err == ""


def test_times_are_written_for_people() -> None:
    assert [minutes(s) for s in (0.4, 89, 90, 3661)] == ["0 s", "89 s", "1 min 30 s", "61 min 01 s"]


def test_three_workers_in_three_zones() -> None:
    config = cluster.cluster_config(ContainerEngine(stock=True))
    nodes = config["nodes"]
    assert isinstance(nodes, list)
    labels = [node.get("labels", {}).get("topology.kubernetes.io/zone") for node in nodes]
    assert labels == [None, *ZONES]
    assert "dns" not in kubeadm_patch(config)
    assert kubeadm_patch(cluster.cluster_config(ContainerEngine(stock=False)))["dns"]


def kubeadm_patch(config: dict[str, Any]) -> dict[str, object]:
    (patch,) = config["kubeadmConfigPatches"]
    found: dict[str, object] = yaml.safe_load(patch)
    assert found["kind"] == "ClusterConfiguration"
    return found


def test_every_program_of_the_node_has_an_expected_time() -> None:
    assert set(node_image.PROGRAMS) == set(cluster.BUILD_SECONDS)


@pytest.mark.parametrize("option", ["--bundle", "--process"])
def test_a_container_asks_for_no_capability_that_the_machine_has_not_got(
    tmp_path: Path, option: str
) -> None:
    sets = {"bounding": ["CAP_SYS_RESOURCE", "CAP_CHOWN"], "effective": ["CAP_SYS_RESOURCE"]}
    spec = {"process": {"capabilities": sets}} if option == "--bundle" else {"capabilities": sets}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(spec))
    runc = tmp_path / "runc"
    runc.write_text('#!/bin/sh\necho "$@"\n')
    runc.chmod(0o755)
    given = str(tmp_path if option == "--bundle" else path)
    done = subprocess.run(
        [FILES / "runc-without-sys-resource", "--log", "x", "create", option, given, "id"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"--log x create {option} {given} id\n"
    found = json.loads(path.read_text())
    left = found.get("process", found)["capabilities"]
    assert left == {"bounding": ["CAP_CHOWN"], "effective": []}


# -- CI --------------------------------------------------------------------------------------------


def test_every_story_of_ci_exists() -> None:
    """Their names select them (pytest -k), and a name that matches nothing selects nothing."""
    files = (Path(__file__).parent / "kind").glob("test_*.py")
    stories = [name for file in files for name in re.findall(r"def (test_\w+)", file.read_text())]
    assert [name for name in ci.STORIES if not any(name in story for story in stories)] == []


def test_ci_says_what_it_does_not_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ci, "obstacle", lambda: "no root")
    assert ci.run(10_000) == 0
    assert "NOT RUN: the stories on kind (make e2e): no root" in capsys.readouterr().err
    monkeypatch.setattr(ci, "obstacle", lambda: "")
    monkeypatch.setattr(ci, "expected_seconds", lambda: 1200.0)
    assert ci.run(1500) == 0
    assert "about 20 min 00 s" in capsys.readouterr().err


def test_a_cluster_that_cannot_be_had_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def up() -> None:
        raise KindError("mount: permission denied")

    downs: list[int] = []
    monkeypatch.setattr(ci, "obstacle", lambda: "")
    monkeypatch.setattr(ci, "expected_seconds", lambda: 0.0)
    monkeypatch.setattr(cluster, "up", up)
    monkeypatch.setattr(cluster, "down", lambda: downs.append(1))
    assert ci.run(10_000) == 0
    assert "permission denied" in capsys.readouterr().err
    assert downs == [1]


# -- programs in images ----------------------------------------------------------------------------


@pytest.mark.parametrize("value_set", value_sets())
def test_the_operator_takes_the_arguments_that_the_chart_gives(value_set: str) -> None:
    deployments = (o for o in objects(golden_file(value_set).read_text())
                   if o["kind"] == "Deployment")  # fmt: skip
    (deployment,) = (o for o in deployments if not o["metadata"]["name"].endswith("-console"))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    options = parse_arguments(container["args"])
    assert options.image.startswith("odradek/broker:") or "/" in options.image
    assert options.apache_image.rpartition(":")[2]


def test_apache_listens_where_its_file_says() -> None:
    text = "# a comment\nlisteners=PLAINTEXT://:9092,EXTERNAL://:9094\nodradek.cluster.id=x\n"
    settings = apache.read_properties(text)
    assert apache.listener_ports(settings) == [9092, 9094]
    assert settings[apache.CLUSTER_ID] == "x"
    assert not apache.answers(1)  # no server listens there


def test_apache_is_healthy_while_its_disk_is_formatted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a fake Java that formats slowly: the liveness probe must not fail before the start."""
    fake = tmp_path / "java"
    fake.write_text('#!/bin/sh\necho "$@" >> $LINES\necho Kafka Server started\nsleep 0.5\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("LINES", str(tmp_path / "lines"))
    config = tmp_path / "a.properties"
    config.write_text(
        "listeners=PLAINTEXT://:1\nodradek.cluster.id=AbC\n"
        "odradek.storage.format=--initial-controllers 0@a:9093:ID\n"
    )
    kafka = apache.Kafka(config, admin_port=1)
    assert kafka.runs, "before anything has begun"
    assert not kafka.ready
    assert kafka.run() == 0
    first, second = (tmp_path / "lines").read_text().splitlines()
    assert first.endswith(
        f"kafka.tools.StorageTool format --ignore-formatted -t AbC -c {config} "
        "--initial-controllers 0@a:9093:ID"
    )
    assert second.endswith(f"kafka.Kafka {config}")
    assert not kafka.runs
