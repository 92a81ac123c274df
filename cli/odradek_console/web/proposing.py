"""From a form to a change that waits for its confirmation, and the change itself."""

from __future__ import annotations

from typing import NoReturn

from aiohttp import web

from odradek_console.web.audit import AuditLog
from odradek_console.web.changes import Change, ChangeError
from odradek_console.web.rendering import SESSION, address, own_path
from odradek_protocol.client.errors import ClientError

AUDIT = web.AppKey("audit", AuditLog)


def propose(request: web.Request, change: Change) -> NoReturn:
    """Shows the change, and asks for confirmation."""
    change_id = request[SESSION].changes.add(change)
    raise web.HTTPSeeOther(address("changes", change_id))


def refuse(request: web.Request, back: str, message: str) -> NoReturn:
    """Back to the form, with its error as a sentence."""
    request[SESSION].notice("error", message)
    raise web.HTTPSeeOther(own_path(back))


async def carry_out(request: web.Request, change: Change) -> None:
    """Applies it as the session's user; raises ChangeError. Both outcomes are in the audit log."""
    session, audit = request[SESSION], request.app[AUDIT]
    outcome = "done"
    try:
        await session.run(change.apply, session.view.client)
    except (ClientError, ChangeError) as error:
        outcome = f"refused: {error}"
        raise ChangeError(str(error)) from error
    except BaseException as error:
        outcome = f"failed: {type(error).__name__}"
        raise
    finally:
        session.view.forget()
        audit.write(
            session.user,
            request.remote or "",
            change.action,
            change.subject,
            change.details(),
            outcome,
        )


async def text_of(request: web.Request, name: str) -> str:
    """A field of the form; "" if it is not there, or is a file."""
    value = (await request.post()).get(name, "")
    return value.strip() if isinstance(value, str) else ""
