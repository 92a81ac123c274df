"""`odradek local demo`: a cluster from manifests, and all its brokers restarted under load.

1. The manifests (examples/quickstart) are carried out on this machine, in a directory of its own.
2. A writer sends numbered records, acks=all; a reader follows. Both are real Kafka clients.
3. A restart of all brokers is asked for, and every step is said: which brokers, why, what is
   awaited, what the clients saw.
4. The verdict: acknowledged, lost, duplicated, errors, leaders, time. Nothing is left behind.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek_cli.errors import CliError
from odradek_cli.options import AsJson
from odradek_cli.output import print_json, print_table, remarks

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from odradek_operator.apply.local_runtime import ClusterReport, LocalRuntime

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart"
PER_SECOND = 500
DEADLINE_S = 300.0
QUIET_S = 2.0  # of load before and after the roll, to compare with


@dataclass
class Seen:
    """What the clients saw; numbers are unique, so that loss and duplicates show."""

    sent: int = 0
    acked: set[int] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    read: Counter[int] = field(default_factory=Counter)
    latencies_ms: list[float] = field(default_factory=list)

    @property
    def lost(self) -> int:
        return len(self.acked - self.read.keys())

    @property
    def duplicated(self) -> int:
        return sum(count - 1 for count in self.read.values())

    def percentile_ms(self, percent: int) -> float:
        ordered = sorted(self.latencies_ms) or [0.0]
        return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


class Clients:
    """A writer and a reader of one topic, each in its thread."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.bootstrap, self.topic, self.partitions = bootstrap, topic, partitions
        self.seen = Seen()
        self._written, self._stop = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=target, daemon=True) for target in (self._write, self._read)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> Seen:
        """No more writes; the reader gets until it has everything that was acknowledged."""
        self._stop.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)
        return self.seen

    def _write(self) -> None:
        from confluent_kafka import Producer

        from odradek_cli.client import settings

        more: dict[str, Any] = {"acks": "all", "enable_idempotence": True, "linger_ms": 5}
        producer = Producer(settings(self.bootstrap, **more))
        seen, began = self.seen, time.monotonic()

        def answered(number: int, at: float, error: KafkaError | None, _: Message) -> None:
            if error is None:
                seen.acked.add(number)
                seen.latencies_ms.append(1000 * (time.monotonic() - at))
            else:
                seen.errors.append(error.str())

        while not self._stop.is_set():
            while seen.sent < (time.monotonic() - began) * PER_SECOND:
                number, now = seen.sent, time.monotonic()
                producer.produce(
                    self.topic,
                    b"%d" % number,
                    partition=number % self.partitions,
                    on_delivery=partial(answered, number, now),
                )
                seen.sent += 1
            producer.poll(0.005)
        producer.flush(60)
        self._written.set()

    def _read(self) -> None:
        from confluent_kafka import Consumer, TopicPartition

        from odradek_cli.client import settings

        more: dict[str, Any] = {"group_id": "demo", "enable_auto_commit": False}
        consumer = Consumer(settings(self.bootstrap, **more))
        consumer.assign([TopicPartition(self.topic, p, 0) for p in range(self.partitions)])
        silent_since = time.monotonic()
        while not self._written.is_set() or time.monotonic() - silent_since < QUIET_S:
            for message in consumer.consume(1_000, timeout=0.2):
                if (value := _value(message)) is not None:
                    self.seen.read[int(value)] += 1
                    silent_since = time.monotonic()
        consumer.close()


def _value(message: Message) -> bytes | None:
    value = message.value() if message.error() is None else None
    return bytes(value) if value is not None else None


class Roll:
    """Follows the runtime's reports, says what changes, and keeps the times of the restarts."""

    def __init__(self, clients: Clients) -> None:
        self.clients = clients
        self.began = time.monotonic()
        self.restarts: list[tuple[float, str]] = []
        self._said = ""

    def show(self, cluster: ClusterReport) -> None:
        lines = [*cluster.plan, *cluster.failures] or ["all is as it should be"]
        seen = self.clients.seen
        behind = sum(b.under_replicated for b in cluster.status.brokers)
        now = time.monotonic() - self.began
        if lines[0] == self._said:
            return
        self._said = lines[0]
        if lines[0].startswith("restart"):
            self.restarts.append((now, lines[0].split(":")[0]))
        remarks().print(
            f"   {now:5.1f} s  {lines[0]}  [dim]preferred leaders "
            f"{cluster.status.preferred_leaders_percent} %, replicas behind {behind}, "
            f"acknowledged {len(seen.acked):,}, errors {len(seen.errors)}[/]",
            soft_wrap=True,
        )


