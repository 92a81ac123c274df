"""Share groups as queues: KafkaShareConsumer with explicit acknowledgement, 1 to 100 members.

All members run in one JVM (kafka-tools/share/ShareLoad.java): each polls, accepts its records and
commits. The rate is that between the first delivery and the last acceptance. The records are in the
topic before the members start, in 12 partitions. Redelivery is measured separately: one record in
20 is released once, and the time until it is delivered again is taken.

What is checked: every record is accepted, and no record is accepted twice.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from functools import cache, partial

from odradek_bench import load, verify
from odradek_bench.case import Bench, Case, Metric, Sample
from odradek_bench.cases.java_tools import TOOL_DEADLINE_S, TOOL_JVM
from odradek_bench.usage import MB, Meter, rss_bytes
from odradek_bench.verify import WrongAnswerError
from odradek_protocol.client.admin.configs import (
    ConfigChange,
    ConfigOperation,
    ResourceType,
    alter_configs,
)
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_testkit.engines import TOOLS_DIR, kafka_jars

PARTITIONS = 12
SIZE = 1024
RELEASE_EVERY = 20
# 100 members keep what they have fetched, up to some MB each, in a heap that they share.
HEAP = "-Xmx2G"
MANY, FEW = 200_000, 20_000
RESULT = re.compile(
    r"records=(\d+) seconds=([\d.]+) redelivered=(\d+) p50=([\d.]+) p99=([\d.]+) duplicates=(\d+)"
)
RATE = (
    Metric("records/s", "more"),
    Metric("broker CPU µs/record", "less"),
    Metric("RSS MB", "less"),
)
REDELIVERY = (
    Metric("redelivery p99 ms", "less"),
    Metric("redelivery p50 ms", "less"),
    *RATE,
)


@cache
def program() -> str:
    """The class path of ShareLoad, compiled once per run."""
    classes = tempfile.mkdtemp(prefix="odradek-share-load-")
    source = TOOLS_DIR / "share" / "ShareLoad.java"
    jars = f"{kafka_jars()}/*"
    subprocess.run(["javac", "-cp", jars, "-d", classes, source], check=True, timeout=120)
    return f"{classes}:{jars}"


def queue(bench: Bench, engine: str, *, consumers: int, release_every: int = 0) -> Sample:
    servers = bench.server(engine)
    count = bench.size(full=FEW if release_every or consumers > 10 else MANY, smoke=2_000)
    pool = verify.payloads(bench.seed, SIZE)
    with bench.topic(servers, PARTITIONS) as topic:
        with KafkaClient(servers.bootstrap) as client:
            earliest = ConfigChange("share.auto.offset.reset", ConfigOperation.SET, "earliest")
            alter_configs(client, ResourceType.GROUP, {topic: [earliest]})
        load.produce(servers.bootstrap, topic, pool, count, acks="1", partitions=PARTITIONS)
        logging = f"-Dlog4j2.configurationFile={TOOLS_DIR / 'log4j2.properties'}"
        command = ["java", *TOOL_JVM, HEAP, logging, "-cp", program(), "ShareLoad", topic, topic]
        command += [servers.measured, str(consumers), str(count), str(release_every)]
        with Meter(servers.pids) as meter:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=TOOL_DEADLINE_S, check=False
            )
        rss_mb = rss_bytes(servers.pids) / MB
    found = RESULT.search(done.stdout)
    if done.returncode != 0 or found is None:
        raise WrongAnswerError(f"ShareLoad failed:\n{done.stdout}{done.stderr[-2000:]}")
    accepted, seconds, again, p50, p99, duplicates = map(float, found.groups())
    if accepted != count or duplicates:
        raise WrongAnswerError(f"{count} records, {accepted:.0f} accepted, {duplicates:.0f} twice")
    sample = {
        "records/s": count / seconds,
        "broker CPU µs/record": meter.cpu_s / count * 1e6,
        "RSS MB": rss_mb,
    }
    if release_every:
        if not again:
            raise WrongAnswerError("no released record was delivered again")
        sample |= {"redelivery p50 ms": p50, "redelivery p99 ms": p99}
    return sample


CASES = (
    *(
        Case(
            f"queue-{consumers}",
            f"share group, {consumers} consumers, explicit acknowledgement",
            partial(queue, consumers=consumers),
            RATE,
            rounds=3,
        )
        for consumers in (1, 10, 100)
    ),
    Case(
        "queue-redelivery",
        "share group, released records delivered again",
        partial(queue, consumers=10, release_every=RELEASE_EVERY),
        REDELIVERY,
        rounds=3,
    ),
)
