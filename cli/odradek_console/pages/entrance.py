"""Log in, log out, and the answer to probes."""

from __future__ import annotations

import logging
import time
from collections import deque

from aiohttp import web

from odradek_console.cluster.access import LOGIN_MECHANISMS
from odradek_console.cluster.view import ClusterView
from odradek_console.web.guard import SESSIONS, cookie_name, set_cookie
from odradek_console.web.proposing import AUDIT, text_of
from odradek_console.web.rendering import OPTIONS, SESSION, own_path, render
from odradek_console.web.sessions import TooManySessionsError
from odradek_protocol.client.errors import AuthenticationError, ClientError
from odradek_protocol.security.errors import SecurityError

logger = logging.getLogger(__name__)

# Guesses per address: brokers do not limit them, and each costs a broker a PBKDF2.
FAILURES_MAX = 10
WINDOW_S = 60.0
ADDRESSES_MAX = 10_000
NAME_CHARS_MAX = 256


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
    return _form(request)


def _form(request: web.Request, problem: str = "", user: str = "", status: int = 200
          ) -> web.Response:  # fmt: skip
    return render(
        request,
        "login.html",
        status,
        problem=problem,
        user=user,
        mechanism=request.app[OPTIONS].login,
        next_path=own_path(request.query.get("next", "/")),
    )


async def login(request: web.Request) -> web.StreamResponse:
    options, sessions = request.app[OPTIONS], request.app[SESSIONS]
    if options.login is None:
        raise web.HTTPNotFound
    assert options.login in LOGIN_MECHANISMS
    remote, guesses = request.remote or "", request.app[GUESSES]
    if guesses.too_many(remote):
        return _form(request, "Too many attempts; wait a minute.", status=429)
    user = await text_of(request, "user")
    password = (await request.post()).get("password", "")
    if not user or not isinstance(password, str) or len(user) > NAME_CHARS_MAX:
        return _form(request, "Give the name and the password of a Kafka user.", user, 400)
    try:
        access = options.access.logged_in(options.login, user, password)
        view = ClusterView(access)
        await _connect(request, view)
    except (AuthenticationError, SecurityError):
        guesses.failed(remote)
        request.app[AUDIT].write(user, remote, "log in", "", [], "refused")
        return _form(request, "The cluster refused this name or password.", user, 401)
    except ClientError as error:
        return _form(request, f"The cluster does not answer: {error}", user, 502)
    old = request.get(SESSION)
    if old is not None:
        sessions.end(old)
    try:
        session = sessions.begin(view)
    except TooManySessionsError:
        view.close()
        return _form(request, "The console has too many sessions; try again later.", user, 503)
    request.app[AUDIT].write(user, remote, "log in", "", [], "done")
    answer = web.HTTPSeeOther(own_path(await text_of(request, "next")))
    set_cookie(answer, options, session)
    raise answer


async def _connect(request: web.Request, view: ClusterView) -> None:
    """Raises AuthenticationError if that is why no broker can be used."""
    import asyncio

    loop = asyncio.get_running_loop()
    try:
        await loop.run_in_executor(request.app[SESSIONS].threads, view.client.metadata, ())
    except BaseException as error:
        view.close()
        if isinstance(error, ClientError) and "uthentication failed" in str(error):
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
