"""Spark reads a topic: the same batch job against both engines, in one session.

The job reads every record and reduces it to a count and a checksum, so that what is measured is
Spark's connector and the broker; Spark itself takes most of the CPU time, which limits the
throughput. Needs pyspark (`make spark`); the session is started once, and reads each engine's first
topic once before it is measured, so that the first engine does not pay for the JVM's compilation.
"""

from __future__ import annotations

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
warm: set[str] = set()  # engines that Spark has read from


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


CASES = (
    Case("spark-read", "Spark reads a topic, 1 KB", read, (Metric("records/s", "more"), *BULK),
         rounds=5, limit="limit-read"),
)  # fmt: skip
