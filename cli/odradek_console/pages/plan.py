"""Plan and roll: what the local runtime or the operator does, why it waits, other manifests."""

from __future__ import annotations

from aiohttp import web

from odradek_console.cluster.runtime_state import PlanError, RuntimeState
from odradek_console.pages.runtime import source_of, state_of, steerable
from odradek_console.web.proposing import text_of
from odradek_console.web.rendering import SESSION, render
from odradek_console.web.timeline import away_text, restart_timeline

TOPICS_SHOWN = 50  # that are not ready


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
        steerable=await steerable(request),
        timeline=restart_timeline,
        away=away_text,
        manifests=manifests,
        planned=planned,
        refused=refused,
    )
