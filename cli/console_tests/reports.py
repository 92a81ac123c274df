"""Manifests and the report of a local runtime in the middle of a roll, with a busy pipeline.

It is made of the runtime's own types, for tests of pages that must not depend on how far a roll is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml

from odradek_api.base import Condition, instant
from odradek_api.kafka_cluster.status import (
    BrokerStatus,
    CertificateStatus,
    KafkaClusterStatus,
    RestartStatus,
    RollingStatus,
)
from odradek_api.kafka_rebalance.status import KafkaRebalanceStatus, Progress
from odradek_api.pipeline.status import JobStatus, QueryProgress
from odradek_api.topic import TopicStatus
from odradek_operator.local.locking import lock
from odradek_operator.local.pipelines import PipelineReport
from odradek_operator.local.report import ClusterReport, Report

CHANGED = "queued.max.requests changed"
VIEWS: dict[str, Any] = {
    "cluster": {"name": "main"},
    "sources": [
        {"name": "visits", "topics": ["page-views"],
         "watermark": {"column": "at", "delay": "30 seconds"},
         "format": {"type": "json", "schema": "page STRING, customer LONG, at TIMESTAMP"}},
        {"name": "customers", "topics": ["customers"],
         "format": {"type": "json", "schema": "id LONG, country STRING"}},
    ],
    "steps": [
        {"name": "enriched", "sql": "SELECT v.page, v.at, c.country FROM visits v JOIN customers c "
         "ON v.customer = c.id"},
        {"name": "counts", "sql": "SELECT window(at, '1 minute') AS minute, page, country, "
         "count(*) AS views FROM enriched GROUP BY ALL"},
    ],
    "deadLetter": {"topic": "audit"},
    "sink": {"topic": {"name": "shipments", "key": "page"}},
}  # fmt: skip


@contextmanager
def written_runtime(directory: Path) -> Iterator[Path]:
    """The directory for --local; its lock is held, as by a runtime that runs."""
    state = directory / ".odradek"
    state.mkdir(parents=True)
    document = {"apiVersion": "odradek.dev/v1alpha1", "kind": "SparkPipeline",
                "metadata": {"name": "views-by-country"}, "spec": VIEWS}  # fmt: skip
    (directory / "pipeline.yaml").write_text(yaml.safe_dump(document))
    (state / "status.json").write_bytes(msgspec.json.encode(_report()))
    with lock(state, [directory]):
        yield directory


def _report() -> Report:
    since = instant(time.time() - 260)

    def ago(seconds: int) -> str:
        return instant(time.time() - seconds)

    def condition(kind: str, status: str, reason: str, message: str) -> Condition:
        return Condition(type=kind, status=status, reason=reason, message=message,
                         last_transition_time=since)  # fmt: skip

    why = "orders-4 has 2 of 3 replicas in sync; waiting for broker 1"
    cluster = KafkaClusterStatus(
        observed_generation=3,
        conditions=[
            condition("Ready", "True", "AllBrokersReady", "3 brokers are ready"),
            condition("Progressing", "True", "Rolling", why),
            condition("Degraded", "True", "UnderReplicated",
                      "1 partitions are under-replicated: orders-4"),
            condition("RackAware", "True", "RacksApart",
                      "no two replicas of a partition share a rack"),
        ],
        brokers=[
            BrokerStatus(id=1, rack="a", ready=True, leaders=11, under_replicated=1),
            BrokerStatus(id=2, rack="b", ready=True, leaders=12, pending=CHANGED),
            BrokerStatus(id=3, rack="c", ready=True, leaders=11, pending=CHANGED),
        ],
        broker_count=3,
        ready_brokers=3,
        certificates=[
            CertificateStatus(name="cluster CA", not_after=ago(-1_700 * 86_400), phase="TrustBoth",
                              message="waiting for broker 3"),
            CertificateStatus(name="broker 2", not_after=ago(-5 * 86_400 - 60)),
            CertificateStatus(name="broker 1", not_after=ago(-29 * 86_400)),
        ],
        restarts=[
            RestartStatus(node=1, planned=True, reason=f"broker 1: {CHANGED}", began=ago(262),
                          leaders=11),
            RestartStatus(node=3, reason="it ended with signal 9 (SIGKILL); next start at once",
                          began=ago(1_500), ready=ago(1_466), unavailable=["audit-0"]),
            RestartStatus(node=3, planned=True, reason="broker 3: num.io.threads changed",
                          began=ago(3_020), ready=ago(3_004), leaders=10),
            RestartStatus(node=2, planned=True, reason="broker 2: num.io.threads changed",
                          began=ago(3_100), ready=ago(3_081), leaders=12),
            RestartStatus(node=1, planned=True, reason="broker 1: num.io.threads changed",
                          began=ago(3_170), ready=ago(3_152), leaders=11),
        ],
        rolling=RollingStatus(state="Waiting", brokers=[1], partition="orders-4", reason=why,
                              since=since, remaining=[2, 3]),
    )  # fmt: skip
    refused = condition("Ready", "False", "Refused",
                        "topic payments has 12 partitions, which cannot be removed")  # fmt: skip
    rebalance = KafkaRebalanceStatus(
        phase="Moving", proposal="1f0c9a2b7d", why="brokers were added", moves=48,
        bytes=730_000_000, progress=Progress(done=31, moving=6, pending=11, percent=64,
                                             bytes_left=262_000_000),
    )  # fmt: skip
    main = ClusterReport(
        cluster,
        [f"wait for partition orders-4: {why}", f"restart broker 2: {CHANGED}",
         f"restart broker 3: {CHANGED}"],
        topics={"default/payments": TopicStatus(conditions=[refused])},
        rebalances={"default/nightly": rebalance},
    )  # fmt: skip
    query = QueryProgress(
        batch=412, input_rate=318.0, process_rate=2_140.0, batch_ms=830, rows=131_000,
        lag={"page-views": 1_274, "customers": 0}, checkpoint=instant(time.time() - 1),
        state_rows=9_120, state_bytes=3_480_000, late_rows=17, rows_out=4_410,
        watermark=instant(time.time() - 42),
    )  # fmt: skip
    job = JobStatus(
        pipeline="default/views-by-country",
        state="Running",
        queries={"main": query, "dead-letter": QueryProgress(batch=3, rows_out=12)},
    )
    waiting = PipelineReport(waits="topic refunds of KafkaCluster default/main is not ready")
    return Report(
        {"default/main": main},
        {"default/views-by-country": PipelineReport(pid=1, restarts=1, status=job),
         "default/refunds": waiting},
    )  # fmt: skip
