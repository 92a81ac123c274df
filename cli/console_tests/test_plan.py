"""The page of the local runtime: its state, and what pasted manifests would do."""

from __future__ import annotations

import json
from pathlib import Path

from console_tests.conftest import Console, Visitor
from odradek_testkit.engines import RunningBroker


def manifest() -> str:
    return (Path(__file__).parents[2] / "examples" / "quickstart" / "cluster.yaml").read_text()


def test_pasted_manifests_are_planned_and_not_applied(
    broker: RunningBroker, tmp_path: Path
) -> None:
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    options = ("--local", str(manifests), "--read-only")
    with Console(broker.bootstrap, tmp_path, *options) as console:
        visitor = Visitor(console).enter()
        page = visitor.get("/plan").text
        assert "No local runtime has run here" in page
        token = visitor.csrf("/plan")
        planned = visitor.post("/plan", {"manifests": manifest(), "csrf": token})
        assert planned.status == 200, planned.text
        assert '<ol class="steps">' in planned.text
        assert not list(manifests.rglob("server.properties"))  # nothing was started
        wrong = visitor.post("/plan", {"manifests": "kind: KafkaCluster", "csrf": token})
        assert wrong.status == 400
        assert "apiVersion" in wrong.text
        state = manifests / ".odradek"
        state.mkdir(exist_ok=True)
        report = {"problems": ["topic x: <b>refused</b>"]}
        (state / "status.json").write_text(json.dumps(report))
        page = visitor.get("/plan").text
        assert "does not run now" in page
        assert "&lt;b&gt;refused" in page


def test_without_a_local_runtime_there_is_no_such_page(visitor: Visitor) -> None:
    assert visitor.get("/plan").status == 404
    assert ">Plan<" not in visitor.get("/").text
