"""Pipelines as graphs: of the local runtime's report, and of an API server's resources."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import yaml

from console_tests.conftest import Console, Kafka, Visitor
from odradek_api.parse import parse
from odradek_console.cluster.pipeline_graph import DEAD_ID, SINK, Graph, graph_of
from odradek_console.cluster.runtime_state import PipelineState
from odradek_console.text import bytes_text
from odradek_console.web.graphs import pipeline_graph
from odradek_testkit.engines import RunningBroker
from odradek_testkit.kubernetes.control_plane import ControlPlane
from odradek_testkit.kubernetes.world import World

KAFKA = {"cluster": {"name": "main"}}
JSON = {"type": "json", "schema": "page STRING, at TIMESTAMP"}
VIEWS: dict[str, Any] = {
    **KAFKA,
    "sources": [{"name": "visits", "topics": ["visits"], "format": JSON,
                 "watermark": {"column": "at", "delay": "30 seconds"}}],
    "steps": [{"sql": "SELECT page, count(*) AS views FROM visits GROUP BY page"}],
    "deadLetter": {"topic": "visits-dead"},
    "sink": {"topic": {"name": "page-views", "key": "page"}},
}  # fmt: skip


def state(spec: dict[str, Any], **progress: Any) -> PipelineState:
    document = {"apiVersion": "odradek.dev/v1alpha1", "kind": "SparkPipeline",
                "metadata": {"name": "x"}, "spec": spec}  # fmt: skip
    resource = parse(document)
    assert resource is not None
    return PipelineState("default/x", "Running", resource.spec, **progress)


def edges(graph: Graph) -> set[tuple[str, str]]:
    return {(edge.start, edge.end) for edge in graph.edges}


# -- the graph -------------------------------------------------------------------------------------


def test_a_step_reads_the_views_that_it_names() -> None:
    joined = {
        **KAFKA,
        "sources": [{"name": name, "topics": [name], "format": JSON} for name in ("a", "b")],
        "steps": [
            {"name": "first", "sql": "SELECT * FROM a JOIN b USING (page)"},
            {"code": "def transform(frame): return frame"},
            {"code": "def both(x, y): return x", "function": "both", "inputs": ["b", "first"]},
        ],
        "sink": {"table": {"path": "out"}},
    }
    graph = graph_of(state(joined))
    assert edges(graph) == {
        ("a", "first"), ("b", "first"), ("first", "step_2"), ("b", "step_3"), ("first", "step_3"),
        ("step_3", SINK),
    }  # fmt: skip
    assert [node.column for node in graph.nodes] == [0, 0, 1, 2, 3, 4]
    drawn = pipeline_graph(graph, "x", lambda _: "")
    assert drawn.count('class="edge') == 6
    assert " style=" not in drawn


def test_each_of_several_sinks_is_fed_by_its_view() -> None:
    several = {
        **KAFKA,
        "sources": [{"name": "a", "topics": ["a"], "format": JSON}],
        "steps": [
            {"name": "hot", "sql": "SELECT * FROM a, limits"},
            {"name": "last", "sql": "FROM hot"},
        ],
        "sinks": [
            {"name": "raw", "from": "a", "table": {"path": "out"}},
            {"name": "alerts", "from": "hot", "topic": {"name": "alerts"}},
            {"name": "rest", "console": {}},
        ],
        "lookups": [{"name": "limits", "topic": {"name": "limits"}}],
        "deadLetter": {"topic": "dead"},
    }
    graph = graph_of(state(several, rows_out=5))
    assert edges(graph) == {
        ("a", "hot"), ("limits", "hot"), ("hot", "last"), ("a", "sink raw"), ("hot", "sink alerts"),
        ("last", "sink rest"), ("a", "dead letters"),
    }  # fmt: skip
    ends = {node.id: (node.row, node.topic) for node in graph.nodes if node.column == 3}
    assert ends == {"sink raw": (0, ""), "sink alerts": (1, "alerts"), "sink rest": (2, ""),
                    "dead letters": (3, "dead")}  # fmt: skip


def test_without_steps_the_source_goes_to_the_sink() -> None:
    mirror = {**KAFKA, "sources": [{"topics": ["a", "b"], "format": {"type": "raw"}}],
              "sink": {"mirror": {"prefix": "dr."}, "cluster": {"name": "other"}}}  # fmt: skip
    graph = graph_of(state(mirror, input_rate=51.0))
    assert edges(graph) == {("source", SINK)}
    assert [edge.text for edge in graph.edges] == ["51/s"]
    assert graph_of(PipelineState("default/x", "Running")).nodes == []


def test_numbers_are_at_their_nodes() -> None:
    graph = graph_of(state(VIEWS, lag={"visits": 1200}, rows_out=77, dead_letters=3,
                           input_rate=51.0, watermark="2026-01-31T12:00:30Z"))  # fmt: skip
    lines = {node.id: node.lines for node in graph.nodes}
    assert lines["visits"] == ("topic visits", "1,200 behind", "watermark 12:00:30")
    assert lines[SINK] == ("topic page-views", "77 rows")
    assert lines[DEAD_ID] == ("topic visits-dead", "3 records")
    assert [node.id for node in graph.nodes if node.alarm] == [DEAD_ID]
    assert ("visits", DEAD_ID) in edges(graph)


def test_texts_of_a_manifest_are_no_markup() -> None:
    files = {"path": "<script>alert(1)</script>"}
    spec = {"sources": [{"files": files, "format": JSON}], "sink": {"console": {}}, **KAFKA}
    drawn = pipeline_graph(graph_of(state(spec)), "<b>", lambda _: '/x"><script>')
    assert "<script>" not in drawn
    assert 'label="&lt;b&gt;"' in drawn


# -- the pages -------------------------------------------------------------------------------------


def report(**query: Any) -> str:
    """As the local runtime writes it."""
    said = {"pipeline": "default/page-views", "state": "Running",
            "queries": {"main": {"batch": 17, "inputRate": 51.0, "processRate": 900.0,
                                 "batchMs": 220, "lag": {"visits": 1200}, "rowsOut": 77,
                                 "stateRows": 12, "stateBytes": 4096, "lateRows": 5, **query},
                        "dead-letter": {"batch": 2, "rowsOut": 3}}}  # fmt: skip
    running = {"pid": 1, "restarts": 2, "status": said}
    waiting = {"waits": "topic orders is not ready"}
    return json.dumps({"pipelines": {"default/page-views": running, "default/next": waiting}})


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """Manifests, and the report of a runtime that ran them."""
    manifests = tmp_path / "manifests"
    (manifests / ".odradek").mkdir(parents=True)
    document = {"apiVersion": "odradek.dev/v1alpha1", "kind": "SparkPipeline",
                "metadata": {"name": "page-views"}, "spec": VIEWS}  # fmt: skip
    (manifests / "pipeline.yaml").write_text(yaml.safe_dump(document))
    (manifests / ".odradek" / "status.json").write_text(report())
    return manifests


def test_a_pipeline_of_the_local_runtime(
    broker: RunningBroker, kafka: Kafka, local: Path, tmp_path: Path
) -> None:
    """Dead letters are a link into Records; a topic that this cluster does not have is none."""
    dead = kafka.topic("visits-dead", 1)
    kafka.produce(dead, [b"no json"])
    with Console(broker.bootstrap, tmp_path, "--local", str(local)) as console:
        visitor = Visitor(console).enter()
        page = visitor.get("/pipelines").text
        assert 'href="/pipelines/default/page-views"' in page
        assert "topic orders is not ready" in page
        page = visitor.get("/pipelines/default/page-views").text
        links = re.findall(r'<a href="([^"]+)" aria-label="([^"]+)"', page)
        assert [(one, unescape(said)) for one, said in links] == [
            ("/topics/visits-dead/records", "dead letters: topic visits-dead, 3 records")
        ]
        assert "no json" in visitor.get(links[0][0]).text
        assert "1,200 behind" in page
        assert f"12 rows, {bytes_text(4096)}" in page
        assert "2 restarts" in page
        assert " style=" not in page
        assert visitor.get("/pipelines/default/nothing").status == 404
        waiting = visitor.get("/pipelines/default/next").text
        assert "there is no graph" in waiting
        assert "Pipelines" in visitor.get("/").text


def test_without_a_runtime_there_are_no_such_pages(visitor: Visitor) -> None:
    assert visitor.get("/pipelines").status == 404
    assert visitor.get("/pipelines/default/x").status == 404


def test_a_pipeline_on_kubernetes(
    kubernetes: ControlPlane,
    namespace: str,
    broker: RunningBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the status that the operator writes; one of another cluster is not shown."""
    world = World(kubernetes, namespace)
    world.cluster(brokers=3)
    world.apply("SparkPipeline", "page-views", VIEWS)
    world.apply("SparkPipeline", "another", {**VIEWS, "cluster": {"name": "another"}})
    status = {"state": "RUNNING", "batch": 4, "inputRate": 12.0, "lagRecords": 9,
              "lag": [{"topic": "visits", "records": 9}], "deadLetters": 2}  # fmt: skip
    kubernetes.patch_status("sparkpipelines", "page-views", status, namespace)
    monkeypatch.setenv("KUBECONFIG", str(kubernetes.kubeconfig))
    with Console(broker.bootstrap, tmp_path, "--kubernetes", world.key) as console:
        visitor = Visitor(console).enter()
        page = visitor.get("/pipelines").text
        assert f"/pipelines/{namespace}/page-views" in page
        assert "another" not in page
        page = visitor.get(f"/pipelines/{namespace}/page-views").text
        assert "Running" in page
        assert "9 behind" in page
        assert "2 records" in page
    world.close()
