"""`odradek demo`, which `make run` calls: shows a broker at work, step by step.

It starts a broker in a directory of its own, writes and reads records with a real Kafka client,
kills the broker with kill -9 and starts it again, checks that every record is still there, prints
what it measured, and leaves nothing behind: no process, no file.
"""

from __future__ import annotations

import shutil
import tempfile
import time
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek_cli.errors import CliError
from odradek_cli.options import AsJson
from odradek_cli.output import bytes_text, print_json, print_table, progress_bar, remarks
from odradek_cli.processes import BrokerProcess, StartFailedError

if TYPE_CHECKING:
    from confluent_kafka import Consumer

TOPIC = "demo"
PARTITIONS = 3
VALUE_BYTES = 200
ROUND_TRIPS = 200
SILENCE_LIMIT_S = 30.0  # without any record for this long the demo fails


@dataclass
class Contents:
    """Contents of a topic in a form that can be compared: count and checksum per partition."""

    count: int = 0
    bytes_total: int = 0
    by_partition: Counter[int] = field(default_factory=Counter)
    checksums: dict[int, int] = field(default_factory=dict)

    def add(self, partition: int, value: bytes) -> None:
        """The checksum covers the values in their order: swapped records change it."""
        self.count += 1
        self.bytes_total += len(value)
        self.by_partition[partition] += 1
        self.checksums[partition] = zlib.crc32(value, self.checksums.get(partition, 0))


@dataclass
class DemoSummary:
    """The numbers of the summary."""

    startup_ms: int = 0
    restart_ms: int = 0
    records: int = 0
    bytes_total: int = 0
    produce_s: float = 0.0
    consume_s: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)
    rss_bytes: int = 0
    cpu_s: float = 0.0
    disk_bytes: int = 0

    def percentile_ms(self, percent: int) -> float:
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def demo(
    records: Annotated[
        int, typer.Option("--records", "-n", min=1, help="How many records to write and read.")
    ] = 300_000,
    as_json: AsJson = False,
) -> None:
    """Show a broker at work: produce, consume, kill -9, check, measure. Leaves nothing behind."""
    directory = Path(tempfile.mkdtemp(prefix="odradek-demo-"))
    broker = BrokerProcess({"log.dirs": str(directory / "data")}, directory / "broker.log")
    try:
        measured = _show(broker, directory, records)
    except StartFailedError as error:
        raise CliError(f"the broker did not start: {error.log.strip()[-2_000:]}") from error
    finally:
        code = broker.stop()
        shutil.rmtree(directory, ignore_errors=True)
    if code != 0:
        raise CliError(f"the broker did not stop cleanly (exit code {code})")
    if as_json:
        print_json(_as_dict(measured))
    else:
        _print_summary(measured)
        remarks().print("[bold]Done.[/] The broker is stopped and its directory removed.")


def _show(broker: BrokerProcess, directory: Path, records: int) -> DemoSummary:
    say = remarks().print
    measured = DemoSummary()
    say("[bold]1.[/] Starting one broker, with its data in a directory of its own …")
    measured.startup_ms = _start(broker)
    say(f"   ready after {measured.startup_ms} ms; Kafka clients reach it at {broker.bootstrap}")
    say(f"[bold]2.[/] Creating topic [cyan]{TOPIC}[/] with {PARTITIONS} partitions …")
    _create_topic(broker)
    say(
        f"[bold]3.[/] Writing {records:,} records of {VALUE_BYTES} bytes "
        "(librdkafka, acks=all, idempotent) …"
    )
    written = _produce(broker, records, measured)
    say("[bold]4.[/] Reading them back, and comparing counts and checksums …")
    _check(written, _consume(broker, written.count, measured))
    say(f"[bold]5.[/] Sending {ROUND_TRIPS} single records and waiting for each to arrive …")
    _round_trips(broker, measured, written)
    measured.rss_bytes, measured.cpu_s = broker.rss_bytes(), broker.cpu_seconds()
    say("[bold]6.[/] Ending the broker with kill -9, and starting it on the same files …")
    broker.kill()
    measured.restart_ms = _start(broker)
    _check(written, _consume(broker, written.count, DemoSummary()))
    say(f"   all {written.count:,} records are there, in order, each once")
    measured.disk_bytes = sum(f.stat().st_size for f in directory.rglob("*.log") if f.is_file())
    return measured


def _start(broker: BrokerProcess) -> int:
    """Milliseconds from exec to ready, including the start of Python and all imports."""
    started = time.monotonic()
    broker.start()
    return round((time.monotonic() - started) * 1000)


def _create_topic(broker: BrokerProcess) -> None:
    from odradek_cli.client import connect, raise_first
    from odradek_protocol.client.admin.topics import NewTopic, create_topics

    with connect(broker.bootstrap) as client:
        raise_first("topic", create_topics(client, [NewTopic(TOPIC, PARTITIONS, 1)]))


