"""Spark reads a topic: the same batch job against both engines, in one session. And a pipeline
writes a topic, at least once and exactly once.

The job reads every record and reduces it to a count and a checksum, so that what is measured is
Spark's connector and the broker; Spark itself takes most of the CPU time, which limits the
throughput. Needs pyspark (`make spark`); the session is started once, and reads each engine's first
topic once before it is measured, so that the first engine does not pay for the JVM's compilation.
"""

from __future__ import annotations

import json
import tempfile
import time
import zlib
from collections.abc import Sequence
from functools import cache
from typing import Any

from odradek_bench import load, verify
from odradek_bench.case import BULK, Bench, Case, Metric, Sample, UnavailableError
from odradek_bench.usage import Meter
from odradek_bench.verify import WrongAnswerError

SIZE, PARTITIONS = 1024, 2
BATCH = 100_000  # records
DELIVERIES = ("atLeastOnce", "exactlyOnce")
warm: set[str | tuple[str, str]] = set()  # engines that Spark has read from, or written


@cache
def session() -> Any:
    try:
        from odradek_spark.session.start import start_session
    except ImportError:
        raise UnavailableError("pyspark is not installed: make spark") from None
    made = start_session("bench")
    made.sparkContext.setLogLevel("ERROR")
    return made


def read(bench: Bench, engine: str) -> Sample:
    spark = session()
    servers = bench.server(engine)
    count = bench.size(full=400_000, smoke=10_000)
    pool = verify.payloads(bench.seed, SIZE)
    with bench.topic(servers, PARTITIONS) as topic:
        load.produce(servers.bootstrap, topic, pool, count, acks="1", partitions=PARTITIONS)
        frame = (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", servers.bootstrap)
            .option("subscribe", topic)
            .load()
            .selectExpr("count(*) AS n", "sum(crc32(value)) AS checksum")
        )
        if engine not in warm:
            warm.add(engine)
            frame.collect()
        began = time.monotonic()
        with Meter(servers.pids) as meter:
            (row,) = frame.collect()
        seconds = time.monotonic() - began
        sample = meter.bulk(count * SIZE)
        sample["records/s"] = count / seconds
        if row["n"] != count or row["checksum"] != checksum(pool, count):
            raise WrongAnswerError(f"Spark read {row['n']} of {count} records, or other ones")
    return sample


def checksum(pool: Sequence[bytes], count: int) -> int:
    """Of `count` records that carry the pool's payloads in turn; Spark has no CRC32C."""
    sums = [zlib.crc32(value) for value in pool]
    rounds, rest = divmod(count, len(pool))
    return sum(sums) * rounds + sum(sums[:rest])


def write(bench: Bench, engine: str) -> Sample:
    """A pipeline copies a topic, in turn with both deliveries; what counts is their ratio."""
    spark = session()
    servers = bench.server(engine)
    count = bench.size(full=300_000, smoke=5_000)
    pool = verify.payloads(bench.seed, SIZE)
    with bench.topic(servers, PARTITIONS) as source:
        load.produce(servers.bootstrap, source, pool, count, acks="1", partitions=PARTITIONS)
        if ("write", engine) not in warm:
            warm.add(("write", engine))
            for delivery in DELIVERIES:
                with bench.topic(servers, PARTITIONS) as sink:
                    copy_seconds(spark, servers.bootstrap, source, sink, delivery)
        taken = {}
        for delivery in DELIVERIES:
            with bench.topic(servers, PARTITIONS) as sink:
                taken[delivery] = copy_seconds(spark, servers.bootstrap, source, sink, delivery)
    return {
        "records/s": count / taken["exactlyOnce"],
        "at least once, records/s": count / taken["atLeastOnce"],
        "ratio": taken["atLeastOnce"] / taken["exactlyOnce"],
    }


def copy_seconds(spark: Any, bootstrap: str, source: str, sink: str, delivery: str) -> float:
    """A run of a pipeline from its first batch to its end."""
    from odradek_api.pipeline.job import read_job
    from odradek_spark.jobs.run import JobRun

    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory:
        topic = {"name": sink, "value": "raw", "delivery": delivery}
        spec = {
            "kafka": {"bootstrapServers": bootstrap},
            "mode": "availableNow",
            "sources": [{"topics": [source], "maxOffsetsPerTrigger": BATCH}],
            "steps": [{"sql": "SELECT key, value FROM source"}],
            "sink": {"topic": topic},
        }
        document = {"name": "bench", "spec": spec, "checkpoint": f"{directory}/checkpoint"}
        run = JobRun(read_job(json.dumps(document).encode()))
        began = time.monotonic()
        if run.run_in(spark) != 0:
            raise WrongAnswerError(run.status.message)
        return time.monotonic() - began


CASES = (
    Case("spark-write", "a pipeline writes a topic exactly once, 1 KB", write,
         (Metric("records/s", "more"), Metric("at least once, records/s", "more"),
          Metric("ratio", "more")), rounds=5),
    Case("spark-read", "Spark reads a topic, 1 KB", read, (Metric("records/s", "more"), *BULK),
         rounds=5, limit="limit-read"),
)  # fmt: skip
