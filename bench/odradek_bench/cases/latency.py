"""How long a record takes to be acknowledged, and to reach a consumer that waits at the tail.

Batches leave at fixed times over one connection, a second one long-polls; time counts from when a
batch was due (raw_load.paced). Two loads: 1,000 single 1 KB records per second, and batches of
16 KB at half of the peak. The peak is measured first, closed loop with the same batches, on both
engines; half of the lower one is the rate for both.
"""

from __future__ import annotations

import time

from odradek_bench import load, raw, raw_load, verify
from odradek_bench.case import Bench, Case, Metric, Sample
from odradek_bench.engines import ENGINES, Servers
from odradek_bench.stats import quantile
from odradek_bench.usage import MB, Meter, rss_bytes

METRICS = (
    Metric("ack p50 ms", "less"),
    Metric("ack p99 ms", "less"),
    Metric("ack p99.9 ms", "less"),
    Metric("end to end p50 ms", "less"),
    Metric("end to end p99 ms", "less"),
    Metric("end to end p99.9 ms", "less"),
    Metric("broker CPU s", "less"),
    Metric("RSS MB", "less"),
)
PEAK_BATCH_RECORDS = 16
# The client wakes up this long before a batch is due and spins: 10 to 20 % of a core at 1,000
# batches/s. At half of the peak it would be a whole core, which the brokers need.
EARLY_S = 150e-6


def at_1000(bench: Bench, engine: str, *, tls: bool = False) -> Sample:
    servers = bench.server(engine, tls=tls)
    return _paced(bench, servers, per_batch=1, batches_per_s=1000.0, early_s=EARLY_S)


def at_half_peak(bench: Bench, engine: str) -> Sample:
    if bench.small not in bench.peaks:  # once per run, so that the rounds are comparable
        bench.peaks[bench.small] = min(_peak(bench, each) for each in ENGINES) / 2
    rate = bench.peaks[bench.small]
    sample = _paced(bench, bench.server(engine), per_batch=PEAK_BATCH_RECORDS, batches_per_s=rate)
    return {**sample, "offered MB/s": rate * PEAK_BATCH_RECORDS * 1024 / MB}


def _peak(bench: Bench, engine: str) -> float:
    """Batches per second that the engine takes, five in flight."""
    servers = bench.server(engine)
    records = raw.batch(verify.payloads(bench.seed, 1024, PEAK_BATCH_RECORDS))
    requests = bench.size(full=10_000, smoke=500)
    with bench.topic(servers) as topic:
        raw_load.produce_pipelined(servers.bootstrap, topic, records, requests // 5)  # warm
        began = time.perf_counter()
        raw_load.produce_pipelined(servers.bootstrap, topic, records, requests)
        return requests / (time.perf_counter() - began)


def _paced(
    bench: Bench, servers: Servers, *, per_batch: int, batches_per_s: float, early_s: float = 0.0
) -> Sample:
    pool = verify.payloads(bench.seed, 1024, per_batch)
    with bench.topic(servers) as topic:
        with Meter(servers.pids) as meter:
            schedule = raw_load.Schedule(batches_per_s, 0.5 if bench.small else 5.0, early_s)
            seen = raw_load.paced(servers.measured, topic, raw.batch(pool), per_batch, schedule)
        rss_mb = rss_bytes(servers.pids) / MB
        batches = len(seen.ack_ms)
        found = load.read_back(servers.bootstrap, topic, 1, batches * per_batch)
        verify.check(verify.expected(pool, batches * per_batch), found, topic)
    sample = {"broker CPU s": meter.cpu_s, "RSS MB": rss_mb}
    for name, values in (("ack", seen.ack_ms), ("end to end", seen.end_to_end_ms)):
        for label, fraction in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
            sample[f"{name} {label} ms"] = quantile(values, fraction)
    return sample


CASES = (
    Case("latency-1000", "latency at 1,000 records/s", at_1000, METRICS),
    Case("latency-half-peak", "latency at half of the peak", at_half_peak,
         (*METRICS, Metric("offered MB/s", "more"))),
)  # fmt: skip
