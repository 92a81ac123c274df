"""The admin HTTP server (aiohttp).

    GET /healthz   200 while the event loop runs
    GET /readyz    200 {"ready": true} when clients are served, else 503 with the reasons,
                   for example {"ready": false, "reasons": {"recovery": "log 12 of 400, 3.1 GB left"}}
    GET /metrics   Prometheus

aiohttp takes 0.3 s to import, more than the rest of the broker's start. So the socket is bound
first (`main.py` does it), Kafka's listeners go up, and this module is imported after that.
"""

import socket

from aiohttp import web
from prometheus_client import GCCollector, PlatformCollector, ProcessCollector, generate_latest

from odradek_broker.admin.metrics import BrokerCollector, registry
from odradek_broker.admin.state import Readiness
from odradek_broker.handlers.context import BrokerContext

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def start(
    sock: socket.socket, broker: BrokerContext | None, readiness: Readiness
) -> web.AppRunner:
    """Serves on a socket that is bound already; the caller cleans the runner up."""
    metrics = registry()
    ProcessCollector(registry=metrics)
    PlatformCollector(registry=metrics)
    GCCollector(registry=metrics)
    if broker is not None:
        metrics.register(BrokerCollector(broker, readiness))

    async def healthz(_: web.Request) -> web.Response:
        return web.json_response({"healthy": True})

    async def readyz(_: web.Request) -> web.Response:
        return web.json_response(
            {"ready": readiness.ready, "reasons": readiness.reasons},
            status=200 if readiness.ready else 503,
        )

    async def show_metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(metrics), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", show_metrics)
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    await web.SockSite(runner, sock).start()
    return runner
