"""Starts: exec to first acknowledged record, after a clean stop, a kill, with 10,000 partitions.

A topic exists before the clock starts; the clock runs from the exec of the server until a produce
request to that topic is acknowledged (tried every 5 ms). Formatting Apache Kafka's directory is not
measured. After `kill -9` the log must hold exactly what was acknowledged before, and after that
start all records are read and must have the right checksum.
"""

from __future__ import annotations

import time

from confluent_kafka.admin import AdminClient, NewTopic

from odradek_bench import load, raw_load
from odradek_bench.case import Bench, Case, Metric, Sample
from odradek_bench.cases.bulk import RAW_BATCH_RECORDS, fill
from odradek_bench.engines import Servers
from odradek_bench.stats import quantile
from odradek_bench.usage import MB, rss_bytes
from odradek_bench.verify import WrongAnswerError

RECOVERY_PARTITIONS = 4
TOPIC_PARTITIONS = 1000  # per topic of the case with many partitions


def _start_s(servers: Servers, address: str, topic: str) -> float:
    """Starts a stopped server; seconds from exec to the first acknowledged record."""
    began = time.perf_counter()
    servers.start()
    return raw_load.first_ack_s(address, topic, began)


def ready(bench: Bench, engine: str) -> Sample:
    with bench.own(engine) as servers, bench.topic(servers) as topic:
        address = servers.bootstrap
        servers.stop()
        seconds = _start_s(servers, address, topic)
        return {"s": seconds, "RSS MB": rss_bytes(servers.pids) / MB}


def recovery(bench: Bench, engine: str) -> Sample:
    size = bench.size(full=2_000, smoke=20) * 1_000_000
    with bench.own(engine) as servers, bench.topic(servers, RECOVERY_PARTITIONS) as topic:
        address = servers.bootstrap
        ends = {}
        for partition in range(RECOVERY_PARTITIONS):
            _, requests, _ = fill(bench, servers, topic, size // RECOVERY_PARTITIONS, partition)
            ends[partition] = requests * RAW_BATCH_RECORDS
        servers.only.kill()
        seconds = _start_s(servers, address, topic)
        ends[0] += 1  # the record that tested readiness
        read = 0
        for partition, end in ends.items():  # checks each batch's CRC and offsets
            read += raw_load.fetch_all(address, topic, end, partition=partition)
        if load.log_size(address, topic, RECOVERY_PARTITIONS) != sum(ends.values()):
            raise WrongAnswerError("recovery: the log is not what was acknowledged")
        return {"s": seconds, "MB/s": read / MB / seconds, "RSS MB": rss_bytes(servers.pids) / MB}


def partitions(bench: Bench, engine: str) -> Sample:
    count = bench.size(full=10_000, smoke=200)
    per_topic = min(TOPIC_PARTITIONS, count)
    with bench.own(engine) as servers, bench.topic(servers) as topic:
        address = servers.bootstrap
        admin = AdminClient({"bootstrap.servers": address, "log_level": 2})
        began = time.perf_counter()
        for index in range(count // per_topic):
            name = f"many-{index}"
            asked = admin.create_topics([NewTopic(name, per_topic, 1)], request_timeout=120.0)
            asked[name].result(120.0)
            load.wait_until_led(address, name, per_topic)
        create_s = time.perf_counter() - began
        times_ms, _ = raw_load.metadata_ms(address, 10)
        rss_mb = rss_bytes(servers.pids) / MB
        servers.stop()
        seconds = _start_s(servers, address, topic)
        known = admin.list_topics(timeout=60.0).topics
        found = sum(len(t.partitions) for name, t in known.items() if name.startswith("many-"))
        if found != count:
            raise WrongAnswerError(f"{count} partitions created, {found} after the restart")
    return {
        "restart s": seconds,
        "create s": create_s,
        "metadata p50 ms": quantile(times_ms, 0.5),
        "RSS MB": rss_mb,
    }


CASES = (
    Case("start", "exec to first acknowledged record", ready,
         (Metric("s", "less"), Metric("RSS MB", "less")), rounds=3, servers="own"),
    Case("recovery", "start after kill -9 with 2 GB", recovery,
         (Metric("s", "less"), Metric("MB/s", "more"), Metric("RSS MB", "less")), rounds=1,
         servers="own"),
    Case("partitions-10000", "10,000 partitions on one broker", partitions,
         (Metric("restart s", "less"), Metric("create s", "less"),
          Metric("metadata p50 ms", "less"), Metric("RSS MB", "less")), rounds=1, servers="own",
         budget_s=240.0),
)  # fmt: skip
