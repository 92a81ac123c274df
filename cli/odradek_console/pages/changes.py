"""The page of a change: each value from → to, and the button that applies it."""

from __future__ import annotations

from aiohttp import web

from odradek_console.web.changes import Change, ChangeError
from odradek_console.web.proposing import carry_out, text_of
from odradek_console.web.rendering import SESSION, own_path, render


def _waiting(request: web.Request) -> Change:
    change = request[SESSION].changes.get(request.match_info["id"])
    if change is None:
        request[SESSION].notice("error", "This change was made already, or it is too old.")
        raise web.HTTPSeeOther("/")
    return change


async def show(request: web.Request) -> web.Response:
    return render(request, "change.html", change=_waiting(request), problem="")


async def confirm(request: web.Request) -> web.StreamResponse:
    change = _waiting(request)
    if change.type_to_confirm and await text_of(request, "typed") != change.type_to_confirm:
        problem = f"Type {change.type_to_confirm} to confirm."
        return render(request, "change.html", 400, change=change, problem=problem)
    if request[SESSION].changes.take(request.match_info["id"]) is None:
        raise web.HTTPSeeOther("/")
    try:
        await carry_out(request, change)
    except ChangeError as error:
        request[SESSION].notice("error", f"Nothing was changed, or not all of it: {error}")
        raise web.HTTPSeeOther(own_path(change.back)) from error
    request[SESSION].notice("done", change.done)
    raise web.HTTPSeeOther(own_path(change.then))