def rolling_demo(
    files: Annotated[
        Path, typer.Option("--file", "-f", help="A directory with one KafkaCluster and Topics.")
    ] = QUICKSTART,
    as_json: AsJson = False,
) -> None:
    """Start the quickstart's cluster, restart all brokers under load, and say what it cost."""
    from odradek_operator.apply.local_runtime import LocalRuntime

    directory = Path(tempfile.mkdtemp(prefix="odradek-demo-"))
    manifests = directory / "manifests"
    try:
        shutil.copytree(files, manifests, ignore=shutil.ignore_patterns(".odradek"))
        with LocalRuntime([manifests], directory / "state") as runtime:
            try:
                found = _run(runtime, manifests)
            finally:
                remarks().print("[bold]5.[/] Stopping the brokers …")
                runtime.stop_brokers()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if as_json:
        print_json(found)
    else:
        print_table(["what", "measured"], [(k.replace("_", " "), v) for k, v in found.items()])
    if found["lost"] or found["duplicated"] or found["errors"]:
        raise CliError("the clients noticed the restart: see above")


def _run(runtime: LocalRuntime, manifests: Path) -> dict[str, Any]:
    say = remarks().print
    say("[bold]1.[/] Starting the cluster that the manifests describe …")
    began = time.monotonic()
    cluster = _settle(runtime, Roll(Clients("", "", 0)))
    topic = max(cluster.topics.values(), key=lambda t: t.partitions)
    say(
        f"   {cluster.status.broker_count} brokers and {len(cluster.topics)} topics after "
        f"{time.monotonic() - began:.1f} s; clients reach them at "
        f"{cluster.status.bootstrap_servers}"
    )
    say(f"[bold]2.[/] Writing {PER_SECOND} records a second to [cyan]{topic.topic_name}[/] …")
    clients = Clients(cluster.status.bootstrap_servers, topic.topic_name, topic.partitions)
    clients.start()
    _for_a_while(runtime)
    say("[bold]3.[/] Asking for a restart of all brokers, by an annotation of the cluster …")
    _ask_for_restart(manifests)
    roll = Roll(clients)
    pids = cluster.pids
    cluster = _settle(runtime, roll)
    took = time.monotonic() - roll.began
    _for_a_while(runtime)
    say("[bold]4.[/] Waiting for the reader, and comparing …")
    seen = clients.finish()
    restarted = sum(cluster.pids.get(b) != pid for b, pid in pids.items())
    return {
        "brokers_restarted": f"{restarted} of {len(pids)}",
        "steps": len(roll.restarts),
        "seconds_per_broker": round(took / max(1, restarted), 1),
        "seconds_in_all": round(took, 1),
        "writes_acknowledged": len(seen.acked),
        "lost": seen.sent - len(seen.errors) - len(seen.acked) + seen.lost,
        "duplicated": seen.duplicated,
        "errors": len(seen.errors),
        "latency_ms_p50": round(seen.percentile_ms(50), 1),
        "latency_ms_p99": round(seen.percentile_ms(99), 1),
        "latency_ms_max": round(seen.percentile_ms(100), 1),
        "preferred_leaders_percent": cluster.status.preferred_leaders_percent,
    }


def _settle(runtime: LocalRuntime, roll: Roll) -> ClusterReport:
    """Passes until all is as the manifests say; at least two, the first sees what changed."""
    give_up = time.monotonic() + DEADLINE_S
    passes = 0
    while True:
        passes += 1
        report = runtime.one_pass()
        if report.problems:
            raise CliError("\n".join(report.problems))
        (cluster,) = report.clusters.values()
        roll.show(cluster)
        if report.settled and passes > 1:
            return cluster
        if time.monotonic() > give_up:
            raise CliError(f"not settled after {DEADLINE_S:.0f} s: {cluster.plan}")
        time.sleep(0.1)


def _for_a_while(runtime: LocalRuntime) -> None:
    end = time.monotonic() + QUIET_S
    while time.monotonic() < end:
        runtime.one_pass()
        time.sleep(0.2)


def _ask_for_restart(manifests: Path) -> None:
    """What `kubectl annotate kafkacluster main odradek.dev/restart=…` is on Kubernetes."""
    import yaml

    for path in manifests.glob("*.y*ml"):
        documents = list(yaml.safe_load_all(path.read_text()))
        for document in documents:
            if document and document.get("kind") == "KafkaCluster":
                metadata = document["metadata"]
                metadata.setdefault("annotations", {})["odradek.dev/restart"] = str(time.time())
        path.write_text(yaml.safe_dump_all(documents))
