"""The admin HTTP server (aiohttp).

    GET /healthz   200 while the event loop runs, 503 with the reasons if the broker needs a restart
    GET /readyz    200 {"ready": true} when clients are served, else 503 with the reasons,
                   such as {"ready": false, "reasons": {"recovery": "12 of 400 logs loaded"}}
    GET /metrics   Prometheus
    GET /v1/controller/partitions, /v1/controller/replicas    see controller_states.py
    GET /v1/loads  see replica_loads.py

aiohttp takes 0.3 s to import, longer than the rest of the broker's start. So `admin_front.py` binds
the socket first, and imports this module when the broker is ready or its start takes long.
"""

import asyncio
import json
import socket
from collections.abc import Mapping

from aiohttp import web
from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from odradek_broker.admin import controller_states
from odradek_broker.admin.accepting import AdminListener
from odradek_broker.admin.cluster_metrics import ClusterCollector
from odradek_broker.admin.metrics import BrokerCollector
from odradek_broker.admin.partition_metrics import PartitionCollector
from odradek_broker.admin.replica_loads import replica_loads
from odradek_broker.admin.state import Readiness
from odradek_broker.handlers.broker_context import BrokerContext
from odradek_protocol.ids import BrokerId

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
DESCRIBE = {
    "partitions": controller_states.partitions,
    "replicas": controller_states.replicas,
}


class AdminServer:
    """Serves from the moment it is started; the broker's metrics are added once it has started."""

    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness
        self._broker: BrokerContext | None = None
        self._listener: AdminListener | None = None
        self._registry = CollectorRegistry(auto_describe=False)
        self._partitions = CollectorRegistry(auto_describe=False)  # read in a thread
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/v1/controller/{what:partitions|replicas}", self._controller_states)
        app.router.add_get("/v1/loads", self._loads)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)

    async def start(self, sock: socket.socket) -> None:
        """`sock` is bound already."""
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        self._listener = AdminListener(sock, server)

    async def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()

    def attach(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._registry.register(BrokerCollector(broker, self._readiness))
        self._partitions.register(PartitionCollector(broker.partitions))
        self._partitions.register(
            ClusterCollector(BrokerId(broker.node_id), lambda: broker.controller.image)
        )

    async def _healthz(self, _: web.Request) -> web.Response:
        healthy = self._readiness.healthy
        answer: dict[str, object] = {"healthy": healthy}
        if not healthy:
            answer["reasons"] = self._readiness.restart_reasons
        return web.json_response(answer, status=200 if healthy else 503)

    async def _readyz(self, _: web.Request) -> web.Response:
        ready = self._readiness.ready
        return web.json_response(
            {"ready": ready, "reasons": self._readiness.reasons}, status=200 if ready else 503
        )

    async def _controller_states(self, request: web.Request) -> web.Response:
        broker = self._broker
        context = broker.controller.context if broker else None
        if broker is None or context is None:
            leader = broker.quorum.leader.leader_id if broker else None
            message = "this broker is not the active controller"
            return web.json_response({"error": message, "controller": leader}, status=404)
        try:
            found = DESCRIBE[request.match_info["what"]](context, request.query)
        except ValueError as error:
            return web.json_response({"error": str(error)}, status=400)
        controller = {"controller": broker.node_id, "epoch": broker.controller.epoch}
        return web.json_response(controller | found)

    async def _loads(self, request: web.Request) -> web.Response:
        broker = self._broker
        if broker is None:
            return web.json_response({"error": "the broker is starting"}, status=503)
        now_ms = broker.clock.monotonic_ms()
        try:
            text = await asyncio.to_thread(_loads_text, broker, now_ms, request.query)
        except ValueError as error:
            return web.json_response({"error": str(error)}, status=400)
        return web.Response(text=text, content_type="application/json")

    async def _metrics(self, _: web.Request) -> web.Response:
        partitions = await asyncio.to_thread(generate_latest, self._partitions)
        return web.Response(
            body=generate_latest(self._registry) + partitions,
            headers={"Content-Type": CONTENT_TYPE},
        )


def _loads_text(broker: BrokerContext, now_ms: float, query: Mapping[str, str]) -> str:
    return json.dumps(replica_loads(broker.node_id, broker.partitions, now_ms, query))
