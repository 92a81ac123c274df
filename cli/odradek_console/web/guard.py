"""The checks between a request and a page.

1. The Host header names this console: otherwise a page of another name that resolves to this
   address (DNS rebinding) could use it from a victim's browser.
2. A request that changes something comes from a page of ours: Origin or Sec-Fetch-Site, and the
   token of the session in the form. Cookies are shared by all ports of a host, so SameSite alone
   does not keep other local servers' pages out.
3. Every page but the login has a session.
4. Headers: no script, style or connection but our own, no frames, nothing kept in caches.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from aiohttp import web

from odradek_console.web.options import LOOPBACK, ConsoleOptions
from odradek_console.web.rendering import OPTIONS, SESSION, address, own_path, render
from odradek_console.web.sessions import Session, Sessions, TooManySessionsError
from odradek_protocol.client.errors import AuthenticationError, BrokerError, ClientError

SESSIONS = web.AppKey("sessions", Sessions)
logger = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=()",
}
HEALTH = "/healthz"
LOGIN = "/login"
LOGIN_START, LOGIN_CALLBACK = "/login/start", "/login/callback"  # of OIDC
PUBLIC = (LOGIN, LOGIN_START, LOGIN_CALLBACK, HEALTH)
READING = ("GET", "HEAD")
# The last two show what would be done.
ALLOWED_WHEN_READ_ONLY = (LOGIN, "/logout", "/plan", "/rebalance/propose")


def cookie_name(options: ConsoleOptions, what: str = "console") -> str:
    """`__Host-`: no other host or path can set it. With the port in the name,
    two consoles on one host have cookies of their own."""
    prefix = "__Host-" if options.secure_cookies else ""
    return f"{prefix}odradek-{what}-{options.port}"


def set_cookie(response: web.StreamResponse, options: ConsoleOptions, session: Session) -> None:
    set_own_cookie(response, options, cookie_name(options), session.id)


def set_own_cookie(
    response: web.StreamResponse, options: ConsoleOptions, name: str, value: str
) -> None:
    response.set_cookie(
        name,
        value,
        path="/",
        httponly=True,
        secure=options.secure_cookies,
        samesite="Lax",  # not Strict: links from chats and tickets open pages
    )


@web.middleware
async def headers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The outermost: also on errors and redirects."""
    try:
        response = await handler(request)
    except web.HTTPException as stopped:
        stopped.headers.update(HEADERS)
        stopped.headers.setdefault("Cache-Control", "no-store")
        raise
    if not response.prepared:
        response.headers.update(HEADERS)
        if request.app[OPTIONS].secure_cookies:
            response.headers["Strict-Transport-Security"] = "max-age=31536000"
        response.headers.setdefault("Cache-Control", "no-store")
    return response


def is_own_host(options: ConsoleOptions, host: str) -> bool:
    try:
        parts = urlsplit(f"//{host}")
        name, port = parts.hostname or "", parts.port
    except ValueError:
        return False
    if parts.username is not None or parts.path:
        return False
    allowed = {options.host.lower(), *(name.lower() for name in options.names)}
    if options.host in LOOPBACK:
        allowed.update(LOOPBACK)
    default = 443 if options.scheme == "https" else 80
    right_port = options.behind_proxy or (port or default) == options.port
    return name.lower() in allowed and right_port


@web.middleware
async def own_host(request: web.Request, handler: Handler) -> web.StreamResponse:
    options = request.app[OPTIONS]
    if request.path == HEALTH:  # a kubelet asks by the address of the pod; there is nothing to see
        return await handler(request)
    if not is_own_host(options, request.headers.get("Host", "")):
        raise web.HTTPMisdirectedRequest(
            text="This console is not served under this name. Use the address that it printed, "
            "or start it with --host-name NAME.\n"
        )
    return await handler(request)


