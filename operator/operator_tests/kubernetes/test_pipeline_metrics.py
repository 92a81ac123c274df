"""Pipelines on the operator's /metrics; each panel of their dashboard with a real Prometheus."""

from __future__ import annotations

import asyncio
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from prometheus_client import generate_latest

from odradek_api.base import Condition, instant
from odradek_api.pipeline.status import SparkPipelineStatus, TopicLag
from odradek_e2e.monitoring.dashboards import PIPELINES
from odradek_operator.kubernetes.metrics import OperatorMetrics, serve
from odradek_testkit.ports import free_port
from odradek_testkit.prometheus import Prometheus
from odradek_testkit.waiting import wait_until

KEY = "shop/page-views"


def status(batch: int) -> SparkPipelineStatus:
    """As with_progress() makes it while a driver works."""
    now = time.time()
    return SparkPipelineStatus(
        conditions=[Condition(type="Ready", status="True", reason="Running")],
        state="RUNNING", restarts=2, batch=batch, batch_ms=250, input_rate=50.0,
        process_rate=400.0, lag=[TopicLag(topic="visits", records=1_200)], lag_records=1_200,
        rows_in=100 * batch, rows_out=40 * batch, dead_letters=batch, late_rows=batch,
        state_rows=12, state_bytes=4_096, watermark=instant(now - 30), last_batch_time=instant(now),
    )  # fmt: skip


def lines(metrics: OperatorMetrics) -> dict[str, float]:
    text = generate_latest(metrics.registry).decode()
    found = [line.rpartition(" ") for line in text.splitlines() if line.startswith("odradek_pipe")]
    return {name: float(value) for name, _, value in found}


def test_a_pipeline_has_its_numbers_until_it_is_gone() -> None:
    metrics = OperatorMetrics()
    assert lines(metrics) == {}
    metrics.pipelines.show({KEY: status(7)})
    found = lines(metrics)
    assert found[f'odradek_pipeline_ready{{pipeline="{KEY}"}}'] == 1
    assert found[f'odradek_pipeline_lag_records{{pipeline="{KEY}",topic="visits"}}'] == 1_200
    assert found[f'odradek_pipeline_dead_letters_total{{pipeline="{KEY}"}}'] == 7
    assert found[f'odradek_pipeline_batch_seconds{{pipeline="{KEY}"}}'] == 0.25
    metrics.pipelines.show({})
    assert lines(metrics) == {}


def test_numbers_that_nobody_knows_are_not_there() -> None:
    """A pipeline that waits, a sink that does not say what it wrote, a time of another form."""
    metrics = OperatorMetrics()
    metrics.pipelines.show({KEY: SparkPipelineStatus()})
    assert set(lines(metrics)) == {
        f'odradek_pipeline_{name}{{pipeline="{KEY}"}}' for name in ("ready", "restarts")
    }
    partly = msgspec.structs.replace(status(1), rows_out=-1, watermark="soon", lag=[])
    metrics.pipelines.show({KEY: partly})
    names = {name.partition("{")[0] for name in lines(metrics)}
    assert "odradek_pipeline_rows_read_total" in names
    for name in ("rows_written_total", "watermark_timestamp_seconds", "lag_records"):
        assert f"odradek_pipeline_{name}" not in names


@contextmanager
def serving(metrics: OperatorMetrics) -> Iterator[str]:
    """The operator's own endpoint."""
    port, loop, ready = free_port(), asyncio.new_event_loop(), threading.Event()

    def run() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(serve(metrics, port, lambda: True, lambda: True))
        ready.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(30)
    yield f"127.0.0.1:{port}"
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


@pytest.mark.long  # Prometheus from Debian's packages
def test_every_panel_of_the_dashboard_shows_data(tmp_path: Path) -> None:
    metrics = OperatorMetrics()
    batch = 1
    metrics.pipelines.show({KEY: status(batch)})
    with serving(metrics) as target, Prometheus(tmp_path, [target], "groups: []") as prometheus:
        assert (
            "odradek_pipeline_ready"
            in urllib.request.urlopen(f"http://{target}/metrics").read().decode()
        )
        silent: list[tuple[str, str]] = []

        def all_show_data() -> bool:
            nonlocal batch
            batch += 1
            metrics.pipelines.show({KEY: status(batch)})
            silent[:] = [
                (panel.title, query.text)
                for panel in PIPELINES.panels
                for query in panel.queries
                if not prometheus.query(concrete(query.text))
            ]
            return not silent

        try:
            wait_until(all_show_data, deadline_s=90, poll_s=0.5)
        except AssertionError:
            pytest.fail(f"no data: {silent}")
        ((_, behind),) = prometheus.query(concrete(PIPELINES.panels[2].queries[0].text))
        assert behind == 1_200


def concrete(query: str) -> str:
    """As Grafana sends it when all pipelines are selected."""
    return re.sub(r"\$pipeline", ".*", query).replace("$__rate_interval", "10s")
