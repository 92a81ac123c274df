"""The composition root: routes, sessions, the sampler, and the shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import mimetypes
import os
import signal
import sys
import time
from collections.abc import AsyncIterator

from aiohttp import web

from odradek_console.cluster.history import STEP_S
from odradek_console.cluster.oidc import Provider
from odradek_console.cluster.sampling import sample
from odradek_console.cluster.view import ClusterView
from odradek_console.pages import (
    brokers,
    changes,
    entrance,
    groups,
    oidc_login,
    overview,
    pipelines,
    plan,
    produce,
    rebalance,
    records,
    security,
    steering,
    topic,
    topics,
)
from odradek_console.web import guard
from odradek_console.web.audit import AuditLog
from odradek_console.web.options import ConsoleOptions
from odradek_console.web.proposing import AUDIT
from odradek_console.web.rendering import OPTIONS, static_files
from odradek_console.web.sessions import Sessions

FORM_BYTES_MAX = 2 * 1024 * 1024  # a record that is produced by hand
SHUTDOWN_S = 2.0  # for running answers; searches end with their sessions
YEAR_S = 31_536_000
STDIN_BYTES = 4096  # nothing is expected there but its end
logger = logging.getLogger(__name__)


def make_app(options: ConsoleOptions) -> web.Application:
    app = web.Application(
        # The order matters: guard.py documents the attack that each one prevents.
        middlewares=[guard.headers, guard.own_host, guard.sessions, guard.errors],
        client_max_size=FORM_BYTES_MAX,
    )
    app[OPTIONS] = options
    app[guard.SESSIONS] = Sessions(options.access, login=options.login is not None)
    app[AUDIT] = AuditLog(options.audit_log)
    app[entrance.GUESSES] = entrance.Guesses()
    if options.oidc is not None:
        app[oidc_login.LOGINS] = oidc_login.OidcLogins(Provider(options.oidc))
    app[rebalance.REBALANCES] = rebalance.Rebalances()
    app.add_routes([
        web.get("/", overview.overview),
        web.get("/brokers", brokers.list_brokers),
        web.post("/brokers/-/elect", brokers.elect_preferred),
        web.get(r"/brokers/{id:\d{1,9}}", brokers.one_broker),
        web.post(r"/brokers/{id:\d{1,9}}/settings", brokers.change_setting),
        web.get("/topics", topics.list_topics),
        web.get("/topics/-/create", topics.create_form),
        web.post("/topics/-/create", topics.create),
        web.get("/topics/{topic}", topic.partitions),
        web.post("/topics/{topic}", topic.change),
        web.get("/topics/{topic}/records", records.records),
        web.get("/topics/{topic}/records/stream", records.stream),
        web.get("/topics/{topic}/records/export", records.export_records),
        web.get("/topics/{topic}/produce", produce.form),
        web.post("/topics/{topic}/produce", produce.produce),
        web.get("/topics/{topic}/groups", topic.groups),
        web.get("/topics/{topic}/producers", topic.producers),
        web.get("/topics/{topic}/settings", topic.settings),
        web.post("/topics/{topic}/settings", topic.change_setting),
        web.get("/groups", groups.list_groups),
        web.get("/groups/{group}", groups.one_group),
        web.post("/groups/{group}", groups.change),
        web.get("/security", security.security),
        web.post("/security/acls", security.change_acl),
        web.get("/rebalance", rebalance.rebalance),
        web.post("/rebalance/propose", rebalance.make_proposal),
        web.get(r"/rebalance/proposals/{id:\w{1,20}}", rebalance.download),
        web.post("/rebalance/apply", rebalance.apply),
        web.post("/rebalance/cancel", rebalance.cancel),
        web.get("/plan", plan.plan),
        web.post("/plan", plan.try_out),
        web.post("/plan/steer", steering.steer_cluster),
        web.get("/pipelines", pipelines.list_pipelines),
        web.get("/pipelines/{namespace}/{name}", pipelines.one_pipeline),
        web.post("/pipelines/{namespace}/{name}", steering.steer_pipeline),
        web.get("/changes/{id}", changes.show),
        web.post("/changes/{id}", changes.confirm),
        web.get("/login", entrance.login_form),
        web.post("/login", entrance.login),
        web.get(guard.LOGIN_START, oidc_login.start),
        web.get(guard.LOGIN_CALLBACK, oidc_login.callback),
        web.post("/logout", entrance.logout),
        web.get("/healthz", entrance.healthz),
        web.get("/static/{name}", static),
    ])  # fmt: skip
    app.cleanup_ctx.append(_sampler)
    app.on_shutdown.append(_end_sessions)
    return app


async def run(app: web.Application, options: ConsoleOptions) -> None:
    """Serves until SIGINT or SIGTERM; prints where, once it listens."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if options.end_with_stdin:
        asyncio.get_running_loop().add_reader(sys.stdin, _read_stdin, stop)
    # Without an access log: addresses have the token, and what people search for.
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    try:
        await web.TCPSite(runner, options.host, options.port, ssl_context=options.tls).start()
        token = app[guard.SESSIONS].token
        host = f"[{options.host}]" if ":" in options.host else options.host
        where = f"{options.scheme}://{host}:{options.port}/" + (f"?token={token}" if token else "")
        print(f"ready: {where}", flush=True)  # noqa: T201  # for the person who started it
        await stop.wait()
    finally:
        await runner.cleanup()


def _read_stdin(stop: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), STDIN_BYTES):
        asyncio.get_running_loop().remove_reader(sys.stdin)
        stop.set()


async def static(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    content = static_files().get(name)
    if content is None:
        raise web.HTTPNotFound
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    cache = {"Cache-Control": f"public, max-age={YEAR_S}, immutable"}
    return web.Response(body=content, content_type=kind, charset="utf-8", headers=cache)


async def _sampler(app: web.Application) -> AsyncIterator[None]:
    task = asyncio.create_task(_sample_for_ever(app[guard.SESSIONS]))
    yield
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def _sample_for_ever(sessions: Sessions) -> None:
    """One point for each view every ten seconds; a view that hangs does not hold up others."""
    loop = asyncio.get_running_loop()
    while True:
        began = time.monotonic()
        sessions.sweep()
        for view in sessions.views():
            loop.run_in_executor(sessions.threads, _sample_logged, view)
        await asyncio.sleep(max(STEP_S - (time.monotonic() - began), 1.0))


def _sample_logged(view: ClusterView) -> None:
    try:
        sample(view)
    except Exception:
        if not view.closed:  # connections and threads end with the session, or with the console
            logger.exception("reading the state of the cluster failed; the next sample tries again")


async def _end_sessions(app: web.Application) -> None:
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, app[rebalance.REBALANCES].close)
    app[guard.SESSIONS].close()
    app[AUDIT].close()
