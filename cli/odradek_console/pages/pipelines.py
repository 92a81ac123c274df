"""Pipelines: a list, and one as a graph with its rates, lag, batches, state and dead letters."""

from __future__ import annotations

from aiohttp import web

from odradek_console.cluster.pipeline_graph import DEAD, GraphNode, graph_of
from odradek_console.cluster.runtime_state import PipelineState
from odradek_console.pages.runtime import source_of, state_of, steerable
from odradek_console.web.graphs import pipeline_graph
from odradek_console.web.rendering import SESSION, address, render
from odradek_protocol.client.errors import ClientError


async def list_pipelines(request: web.Request) -> web.Response:
    found, problem = await state_of(request)
    return render(
        request, "pipelines.html", source=source_of(request), found=found, problem=problem
    )


async def one_pipeline(request: web.Request) -> web.Response:
    key = f"{request.match_info['namespace']}/{request.match_info['name']}"
    found, problem = await state_of(request)
    pipeline = next((one for one in found.pipelines if one.key == key), None) if found else None
    if pipeline is None and not problem:
        raise web.HTTPNotFound
    drawn = await _drawn(request, pipeline) if pipeline is not None else ""
    return render(
        request, "pipeline.html", key=key, one=pipeline, problem=problem, graph=drawn,
        warning=found.warning if found else "", steerable=await steerable(request),
    )  # fmt: skip


async def _drawn(request: web.Request, pipeline: PipelineState) -> str:
    """Topics of this cluster are links: a pipeline may read and write others, too."""
    session = request[SESSION]
    try:
        topics = set((await session.run(session.view.metadata)).topics)
    except ClientError:
        topics = set()

    def address_of(node: GraphNode) -> str:
        if node.topic not in topics:
            return ""
        return address("topics", node.topic, *(["records"] if node.kind == DEAD else []))

    graph = graph_of(pipeline)
    return pipeline_graph(graph, f"Pipeline {pipeline.key}", address_of) if graph.nodes else ""
