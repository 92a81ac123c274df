"""Plan and roll: what the local runtime or the operator does, why it waits, other manifests."""

from __future__ import annotations

from aiohttp import web

from odradek_console.cluster.runtime_state import (
    PlanError,
    RuntimeSource,
    RuntimeState,
    UnreadableStateError,
)
from odradek_console.web.proposing import text_of
from odradek_console.web.rendering import OPTIONS, SESSION, render

TOPICS_SHOWN = 50  # that are not ready


def source_of(request: web.Request) -> RuntimeSource:
    source = request.app[OPTIONS].runtime
    if source is None:
        raise web.HTTPNotFound
    return source


async def state_of(request: web.Request) -> tuple[RuntimeState | None, str]:
    """The state, or why it cannot be read.

    It is read with the console's rights. So a user who has logged in has to be allowed to DESCRIBE
    the cluster in Kafka: the state names topics and settings.
    """
    session = request[SESSION]
    if request.app[OPTIONS].login is not None:
        await session.run(session.view.require_describe_cluster)
    try:
        return await session.run(source_of(request).read), ""
    except UnreadableStateError as error:
        return None, str(error)


async def plan(request: web.Request) -> web.Response:
    return await _page(request, "", None, "")


async def try_out(request: web.Request) -> web.Response:
    """The plan for the pasted manifests. Changes nothing."""
    source = source_of(request)
    if not source.plans_manifests:
        raise web.HTTPNotFound
    manifests = await text_of(request, "manifests")
    try:
        planned = await request[SESSION].run(source.plan, manifests)
    except PlanError as error:
        return await _page(request, manifests, None, str(error))
    return await _page(request, manifests, planned, "")


async def _page(
    request: web.Request, manifests: str, planned: RuntimeState | None, refused: str
) -> web.Response:
    source = source_of(request)
    found, problem = await state_of(request)
    return render(
        request,
        "plan.html",
        400 if refused else 200,
        source=source,
        found=found,
        problem=problem,
        topics_shown=TOPICS_SHOWN,
        manifests=manifests,
        planned=planned,
        refused=refused,
    )
