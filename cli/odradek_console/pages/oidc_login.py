"""Log in at an identity provider: to the issuer, and back with a code.

/login/start sends the browser to the issuer. /login/callback accepts only what the same browser
began: the id of the attempt is in its cookie, and `state` has to fit. So nobody can log a victim in
with a code of their own, and a code that was stolen is worth nothing without the verifier (PKCE).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from typing import TypeVar

from aiohttp import web

from odradek_console.cluster.oidc import Attempt, OidcError, OidcRefusedError, Provider, TokenKeeper
from odradek_console.pages.entrance import enter, form
from odradek_console.web.guard import LOGIN_CALLBACK, SESSIONS, cookie_name, set_own_cookie
from odradek_console.web.proposing import AUDIT
from odradek_console.web.rendering import OPTIONS, own_path
from odradek_console.web.sessions import TooManySessionsError
from odradek_protocol.client.errors import AuthenticationError, ClientError

Answer = TypeVar("Answer")

ATTEMPTS_MAX = 1_000  # strangers can begin logins: the oldest is dropped
VALID_S = 10 * 60.0
CALLS_MAX = 4  # to an issuer that hangs: the threads are for those who have logged in
CODE_CHARS_MAX = 8 * 1024
COOKIE = "login"
NOT_BEGUN = "This login was not begun in this browser, or it is too old. Begin again."
logger = logging.getLogger(__name__)


class OidcLogins:
    """The provider, and the logins that have begun."""

    def __init__(self, provider: Provider, now: Callable[[], float] = time.monotonic) -> None:
        self.provider = provider
        self.calls = asyncio.Semaphore(CALLS_MAX)
        self._now = now
        self._attempts: dict[str, Attempt] = {}

    def begin(self, attempt: Attempt) -> str:
        while len(self._attempts) >= ATTEMPTS_MAX:
            del self._attempts[next(iter(self._attempts))]
        attempt_id = secrets.token_urlsafe(24)
        self._attempts[attempt_id] = attempt
        return attempt_id

    def take(self, attempt_id: str, state: str) -> Attempt | None:
        """Once. A wrong `state` does not use it up: anybody can send a browser here."""
        attempt = self._attempts.get(attempt_id)
        if attempt is None or not attempt.is_state(state):
            return None
        del self._attempts[attempt_id]
        return attempt if self._now() - attempt.began <= VALID_S else None


LOGINS = web.AppKey("oidc_logins", OidcLogins)


async def start(request: web.Request) -> web.StreamResponse:
    logins = _logins(request)
    attempt = Attempt.new(own_path(request.query.get("next", "/")))
    provider = logins.provider
    try:
        where = await _call(
            request, lambda: provider.authorization_url(_redirect_uri(request), attempt)
        )
    except OidcError as error:
        logger.warning("nobody can log in: %s", error)
        return form(request, f"The issuer cannot be used: {error}", status=502)
    answer = web.HTTPSeeOther(where)
    options = request.app[OPTIONS]
    set_own_cookie(answer, options, cookie_name(options, COOKIE), logins.begin(attempt))
    raise answer


async def callback(request: web.Request) -> web.StreamResponse:
    logins, options, query = _logins(request), request.app[OPTIONS], request.query
    cookie = cookie_name(options, COOKIE)
    attempt = logins.take(request.cookies.get(cookie, ""), query.get("state", ""))
    if attempt is None:
        return form(request, NOT_BEGUN, status=400)
    issuer = logins.provider.settings.issuer
    if query.get("iss", issuer) != issuer:  # RFC 9207
        return _refused(request, "the answer is of another issuer", 400)
    if "error" in query:
        return _refused(request, f"the issuer answered {_code(query['error'])}", 401)
    code = query.get("code", "")
    if not code or len(code) > CODE_CHARS_MAX:
        return _refused(request, "the issuer gave no code", 400)
    provider = logins.provider
    try:
        granted = await _call(
            request, lambda: provider.exchange(code, _redirect_uri(request), attempt)
        )
        access = options.access.with_tokens(TokenKeeper(provider, granted), granted.user)
        await enter(request, access, attempt.next_path)
    except OidcRefusedError as error:
        return _refused(request, str(error), 401)
    except OidcError as error:
        return form(request, f"The issuer cannot be used: {error}", status=502)
    except AuthenticationError:
        return form(request, "The cluster refused the issuer's token of this user.", status=401)
    except TooManySessionsError:
        return form(request, "The console has too many sessions; try again later.", status=503)
    except ClientError as error:
        return form(request, f"The cluster does not answer: {error}", status=502)


def _logins(request: web.Request) -> OidcLogins:
    logins = request.app.get(LOGINS)
    if logins is None:
        raise web.HTTPNotFound
    return logins


def _redirect_uri(request: web.Request) -> str:
    """`Host` is one of this console's names: guard.own_host has checked it."""
    return f"{request.app[OPTIONS].scheme}://{request.headers['Host']}{LOGIN_CALLBACK}"


def _refused(request: web.Request, why: str, status: int) -> web.Response:
    request.app[AUDIT].write("", request.remote or "", "log in", "", [], f"refused: {why}")
    return form(request, f"The login was refused: {why}.", status=status)


def _code(error: str) -> str:
    """access_denied and the like; other text of the address is not repeated."""
    return error if len(error) < 60 and error.replace("_", "").isalnum() else "an error"


async def _call(request: web.Request, ask: Callable[[], Answer]) -> Answer:
    async with _logins(request).calls:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(request.app[SESSIONS].threads, ask)
