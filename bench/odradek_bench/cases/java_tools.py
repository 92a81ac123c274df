"""Apache Kafka's own ProducerPerformance and ConsumerPerformance, with their defaults.

The rates are those that the tools print, so the start of their JVM is not in them. The producer
sends payloads from a file (one per line, drawn from the seed); every value that is read back must
be one of them. The consumer tool subscribes with a group, so it needs a broker that has groups.
"""

from __future__ import annotations

import re
import subprocess

from odradek_bench import load, raw, verify
from odradek_bench.case import BULK, Bench, Case, Metric, Sample, UnavailableError
from odradek_bench.usage import MB, Meter
from odradek_bench.verify import WrongAnswerError
from odradek_testkit.engines import java_command

TOOL_JVM = ("-Xmx512M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
TOOL_DEADLINE_S = 120.0
SIZE = 1024
MIB = 1 << 20  # what the tools call MB


def run_tool(main_class: str, *args: str) -> str:
    command = java_command(f"org.apache.kafka.tools.{main_class}", *args, jvm=TOOL_JVM)
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TOOL_DEADLINE_S, check=False
    )
    if done.returncode != 0:
        raise WrongAnswerError(f"{main_class} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def produce(bench: Bench, engine: str) -> Sample:
    servers = bench.server(engine)
    count = bench.size(full=300_000, smoke=10_000)
    lines = [value.hex()[:SIZE].encode() for value in verify.payloads(bench.seed, SIZE)]
    file = bench.directory / "payloads.txt"
    file.write_bytes(b"\n".join(lines))
    with bench.topic(servers) as topic:
        with Meter(servers.pids) as meter:
            printed = run_tool(
                "ProducerPerformance", "--topic", topic, "--num-records", str(count),
                "--throughput", "-1", "--payload-file", str(file),
                "--producer-props", f"bootstrap.servers={servers.bootstrap}",
            )  # fmt: skip
        sample = meter.bulk(count * SIZE)
        last = printed.strip().splitlines()[-1]
        sample["MB/s"] = float(_number(r"\(([\d.]+) MB/sec\)", last)) * MIB / MB
        sample["p99 ms"] = float(_number(r"([\d.]+) ms 99th", last))
        messages = load.consume(servers.bootstrap, topic, 1, count)
        check_values(lines, list(load.values(messages)), count)
    return sample


def check_values(lines: list[bytes], found: list[bytes], count: int) -> None:
    if len(found) != count:
        raise WrongAnswerError(f"ProducerPerformance: {count} sent, {len(found)} found")
    if strange := set(found) - set(lines):
        raise WrongAnswerError(f"ProducerPerformance: {len(strange)} values were never sent")


def consume(bench: Bench, engine: str) -> Sample:
    servers = bench.server(engine)
    if raw.JOIN_GROUP not in raw.api_keys(servers.bootstrap):
        raise UnavailableError("ConsumerPerformance subscribes; this broker has no groups yet")
    count = bench.size(full=300_000, smoke=10_000)
    pool = verify.payloads(bench.seed, SIZE)
    with bench.topic(servers) as topic:
        load.produce(servers.bootstrap, topic, pool, count, acks="1", partitions=1)
        with Meter(servers.pids) as meter:
            printed = run_tool(
                "ConsumerPerformance", "--topic", topic, "--messages", str(count),
                "--bootstrap-server", servers.bootstrap, "--group", topic,
            )  # fmt: skip
        heads, row = [line.split(", ") for line in printed.strip().splitlines()[-2:]]
        seen = dict(zip(heads, row, strict=True))
        if int(float(seen["data.consumed.in.nMsg"])) != count:
            raise WrongAnswerError(f"ConsumerPerformance: {count} sent, {printed}")
        sample = meter.bulk(count * SIZE)
        sample["MB/s"] = float(seen["fetch.MB.sec"]) * MIB / MB
        found = load.read_back(servers.bootstrap, topic, 1, count)
        verify.check(verify.expected(pool, count), found, topic)
    return sample


def _number(pattern: str, line: str) -> str:
    found = re.search(pattern, line)
    if not found:
        raise WrongAnswerError(f"ProducerPerformance printed: {line}")
    return found[1]


CASES = (
    Case("java-produce", "Java ProducerPerformance, 1 KB", produce,
         (*BULK, Metric("p99 ms", "less")), rounds=3, limit="limit-write"),
    Case("java-consume", "Java ConsumerPerformance, 1 KB", consume, BULK, rounds=3,
         limit="limit-read"),
)  # fmt: skip
