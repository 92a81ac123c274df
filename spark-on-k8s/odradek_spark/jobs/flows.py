"""The flows of a running update of a declarative pipeline, read from Spark by py4j.

Spark Connect's events are sentences for a log; the driver is the server too, so it can ask for the
graph, the state of each flow, and the progress reports of its streaming query.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import msgspec
from py4j.protocol import Py4JJavaError

from odradek_api.pipeline.status import FlowStatus, QueryProgress
from odradek_spark.jobs.progress import explain_failure, progress

UPSTREAM = "UnresolvedDatasetException"  # what the flow reads cannot be analysed
STATES = {
    "TERMINATED_WITH_ERROR": "Failed",
    "SUCCESSFUL": "Completed",
}


class Flows:
    """What is known of the flows, over all updates of this driver."""

    def __init__(self) -> None:
        self.queries: dict[str, QueryProgress] = {}
        self.flows: list[FlowStatus] = []

    def read(self, holder: Any, graph: str) -> None:
        """Nothing is known before an update begins. `holder`: see session/connect.py."""
        execution = _execution(holder, graph)
        if execution is None:
            return
        states = {_name(key): str(value) for key, value in _pairs(execution.pipelineState())}
        running = {_name(key): value for key, value in _pairs(execution.flowExecutions())}
        for name, flow in running.items():
            if flow.isStreaming():
                self._progress(name, flow)
        made = []
        for flow in _flows(execution.graphForExecution()):
            known = self.queries.get(flow.name, QueryProgress())
            state = states.get(flow.name, "QUEUED")
            made.append(
                msgspec.structs.replace(
                    flow,
                    state=STATES.get(state, state.title()),
                    rows=known.rows,
                    input_rate=known.input_rate,
                    message=_failure(running.get(flow.name)),
                )
            )
        self.flows = made

    def _progress(self, name: str, flow: Any) -> None:
        try:
            query = flow.getStreamingQuery()
        except Py4JJavaError:  # it has not started
            return
        known = self.queries.get(name)
        for report in query.recentProgress():
            document = json.loads(report.json())
            if known is None or document["timestamp"] > known.checkpoint:
                known = progress(document, known)
        if known is not None:
            self.queries[name] = known


def flows_of(holder: Any, graph: str) -> list[FlowStatus]:
    """The flows of a graph that is not run."""
    registered = holder.dataflowGraphRegistry().getDataflowGraphOrThrow(graph)
    return _flows(registered.toDataflowGraph().resolve())


def stop(holder: Any, graph: str) -> None:
    """Stops the flows of a running update; their Spark jobs have to be cancelled, too."""
    execution = _execution(holder, graph)
    if execution is not None:
        with suppress(Py4JJavaError):  # why it ended already, for example a cancelled job
            execution.stop()


def unresolved(holder: Any, graph: str) -> str:
    """Which flow cannot be analysed, and why; empty if all can."""
    registered = holder.dataflowGraphRegistry().getDataflowGraphOrThrow(graph)
    for flow in _each(registered.toDataflowGraph().resolve().resolutionFailedFlows()):
        for error in _each(flow.failure()):
            if error.getClass().getSimpleName() != UPSTREAM:
                message = explain_failure(str(error.getMessage()))[1]
                return f"flow {_name(flow.identifier())}: {message}"
    return ""


def first_failure(flows: Iterable[FlowStatus]) -> str:
    return next((f"flow {flow.name}: {flow.message}" for flow in flows if flow.message), "")


def _execution(holder: Any, graph: str) -> Any:
    """Spark's GraphExecution of the update; None before it has one."""
    context = holder.getPipelineExecution(graph)
    if not context.isDefined():
        return None
    found = context.get().pipelineExecution().graphExecution()
    return found.get() if found.isDefined() else None


def _failure(flow: Any) -> str:
    if flow is None or not flow.exception().isDefined():
        return ""
    return explain_failure(str(flow.exception().get()))[1]


def _flows(resolved: Any) -> list[FlowStatus]:
    """The flows of a graph and what each one reads of it, by name."""
    found = [
        FlowStatus(
            name=_name(flow.identifier()),
            inputs=sorted(_name(one) for one in _each(flow.inputs())),
        )
        for flow in _each(resolved.resolvedFlows())
    ]
    return sorted(found, key=lambda flow: flow.name)


def _name(identifier: Any) -> str:
    """ "spark_catalog.default.visits" → "visits"; other catalogs and databases stay."""
    name = str(identifier.unquotedString())
    return name.removeprefix("spark_catalog.").removeprefix("default.")


def _each(collection: Any) -> Iterator[Any]:
    """The elements of a collection of Scala."""
    iterator = collection.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _pairs(collection: Any) -> Iterator[tuple[Any, Any]]:
    return ((pair._1(), pair._2()) for pair in _each(collection))