def is_own_origin(request: web.Request) -> bool:
    """Browsers send Origin with every POST."""
    origin = request.headers.get("Origin")
    if origin is not None:
        options = request.app[OPTIONS]
        return origin == f"{options.scheme}://{request.headers.get('Host', '')}"
    return request.headers.get("Sec-Fetch-Site", "same-origin") in ("same-origin", "none")


@web.middleware
async def sessions(request: web.Request, handler: Handler) -> web.StreamResponse:
    options, known = request.app[OPTIONS], request.app[SESSIONS]
    session = known.find(request.cookies.get(cookie_name(options)))
    if session is not None and not await session.is_alive():
        known.end(session)
        session = None
    if session is not None:
        request[SESSION] = session
    elif not request.path.startswith("/static/") and request.path not in PUBLIC:
        return _entrance(request, known)
    if request.method not in READING:
        await _check_change(request, session)
    return await handler(request)


def _entrance(request: web.Request, known: Sessions) -> web.StreamResponse:
    """Without a session: to the login, or in with the token of the printed address."""
    options = request.app[OPTIONS]
    if request.method not in READING:
        raise web.HTTPForbidden(text="Your session is over. Open the page again.\n")
    if options.login is not None:
        raise web.HTTPSeeOther(address("login", next=request.path_qs))
    if known.knows_token(request.query.get("token", "")):
        try:
            session = known.begin()
        except TooManySessionsError as error:
            raise web.HTTPServiceUnavailable(text=f"{error}; try again later.\n") from None
        query = {name: value for name, value in request.query.items() if name != "token"}
        answer = web.HTTPSeeOther(own_path(str(request.rel_url.with_query(query))))
        set_cookie(answer, options, session)
        raise answer
    return render(request, "token.html", status=401)


async def _check_change(request: web.Request, session: Session | None) -> None:
    if not is_own_origin(request):
        raise web.HTTPForbidden(text="This request came from another site.\n")
    if session is not None and request.path != LOGIN:
        form = await request.post()
        given = form.get("csrf", "")
        if not isinstance(given, str) or not hmac.compare_digest(
            given.encode(), session.csrf.encode()
        ):
            raise web.HTTPForbidden(text="The form is out of date. Open the page again.\n")
    if request.app[OPTIONS].read_only and request.path not in ALLOWED_WHEN_READ_ONLY:
        raise web.HTTPForbidden(text="This console is read-only (--read-only).\n")


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Failures of the cluster become a page with the remedy."""
    try:
        return await handler(request)
    except ClientError as error:
        return render(request, "error.html", 502, **explained(error))
    except web.HTTPNotFound:
        return render(
            request,
            "error.html",
            404,
            title="There is no such page",
            message=f"Nothing is at {request.path}.",
            remedy="Choose a page from the navigation.",
        )
    except web.HTTPException:
        raise
    except Exception:
        logger.exception("%s %s failed", request.method, request.path)
        return render(
            request,
            "error.html",
            500,
            title="The console made a mistake",
            message="This page could not be shown.",
            remedy="The log of the console has the details; please report them.",
        )


def explained(error: ClientError) -> dict[str, str]:
    """Title, message and remedy."""
    if isinstance(error, AuthenticationError):
        title, remedy = "The cluster refused the login", "Log in again, or check --client-config."
    elif isinstance(error, BrokerError) and "AUTHORIZATION" in error.name:
        title = "You may not see this"
        remedy = "Ask for the ACL that is missing; the Security page says who may do what."
    elif isinstance(error, BrokerError) and error.name == "UNKNOWN_TOPIC_OR_PARTITION":
        title = "There is no such topic"
        remedy = "It was deleted, or you may not see it: Kafka does not tell these apart."
    elif isinstance(error, BrokerError):
        title, remedy = "The cluster refused this", "The sentence above is the broker's own."
    else:
        title = "The cluster does not answer"
        remedy = "Check that the brokers run; this page can be loaded again at any time."
    return {"title": title, "message": f"{str(error)[:1].upper()}{str(error)[1:]}.",
            "remedy": remedy}  # fmt: skip
