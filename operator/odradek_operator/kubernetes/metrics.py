"""The operator's own endpoints: /metrics, /healthz and /readyz on one port."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from odradek_operator.kubernetes.pipeline_metrics import PipelineMetrics

BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class OperatorMetrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        name = "odradek_operator"
        self.seconds = Histogram(
            f"{name}_reconcile_seconds", "Duration of a pass over one cluster", buckets=BUCKETS,
            registry=self.registry,
        )  # fmt: skip
        self.errors = Counter(
            f"{name}_reconcile_errors", "Passes that failed, by error", ["error"],
            registry=self.registry,
        )  # fmt: skip
        self.refused = Counter(
            f"{name}_actions_failed", "Actions that Kafka or Kubernetes refused",
            registry=self.registry,
        )  # fmt: skip
        self.clusters = Gauge(f"{name}_clusters", "KafkaClusters", registry=self.registry)
        self.topics = Gauge(f"{name}_topics", "Topics", registry=self.registry)
        self.brokers = Gauge(
            f"{name}_brokers", "Desired brokers", ["cluster"], registry=self.registry
        )
        self.leading = Gauge(
            f"{name}_leading", "1 if this replica holds the Lease", registry=self.registry
        )
        self.last_success = Gauge(
            f"{name}_last_success_timestamp_seconds", "End of the last pass without an error",
            ["cluster"], registry=self.registry,
        )  # fmt: skip
        self.certificates = Gauge(
            f"{name}_certificate_not_after_timestamp_seconds", "When a certificate expires",
            ["cluster", "certificate"], registry=self.registry,
        )  # fmt: skip
        self._certificates: dict[str, set[str]] = {}
        self.pipelines = PipelineMetrics()
        self.registry.register(self.pipelines)

    def expiry(self, cluster: str, not_after: Mapping[str, float]) -> None:
        """`not_after`: certificate, as in the status, → unix seconds."""
        for name in self._certificates.pop(cluster, set()) - not_after.keys():
            self.certificates.remove(cluster, name)
        for name, when in not_after.items():
            self.certificates.labels(cluster, name).set(when)
        if not_after:
            self._certificates[cluster] = set(not_after)

    def passed(self, cluster: str, began: float, brokers: int, failures: int) -> None:
        self.seconds.observe(time.monotonic() - began)
        self.last_success.labels(cluster).set(time.time())
        self.brokers.labels(cluster).set(brokers)
        self.refused.inc(failures)

    def gone(self, cluster: str) -> None:
        for gauge in (self.last_success, self.brokers):
            gauge.remove(cluster)
        self.expiry(cluster, {})


async def serve(
    metrics: OperatorMetrics, port: int, alive: Callable[[], bool], ready: Callable[[], bool]
) -> web.AppRunner:
    """`alive` False: the kubelet restarts the operator. `ready`: it works or stands by."""

    async def scrape(_: web.Request) -> web.Response:
        body = generate_latest(metrics.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    def answer(check: Callable[[], bool]) -> Callable[[web.Request], object]:
        async def handler(_: web.Request) -> web.Response:
            fine = check()
            return web.Response(status=200 if fine else 503, text="ok\n" if fine else "not ok\n")

        return handler

    app = web.Application()
    app.router.add_get("/metrics", scrape)
    app.router.add_get("/healthz", answer(alive))  # type: ignore[arg-type]
    app.router.add_get("/readyz", answer(ready))  # type: ignore[arg-type]
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, None, port).start()
    return runner
