"""Log in with a name and a password, log out, and the answer to probes.

`enter` is the end of every login: oidc_login.py and certificate_login.py use it, too.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import NoReturn

from aiohttp import web

from odradek_console.cluster.access import CERTIFICATE, LOGIN_MECHANISMS, Access
from odradek_console.cluster.view import ClusterView
from odradek_console.pages.certificate_login import LoginRefusedError, certificate_access
from odradek_console.web.guard import SESSIONS, cookie_name, set_cookie
from odradek_console.web.proposing import AUDIT, text_of
from odradek_console.web.rendering import OPTIONS, SESSION, own_path, render
from odradek_console.web.sessions import TooManySessionsError
from odradek_protocol.client.errors import AuthenticationError, ClientError
from odradek_protocol.security.errors import SecurityError

# Guesses per address: brokers do not limit them, and each costs a broker a PBKDF2.
FAILURES_MAX = 10
WINDOW_S = 60.0
ADDRESSES_MAX = 10_000
NAME_CHARS_MAX = 256
# In the error of a client that has tried all brokers: those of passwords, and of tokens.
REFUSALS = ("uthentication failed", "refused the token", "invalid_token")


class Guesses:
    """Failed logins of the last minute, per address."""

    def __init__(self) -> None:
        self._failed: dict[str, deque[float]] = {}

    def too_many(self, address: str) -> bool:
        times = self._failed.get(address, deque())
        while times and time.monotonic() - times[0] > WINDOW_S:
            times.popleft()
        return len(times) >= FAILURES_MAX

    def failed(self, address: str) -> None:
        if len(self._failed) >= ADDRESSES_MAX:
            self._failed.clear()
        self._failed.setdefault(address, deque(maxlen=FAILURES_MAX)).append(time.monotonic())


GUESSES = web.AppKey("guesses", Guesses)


async def login_form(request: web.Request) -> web.Response:
    if request.app[OPTIONS].login is None:
        raise web.HTTPSeeOther("/")
    return form(request)


def form(request: web.Request, problem: str = "", user: str = "", status: int = 200
         ) -> web.Response:  # fmt: skip
    options = request.app[OPTIONS]
    return render(
        request,
        "login.html",
        status,
        problem=problem,
        user=user,
        way=options.login,
        issuer=options.oidc.issuer if options.oidc is not None else "",
        next_path=own_path(request.query.get("next", "/")),
    )


async def login(request: web.Request) -> web.StreamResponse:
    """A form with a password, or with a certificate."""
    options = request.app[OPTIONS]
    if options.login != CERTIFICATE and options.login not in LOGIN_MECHANISMS:
        raise web.HTTPNotFound
    remote, guesses = request.remote or "", request.app[GUESSES]
    if guesses.too_many(remote):
        return form(request, "Too many attempts; wait a minute.", status=429)
    if options.login == CERTIFICATE:
        try:
            access, next_path = await certificate_access(request)
        except LoginRefusedError as error:
            guesses.failed(remote)
            return form(request, str(error), status=400)
        refused = "The cluster refused this certificate, or did not answer"
        return await _enter_or_form(request, access, next_path, refused)
    user = await text_of(request, "user")
    password = (await request.post()).get("password", "")
    if not user or not isinstance(password, str) or len(user) > NAME_CHARS_MAX:
        return form(request, "Give the name and the password of a Kafka user.", user, 400)
    refused = "The cluster refused this name or password."
    try:
        access = options.access.logged_in(options.login, user, password)
    except SecurityError:
        guesses.failed(remote)
        return form(request, refused, user, 401)
    return await _enter_or_form(request, access, await text_of(request, "next"), refused)


async def _enter_or_form(
    request: web.Request, access: Access, next_path: str, refused: str
) -> web.Response:
    """`refused`: for a person, if the cluster does not accept these credentials."""
    is_certificate = request.app[OPTIONS].login == CERTIFICATE
    user = "" if is_certificate else access.user
    try:
        await enter(request, access, next_path)
    except AuthenticationError:
        request.app[GUESSES].failed(request.remote or "")
        return form(request, refused, user, 401)
    except TooManySessionsError:
        return form(request, "The console has too many sessions; try again later.", user, 503)
    except ClientError as error:
        if is_certificate:  # a broker ends the connection without a reason
            request.app[GUESSES].failed(request.remote or "")
            return form(request, f"{refused}: {error}", user, 401)
        return form(request, f"The cluster does not answer: {error}", user, 502)


async def enter(request: web.Request, access: Access, next_path: str) -> NoReturn:
    """Connects as this user, and begins a session whose id is new (session fixation).

    Raises AuthenticationError, another ClientError, or TooManySessionsError.
    """
    sessions, audit, remote = request.app[SESSIONS], request.app[AUDIT], request.remote or ""
    view = ClusterView(access)
    try:
        await _connect(request, view)
    except AuthenticationError:
        audit.write(access.user, remote, "log in", "", [], "refused")
        raise
    old = request.get(SESSION)
    if old is not None:
        sessions.end(old)
    try:
        session = sessions.begin(view)
    except TooManySessionsError:
        view.close()
        raise
    audit.write(access.user, remote, "log in", "", [], "done")
    answer = web.HTTPSeeOther(own_path(next_path))
    set_cookie(answer, request.app[OPTIONS], session)
    raise answer


async def _connect(request: web.Request, view: ClusterView) -> None:
    """Raises AuthenticationError if that is why no broker can be used."""
    loop = asyncio.get_running_loop()
    try:
        await loop.run_in_executor(request.app[SESSIONS].threads, view.client.metadata, ())
    except BaseException as error:
        view.close()
        if isinstance(error, ClientError) and any(one in str(error) for one in REFUSALS):
            raise AuthenticationError(str(error)) from error
        raise


async def logout(request: web.Request) -> web.StreamResponse:
    session = request.get(SESSION)
    if session is not None:
        request.app[SESSIONS].end(session)
    answer = web.HTTPSeeOther("/login")
    answer.del_cookie(cookie_name(request.app[OPTIONS]), path="/")
    raise answer


async def healthz(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")
