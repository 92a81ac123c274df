"""The same loads over TLS 1.3, and how fast connections can be opened.

Brokers have an ECDSA P-256 certificate; topics are made and records read back in plain text, so
that only the measured traffic is encrypted. A handshake is a full one, without resumption, and
counts when the first request of its connection is answered.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from odradek_bench import raw
from odradek_bench.case import BULK, Bench, Case, Metric, Sample
from odradek_bench.cases import bulk, idle, latency, small_requests
from odradek_bench.usage import Meter

HANDSHAKING = 4  # clients at a time; OpenSSL runs outside of Python's lock


def handshakes(bench: Bench, engine: str) -> Sample:
    servers = bench.server(engine, tls=True)
    count = bench.size(full=4_000, smoke=200)

    def connect(_: int) -> None:
        with raw.greeted(servers.measured):
            pass

    with ThreadPoolExecutor(HANDSHAKING) as pool, Meter(servers.pids) as meter:
        list(pool.map(connect, range(count)))
    return {
        "handshakes/s": count / meter.wall_s,
        "broker CPU µs/handshake": meter.cpu_s / count * 1e6,
    }


CASES = (
    Case("tls-produce-1k", "librdkafka produce over TLS, 1 KB, acks=1, 1 partition",
         partial(bulk.produce, size=1024, acks="1", partitions=1, tls=True), BULK,
         servers="tls", warm_rounds=2),
    Case("tls-consume-hot", "librdkafka consume over TLS, 1 KB, just written",
         partial(bulk.consume, cold=False, tls=True), BULK, servers="tls", warm_rounds=2),
    Case("tls-raw-produce", "plain requests over TLS: produce, 64 KB batches",
         partial(bulk.raw_produce, tls=True), BULK, servers="tls", warm_rounds=3),
    Case("tls-raw-consume", "plain requests over TLS: fetch, up to 1 MB per request",
         partial(bulk.raw_consume, tls=True), BULK, servers="tls", warm_rounds=3),
    Case("tls-connections-100", "100 TLS connections, single-record requests",
         partial(small_requests.single_records, connections=100, tls=True),
         small_requests.METRICS, servers="tls", warm_rounds=3),
    Case("tls-latency-1000", "latency over TLS at 1,000 records/s",
         partial(latency.at_1000, tls=True), latency.METRICS, servers="tls"),
    Case("tls-handshakes", "TLS handshakes, a new connection each", handshakes,
         (Metric("handshakes/s", "more"), Metric("broker CPU µs/handshake", "less")),
         servers="tls", warm_rounds=3),
    Case("tls-idle-1000", "idle with 1,000 TLS connections", partial(idle.idle, tls=True),
         idle.METRICS, rounds=3, servers="tls"),
)  # fmt: skip
