"""A pipeline as a graph: sources → steps → sink, and dead letters. Only data; graphs.py draws it.

    graph = graph_of(state)        # nodes with a column and a row, edges between their ids

A step reads the views that its SQL names or its `inputs` list; without any it reads the step before
it, or the first source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from odradek_api.pipeline.lookups import lookup_kinds
from odradek_api.pipeline.outputs import Output, outputs
from odradek_api.pipeline.sources import Source
from odradek_api.pipeline.spec import SparkPipelineSpec, Step
from odradek_console.cluster.runtime_state import PipelineState
from odradek_console.text import count_text, rate_text

SOURCE, STEP, SINK, DEAD = "source", "step", "sink", "dead"
DEAD_ID = "dead letters"


@dataclass(frozen=True)
class GraphNode:
    id: str
    kind: str
    title: str
    lines: tuple[str, ...]  # what it is, then its numbers
    column: int
    row: int
    topic: str = ""  # that the node reads or writes, if it is exactly one
    alarm: bool = False


@dataclass(frozen=True)
class Edge:
    start: str
    end: str
    text: str = ""


@dataclass
class Graph:
    nodes: list[GraphNode] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)

    @property
    def columns(self) -> int:
        return max((node.column for node in self.nodes), default=0) + 1

    @property
    def rows(self) -> int:
        return max((node.row for node in self.nodes), default=0) + 1


def graph_of(state: PipelineState) -> Graph:
    """Empty without a spec."""
    graph, spec = Graph(), state.spec
    if spec is None:
        return graph
    for row, source in enumerate(spec.sources):
        graph.nodes.append(_source(source, row, state))
    for number, lookup in enumerate(spec.lookups):
        topic = lookup.topic.name if lookup.topic is not None else ""
        lines = ("lookup", topic or lookup_kinds(lookup)[0])
        row = len(spec.sources) + number
        graph.nodes.append(GraphNode(lookup.name, SOURCE, lookup.name, lines, 0, row, topic))
    views = [source.name for source in spec.sources]
    last = views[0]
    rate = rate_text(state.input_rate) if len(views) == 1 else ""
    views += [lookup.name for lookup in spec.lookups]
    for number, step in enumerate(spec.steps):
        name = step.name or f"step_{number + 1}"
        graph.nodes.append(GraphNode(name, STEP, name, _step_lines(step), number + 1, 0))
        for view in _inputs(step, views) or [last]:
            graph.edges.append(Edge(view, name, rate if number == 0 else ""))
        views.append(name)
        last = name
    end = len(spec.steps) + 1
    for row, output in enumerate(outputs(spec)):
        node = _sink(output, end, row, state)
        graph.nodes.append(node)
        view = output.view or last
        graph.edges.append(Edge(view, node.id, rate if view == views[0] else ""))
    if spec.dead_letter is not None:
        _add_dead_letters(graph, spec, end, state)
    return graph


def _source(source: Source, row: int, state: PipelineState) -> GraphNode:
    topic = source.topics[0] if len(source.topics) == 1 else ""
    lag = sum(state.lag.get(one, 0) for one in source.topics)
    numbers = [f"{count_text(lag)} behind"] if source.topics and state.lag else []
    if source.watermark is not None and state.watermark:
        numbers.append(f"watermark {state.watermark[11:19]}")
    return GraphNode(source.name, SOURCE, source.name, (_what(source), *numbers), 0, row, topic)


def _what(source: Source) -> str:
    if source.files is not None:
        return f"files of {source.files.path}"
    if source.rate is not None:
        return f"{source.rate.rows_per_second} rows/s, generated"
    if source.topic_pattern is not None:
        return f"topics {source.topic_pattern}"
    few = "topic" if len(source.topics) == 1 else "topics"
    return f"{few} {', '.join(source.topics)}"


def _step_lines(step: Step) -> tuple[str, ...]:
    if step.sql is not None:
        what = "SQL"
    elif step.python is not None or step.code is not None:
        what = f"{step.function}() of {step.python or 'code'}"
    else:
        what = "as it is"
    extras = [name for name, found in (("watermark", step.watermark), ("dedup", step.dedup))
              if found is not None]  # fmt: skip
    return tuple(filter(None, (what, ", ".join(extras))))


def _inputs(step: Step, views: list[str]) -> list[str]:
    if step.sql is None:
        return list(step.inputs)
    words = set(re.findall(r"\w+", step.sql.lower()))
    return [view for view in views if view.lower() in words]


def _sink(output: Output, column: int, row: int, state: PipelineState) -> GraphNode:
    """The rows of one of several sinks are not in the state; those of all are."""
    sink, name = output.sink, SINK if output.at == SINK else f"sink {output.query}"
    one = len(outputs(state.spec)) == 1 if state.spec is not None else True
    written = f"{count_text(state.rows_out)} rows" if state.rows_out >= 0 and one else ""
    topic = ""
    if sink.topic is not None:
        what, topic = f"topic {sink.topic.name}", sink.topic.name
    elif sink.table is not None:
        what = f"table {sink.table.path}"
    elif sink.mirror is not None:
        what = f"copies {sink.mirror.prefix}*"
    else:
        what = "the driver's output"
    return GraphNode(name, SINK, name, tuple(filter(None, (what, written))), column, row, topic)


def _add_dead_letters(
    graph: Graph, spec: SparkPipelineSpec, column: int, state: PipelineState
) -> None:
    assert spec.dead_letter is not None
    topic, count = spec.dead_letter.topic, state.dead_letters
    lines = (f"topic {topic}", f"{count_text(count)} records")
    row = max(1, len(spec.sources) + len(spec.lookups), len(spec.sinks))
    graph.nodes.append(
        GraphNode(DEAD_ID, DEAD, DEAD_ID, lines, column, row, topic, alarm=count > 0)
    )
    graph.edges += [Edge(source.name, DEAD_ID) for source in spec.sources]
