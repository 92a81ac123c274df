"""Many connections, each with one produce request of one 100-byte record in flight.

The client is one epoll loop in one process; 12 partitions share the connections. What is checked:
the acknowledged offsets of each partition are exactly 0 … n - 1, and reading back gives n records
with the right checksum. On two cores client and broker have one each.
"""

from __future__ import annotations

import resource
from functools import partial

from odradek_bench import load, raw_load, verify
from odradek_bench.case import Bench, Case, Metric, Sample
from odradek_bench.usage import MB, Meter, rss_bytes

PARTITIONS = 12
METRICS = (
    Metric("requests/s", "more"),
    Metric("broker CPU µs/request", "less"),
    Metric("RSS MB", "less"),
)


def single_records(bench: Bench, engine: str, *, connections: int, tls: bool = False) -> Sample:
    raise_file_limit(connections + 500)
    servers = bench.server(engine, tls=tls)
    per_connection = bench.size(full=80_000, smoke=4_000) // connections
    requests = per_connection * connections
    (value,) = verify.payloads(bench.seed, 100, 1)
    with bench.topic(servers, PARTITIONS) as topic:
        meter = Meter(servers.pids)
        seen = raw_load.single_records(
            servers.measured, topic, PARTITIONS, value,
            connections=connections, requests=requests, meter=meter,
        )  # fmt: skip
        rss_mb = rss_bytes(servers.pids) / MB
        for partition, (count, offsets) in seen.items():
            verify.check_offsets(offsets, count, f"{topic}-{partition}")
        found = load.read_back(servers.bootstrap, topic, PARTITIONS, requests)
        verify.check(verify.expected([value], requests), found, topic)
    return {
        "requests/s": requests / meter.wall_s,
        "broker CPU µs/request": meter.cpu_s / requests * 1e6,
        "RSS MB": rss_mb,
    }


def raise_file_limit(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(wanted, 65_536)), hard))


CASES = tuple(
    Case(
        f"connections-{connections}",
        f"{connections:,} connections, single-record requests",
        partial(single_records, connections=connections),
        METRICS,
        warm_rounds=3,
    )
    for connections in (100, 1000)
)