def _produce(broker: BrokerProcess, records: int, measured: DemoSummary) -> Contents:
    from confluent_kafka import Producer

    from odradek_cli.librdkafka import settings
    from odradek_cli.produce import Tally, send

    more: dict[str, Any] = {"enable_idempotence": True, "linger_ms": 5}
    producer = Producer(settings(broker.bootstrap, **more))
    written, tally = Contents(), Tally()
    filler = b"." * (VALUE_BYTES - 12)
    started = time.monotonic()
    with progress_bar() as progress:
        shown = progress.add_task("   written", total=records)
        for number in range(records):
            value, partition = b"%012d" % number + filler, number % PARTITIONS
            send(producer, tally, topic=TOPIC, value=value, partition=partition)
            written.add(partition, value)
            if number % 1_000 == 0:
                progress.update(shown, completed=tally.acked)
        producer.flush(SILENCE_LIMIT_S)
        progress.update(shown, completed=tally.acked)
    measured.produce_s = time.monotonic() - started
    if tally.acked != records:
        why = tally.errors[0] if tally.errors else "no answer"
        raise CliError(f"{records - tally.acked} of {records} records were not written: {why}")
    measured.records, measured.bytes_total = written.count, written.bytes_total
    return written


def _consume(broker: BrokerProcess, records: int, measured: DemoSummary) -> Contents:
    read = Contents()
    started = heard = time.monotonic()
    consumer = _consumer(broker, dict.fromkeys(range(PARTITIONS), 0))
    with progress_bar() as progress:
        shown = progress.add_task("   read   ", total=records)
        while read.count < records:
            for message in consumer.consume(5_000, timeout=0.5):
                heard = time.monotonic()
                read.add(message.partition() or 0, bytes(message.value() or b""))
            progress.update(shown, completed=read.count)
            if time.monotonic() - heard > SILENCE_LIMIT_S:
                raise CliError(f"only {read.count} of {records} records came back")
    measured.consume_s = time.monotonic() - started
    consumer.close()
    return read


def _consumer(broker: BrokerProcess, offsets: dict[int, int]) -> Consumer:
    """A consumer of these partitions from these offsets on, without a group."""
    from confluent_kafka import Consumer, TopicPartition

    from odradek_cli.librdkafka import settings

    more: dict[str, Any] = {"group_id": "demo", "enable_auto_commit": False}
    consumer = Consumer(settings(broker.bootstrap, **more))
    consumer.assign([TopicPartition(TOPIC, p, offset) for p, offset in offsets.items()])
    return consumer


def _round_trips(broker: BrokerProcess, measured: DemoSummary, written: Contents) -> None:
    """Measures the time from produce() to poll(), one record at a time."""
    from confluent_kafka import Producer

    from odradek_cli.librdkafka import settings

    producer = Producer(settings(broker.bootstrap, linger_ms=0))
    consumer = _consumer(broker, {0: written.by_partition[0]})
    consumer.poll(0.2)
    for number in range(ROUND_TRIPS):
        value = b"round trip %d" % number
        started = time.monotonic()
        producer.produce(TOPIC, value, partition=0)
        producer.flush(SILENCE_LIMIT_S)
        message = consumer.poll(SILENCE_LIMIT_S)
        if message is None or message.value() != value:
            raise CliError(f"record {number} of the latency test did not arrive")
        measured.latencies_ms.append((time.monotonic() - started) * 1000)
        written.add(0, value)
    consumer.close()


def _check(written: Contents, read: Contents) -> None:
    if read.by_partition != written.by_partition or read.checksums != written.checksums:
        raise CliError(
            f"what was read differs from what was written: {read.count} records "
            f"against {written.count}"
        )


def _as_dict(measured: DemoSummary) -> dict[str, Any]:
    return {
        "startup_ms": measured.startup_ms,
        "restart_after_kill_ms": measured.restart_ms,
        "records": measured.records,
        "produce_records_per_s": round(measured.records / measured.produce_s),
        "consume_records_per_s": round(measured.records / measured.consume_s),
        "latency_ms_p50": round(measured.percentile_ms(50), 2),
        "latency_ms_p99": round(measured.percentile_ms(99), 2),
        "broker_rss_bytes": measured.rss_bytes,
        "broker_cpu_s": round(measured.cpu_s, 2),
        "disk_bytes": measured.disk_bytes,
    }


def _print_summary(measured: DemoSummary) -> None:
    def rate(seconds: float) -> str:
        per_s, bytes_per_s = measured.records / seconds, measured.bytes_total / seconds
        return f"{per_s:,.0f} records/s, {bytes_text(bytes_per_s)}/s ({seconds:.1f} s)"

    p50, p99 = measured.percentile_ms(50), measured.percentile_ms(99)
    rows = [
        ("start, from exec to ready", f"{measured.startup_ms} ms"),
        ("start after kill -9, with recovery", f"{measured.restart_ms} ms"),
        ("produce, acks=all", rate(measured.produce_s)),
        ("consume", rate(measured.consume_s)),
        ("produce to consume, one record", f"median {p50:.1f} ms, 99th {p99:.1f} ms"),
        ("memory of the broker", bytes_text(measured.rss_bytes)),
        ("processor time of the broker", f"{measured.cpu_s:.1f} s"),
        ("on disk", bytes_text(measured.disk_bytes)),
    ]
    print_table(["what", "measured"], rows)
