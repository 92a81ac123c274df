"""The cost of an idle broker: CPU and memory with 1,000 open connections.

Each connection has asked for ApiVersions once, as every client does, and then stays silent.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

from odradek_bench import raw
from odradek_bench.case import Bench, Case, Metric, Sample
from odradek_bench.cases.small_requests import raise_file_limit
from odradek_bench.usage import MB, Meter, rss_bytes

METRICS = (
    Metric("CPU % of a core", "less"),
    Metric("RSS MB", "less"),
    Metric("KB/connection", "less"),
)


def idle(bench: Bench, engine: str, *, tls: bool = False) -> Sample:
    servers = bench.server(engine, tls=tls)
    connections = bench.size(full=1000, smoke=200)
    raise_file_limit(connections + 500)
    question = raw.frame(raw.API_VERSIONS, 0, b"")
    before = rss_bytes(servers.pids)
    with ExitStack() as stack:
        opened = [stack.enter_context(raw.greeted(servers.measured)) for _ in range(connections)]
        with Meter(servers.pids) as meter:
            time.sleep(
                0.5 if bench.small else 5.0
            )  # the measured idle time, not a wait for something
        for connection in opened:  # every connection is still served
            connection.ask(question)
        rss = rss_bytes(servers.pids)
    return {
        "CPU % of a core": meter.cpu_s / meter.wall_s * 100,
        "RSS MB": rss / MB,
        "KB/connection": max(0, rss - before) / connections / 1024,
    }


CASES = (
    Case("idle-1000", "idle with 1,000 connections", idle,
         METRICS, rounds=3),
)  # fmt: skip
