"""How long a test waits for its Kafka: `python -m odradek_bench.first_record`.

Measures `odradek.testing.Kafka` in one run on this machine, with our engine and with Apache Kafka's
JVM: seconds until the first record that was produced has been read, and resident memory then. The
first start of a process is listed separately: ours imports the broker once per test process,
Apache Kafka formats and starts a JVM each time. Prints the table of docs/how-to/testing.md.

`--image odradek/broker:0.2.0` adds our image, started through `docker` (`KafkaContainer`);
`--docker-flag=--network=NAME` is passed on to `docker run`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Sequence

import psutil

from odradek.testing import Kafka, Record
from odradek.testing.containers import KafkaContainer
from odradek.testing.exchange import fetch, places_of, produce, spans, topic_of
from odradek_protocol.client import KafkaClient
from odradek_protocol.client.admin.topics import NewTopic, create_topics
from odradek_testkit.launching import close_launcher

MB = 1024 * 1024


def measure(engine: str, brokers: int) -> tuple[float, float, float]:
    """Seconds until ready and until the first record was read; megabytes of all processes."""
    began = time.perf_counter()
    with Kafka(brokers, engine=engine) as kafka:
        ready_s = time.perf_counter() - began
        kafka.produce("orders", "a")
        assert kafka.read("orders") == ["a"]
        record_s = time.perf_counter() - began
        rss = sum(broker.rss_bytes() for broker in kafka.brokers) / MB
    return ready_s, record_s, rss


def measure_container(image: str, flags: Sequence[str]) -> tuple[float, float, float]:
    """The same, of a broker in a container."""
    began = time.perf_counter()
    with KafkaContainer(image, flags=flags) as kafka, KafkaClient(kafka.bootstrap) as client:
        ready_s = time.perf_counter() - began
        assert create_topics(client, [NewTopic("orders", 1)]) == {}
        info = topic_of(client, "orders")
        produce(client, info, [Record("a")])
        assert fetch(client, info, spans(client, places_of(info))) == ["a"]
        record_s = time.perf_counter() - began
        rss = psutil.Process(kafka.pid).memory_info().rss / MB
    return ready_s, record_s, rss


def row(name: str, runs: Sequence[tuple[float, float, float]]) -> str:
    ready, record, rss = (statistics.median(column) for column in zip(*runs, strict=True))
    worst = max(run[0] for run in runs)
    return f"| {name} | {ready:.2f} s | {worst:.2f} s | {record:.2f} s | {rss:.0f} MB |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--jvm-runs", type=int, default=3)
    parser.add_argument("--image", default="", help="also through docker, with this image")
    parser.add_argument("--docker-flag", action="append", default=[], dest="docker_flags")
    options = parser.parse_args()
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"{os.cpu_count()} cores, load average {load}\n")
    print("| | ready | slowest | first record read | memory |\n|---|---|---|---|---|")
    first = []
    for _ in range(options.jvm_runs):
        close_launcher()
        first.append(measure("odradek", 1))
    print(row("ours, first of a process", first), flush=True)
    for brokers in (1, 3):
        runs = [measure("odradek", brokers) for _ in range(options.runs)]
        print(row(f"ours, {brokers} broker{'s' * (brokers > 1)}", runs), flush=True)
    if options.image:
        runs = [
            measure_container(options.image, options.docker_flags) for _ in range(options.jvm_runs)
        ]
        print(row("ours, 1 container", runs), flush=True)
    for brokers in (1, 3):
        runs = [measure("apache", brokers) for _ in range(options.jvm_runs)]
        print(row(f"Apache Kafka, {brokers} JVM{'s' * (brokers > 1)}", runs), flush=True)


if __name__ == "__main__":
    main()
