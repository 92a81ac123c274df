"""`odradek local demo`, which `make run` calls: all brokers of a cluster restarted under load.

1. The manifests (examples/quickstart) are carried out on this machine, in a directory of its own.
2. A writer sends numbered records, acks=all; a reader follows. Both are real Kafka clients. Where
   Spark is set up (`make run` does so), a pipeline counts the records in windows of ten seconds.
3. A restart of all brokers is asked for, and every step is shown: which brokers, why, what is
   awaited, what the clients see.
4. The verdict: acknowledged, lost, duplicated, errors, leaders, Spark's counts; for each broker the
   time of its restart, and the latency and longest silence that the writer saw meanwhile.

With --secure all of it happens in a cluster with TLS, SCRAM and ACLs, and when half of the brokers
have restarted a new CA takes over (demo_secure.py).

Nothing is left behind, also after Ctrl-C: no process, no file. The exit code is 1 if a client
noticed anything. With less than 3 GB of free memory three brokers run instead of six;
ODRADEK_DEMO_MEMORY_MB takes the place of what the machine reports.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import psutil
import typer

from odradek_cli.demo_clients import PER_SECOND, Clients, ClientsSeen
from odradek_cli.demo_guest import Findings, Guest
from odradek_cli.demo_screen import RollScreen
from odradek_cli.demo_secure import SecureDemo, secure
from odradek_cli.errors import CliError
from odradek_cli.options import AsJson
from odradek_cli.output import print_json, print_table, remarks
from odradek_cli.quickstart import QUICKSTART
from odradek_cli.spark_guest import SparkGuest, spark_absent

if TYPE_CHECKING:
    from odradek_operator.local.runtime import ClusterReport, LocalRuntime

DEADLINE_S = 300.0
QUIET_S = 2.0  # of load before and after the roll, to compare with
FULL_BYTES = 3 << 30  # six brokers, Spark and their clients; with less, three brokers run
BROKERS_MIN = 3
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MEMORY_MB = "ODRADEK_DEMO_MEMORY_MB"

INTRODUCTION = """\
This runs a Kafka cluster on this machine, from the same manifests that the operator takes on
Kubernetes, and restarts every broker while clients write and read.

Every upgrade, changed setting or new certificate needs such a rolling restart, and it is where
clusters lose records or stop answering. So only brokers of one rack restart at a time, after
their leaders have moved, and the next ones follow when all replicas are in sync again. Each
record has a number and acks=all: one that is lost or written twice shows at the end.
"""
MAKEFILE = QUICKSTART.parents[1] / "Makefile"


def rolling_demo(
    files: Annotated[
        Path, typer.Option("--file", "-f", help="A directory with one KafkaCluster and Topics.")
    ] = QUICKSTART,
    spark: Annotated[
        bool | None,
        typer.Option(help="Count the records with a pipeline. Default: if Spark is installed."),
    ] = None,
    secured: Annotated[
        bool,
        typer.Option(
            "--secure", help="With TLS, SCRAM and ACLs, and a new CA in the middle. Without Spark."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start the quickstart's cluster, restart all brokers under load, show what clients saw."""
    if not as_json:
        remarks().print(INTRODUCTION, soft_wrap=True)
    if secured and spark:
        raise CliError("--secure and --spark: the demo's pipeline does not log in; use one of them")
    absent = "" if spark is False or secured else spark_absent(available_bytes())
    if absent and spark:
        raise CliError(absent)
    takes_part = spark is not False and not absent and not secured
    findings, times = _in_a_directory_of_its_own(files, spark=takes_part, secured=secured)
    if as_json:
        print_json(findings.rows | {"brokers": times})
    else:
        rows = [(name.replace("_", " "), value) for name, value in findings.rows.items()]
        print_table(["what", ">measured"], rows)
        columns = [
            *("broker", "rack", ">restart asked at", ">ready after", ">in sync, leading after"),
            *(">p99 meanwhile", ">longest silence"),
        ]
        print_table(columns, [[t[k] for k in t] for t in times])
    if findings.complaints:
        raise CliError("; ".join(findings.complaints))
    remarks().print(
        "[bold green]Nobody noticed.[/] Every acknowledged record was read, each once; every "
        "leader is back where it belongs. Nothing is left behind.",
        soft_wrap=True,
    )
    if absent:
        remarks().print(f"Spark did not take part: {absent}.", soft_wrap=True, markup=False)
    if not as_json:
        remarks().print("\nWhat to try next:")
        for command, words in _next(files):
            remarks().print(f"  {command:50} {words}", soft_wrap=True, markup=False)


def _next(files: Path) -> list[tuple[str, str]]:
    odradek = "odradek" if shutil.which("odradek") else os.path.relpath(sys.argv[0])
    manifests = os.path.relpath(files)
    roll = ("make e2e STORY=roll", "the same roll on Kubernetes, by the operator")
    commands = (f"{odradek} --help", "topics, groups, transactions, migration from other clusters")
    return [
        (f"{odradek} local up -f {manifests}", "keep such a cluster; any Kafka client can use it"),
        (f"{odradek} demo", "one broker: throughput, latency, and what survives kill -9"),
        roll if MAKEFILE.exists() else commands,
    ]


def _in_a_directory_of_its_own(
    files: Path, *, spark: bool, secured: bool
) -> tuple[Findings, list[dict[str, Any]]]:
    from odradek_operator.local.runtime import LocalRuntime

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    for number in SIGNALS:  # SIGINT too: a shell starts its background jobs without it
        signal.signal(number, end)
    directory = Path(tempfile.mkdtemp(prefix="odradek-demo-"))
    manifests = directory / "manifests"
    guests = [SparkGuest(directory / "spark")] if spark else []
    try:
        shutil.copytree(files, manifests, ignore=shutil.ignore_patterns(".odradek"))
        _as_the_machine_allows(manifests)
        demo = None
        if secured:
            secure(manifests, _change_cluster)
            demo = SecureDemo(manifests, directory / "state", _change_cluster)
        with LocalRuntime([manifests], directory / "state") as runtime:
            try:
                return _run(runtime, manifests, guests, demo)
            finally:
                _ignore_signals()  # a second Ctrl-C must not leave brokers behind
                for guest in guests:
                    guest.stop()
                remarks().print("[bold]5.[/] Stopping the brokers …")
                runtime.stop_brokers()
    finally:
        _ignore_signals()
        shutil.rmtree(directory, ignore_errors=True)


def _ignore_signals() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _run(
    runtime: LocalRuntime, manifests: Path, guests: Sequence[Guest], demo: SecureDemo | None
) -> tuple[Findings, list[dict[str, Any]]]:
    say = partial(remarks().print, soft_wrap=True)
    say("[bold]1.[/] Starting the cluster that the manifests describe …")
    with RollScreen() as screen:
        cluster = _settle(runtime, screen)
    topic = max(cluster.topics.values(), key=lambda t: t.partitions)
    bootstrap = cluster.status.bootstrap_servers
    racks = {b.rack for b in cluster.status.brokers}
    say(
        f"   {cluster.status.broker_count} brokers in {len(racks)} racks, {len(cluster.topics)} "
        f"topics; Kafka clients reach them at {bootstrap.partition(',')[0]} and so on"
    )
    for guest in guests:
        say("   Starting Spark, which will count the records by customer and ten seconds …")
        guest.start(bootstrap, topic.topic_name)
    if demo is not None:
        _trust_both(runtime, demo)
        say(
            "   Every connection has TLS, every client logs in with SCRAM and needs ACLs. A new CA "
            "is trusted in addition to the one in use."
        )
    say(
        f"[bold]2.[/] Writing {PER_SECOND} records a second to [cyan]{topic.topic_name}[/] "
        "(librdkafka, acks=all), and reading them …"
    )
    login = demo.login() if demo is not None else {}
    clients = Clients(bootstrap, topic.topic_name, topic.partitions, login)
    clients.start()
    for guest in guests:
        guest.follow()
    _for_a_while(runtime)
    say("[bold]3.[/] Asking for a restart of all brokers, by an annotation of the cluster …")
    _change_cluster(manifests, _ask_for_restart)
    pids = cluster.pids
    with RollScreen(lambda: _clients_line(clients.seen, guests)) as screen:
        each = partial(demo.midway, pids=pids) if demo is not None else None
        cluster = _settle(runtime, screen, each)
    took = time.monotonic() - screen.began
    _for_a_while(runtime)
    say("[bold]4.[/] Waiting for the readers, and comparing …")
    findings = _judge(clients.finish(), cluster, pids, screen.steps, took)
    more = [guest.finish(clients.seen) for guest in guests]
    more += [demo.findings(bootstrap, topic.topic_name)] if demo is not None else []
    for found in more:
        findings.rows |= found.rows
        findings.complaints += found.complaints
    return findings, _times(screen, clients.seen)


def _clients_line(seen: ClientsSeen, guests: Sequence[Guest]) -> str:
    own = f"; {len(seen.acked):,} acknowledged, {len(seen.read):,} read, {len(seen.errors)} errors"
    return own + "".join(guest.line() for guest in guests)


def _judge(
    seen: ClientsSeen, cluster: ClusterReport, pids: dict[int, int], steps: int, took_s: float
) -> Findings:
    restarted = sum(cluster.pids.get(b) not in (None, pid) for b, pid in pids.items())
    preferred = cluster.status.preferred_leaders_percent
    rows = {
        "brokers_restarted": f"{restarted} of {len(pids)}",
        "steps": steps,
        "seconds_per_broker": round(took_s / max(1, restarted), 1),
        "seconds_in_all": round(took_s, 1),
        "writes_acknowledged": len(seen.acked),
        "lost": seen.lost,
        "duplicated": seen.duplicated,
        "errors": len(seen.errors) + seen.unanswered,
        "latency_ms_p50": round(seen.percentile_ms(50), 1),
        "latency_ms_p99": round(seen.percentile_ms(99), 1),
        "latency_ms_max": round(seen.percentile_ms(100), 1),
        "longest_silence_s": round(seen.longest_silence_s, 2),
        "preferred_leaders_percent": preferred,
    }
    complaints = [
        f"{rows[name]} records were {words}"
        for name, words in (("lost", "lost"), ("duplicated", "read twice"), ("errors", "refused"))
        if rows[name]
    ]
    if restarted < len(pids):
        complaints.append(f"only {restarted} of {len(pids)} brokers restarted")
    if preferred < 100:
        complaints.append(f"only {preferred} % of the leaders are back")
    return Findings(rows, complaints)


def _times(screen: RollScreen, seen: ClientsSeen) -> list[dict[str, Any]]:
    """A row per broker; latency and silence are those of the writer during its restart."""

    def after(instant: float | None, began: float) -> str:
        return "" if instant is None else f"{instant - began:.1f} s"

    rows = []
    for broker, t in sorted(screen.times.items(), key=lambda one: one[1].asked):
        end = t.asked if t.home is None else t.home
        p99_ms, silence_s = seen.between(screen.began + t.asked, screen.began + end)
        rows.append({
            "broker": broker,
            "rack": t.rack,
            "asked": f"{t.asked:.1f} s",
            "ready_after": after(t.up, t.asked),
            "whole_after": after(t.home, t.asked),
            "latency_p99": f"{p99_ms:.1f} ms",
            "longest_silence": f"{silence_s:.2f} s",
        })  # fmt: skip
    return rows


# -- passes ----------------------------------------------------------------------------------------


def _settle(
    runtime: LocalRuntime,
    screen: RollScreen,
    each: Callable[[ClusterReport], None] | None = None,
) -> ClusterReport:
    """Runs passes until the manifests are carried out; at least two: the first sees the change.

    `each` is called with the report of each pass.
    """
    give_up = time.monotonic() + DEADLINE_S
    passes = 0
    while True:
        passes += 1
        report = runtime.one_pass()
        if report.problems:
            raise CliError("\n".join(report.problems))
        if len(report.clusters) != 1:
            raise CliError(
                f"the demo needs one KafkaCluster, the manifests have {len(report.clusters)}"
            )
        (cluster,) = report.clusters.values()
        screen.show(cluster)
        if each is not None:
            each(cluster)
        if report.settled and passes > 1:
            return cluster
        if time.monotonic() > give_up:
            raise CliError(f"not settled after {DEADLINE_S:.0f} s: {'; '.join(cluster.plan)}")
        time.sleep(0.1)


def _trust_both(runtime: LocalRuntime, demo: SecureDemo) -> None:
    demo.begin_rotation()
    give_up = time.monotonic() + DEADLINE_S
    while not demo.trusts_both():
        runtime.one_pass()
        if time.monotonic() > give_up:
            raise CliError("the new CA is not trusted by every broker")
        time.sleep(0.1)


def _for_a_while(runtime: LocalRuntime) -> None:
    end = time.monotonic() + QUIET_S
    while time.monotonic() < end:
        runtime.one_pass()
        time.sleep(0.2)


# -- manifests -------------------------------------------------------------------------------------


def _change_cluster(manifests: Path, change: Callable[[dict[str, Any]], None]) -> None:
    import yaml

    for path in manifests.glob("*.y*ml"):
        documents = list(yaml.safe_load_all(path.read_text()))
        for document in documents:
            if document and document.get("kind") == "KafkaCluster":
                change(document)
        path.write_text(yaml.safe_dump_all(documents))


def _ask_for_restart(document: dict[str, Any]) -> None:
    """The local form of `kubectl annotate kafkacluster main odradek.dev/restart=…`."""
    annotations = document["metadata"].setdefault("annotations", {})
    annotations["odradek.dev/restart"] = str(time.time())


def _as_the_machine_allows(manifests: Path) -> None:
    """Fewer brokers where memory is short; three, one per rack, show the same."""
    free = available_bytes()

    def shrink(document: dict[str, Any]) -> None:
        spec = document.get("spec") or {}
        wanted = spec.get("brokers", BROKERS_MIN)
        if isinstance(wanted, int) and wanted > BROKERS_MIN and free < FULL_BYTES:
            remarks().print(
                f"   {free >> 20} MB of memory are free, fewer than {FULL_BYTES >> 20}: "
                f"{BROKERS_MIN} brokers instead of {wanted}",
                soft_wrap=True,
            )
            spec["brokers"] = BROKERS_MIN

    _change_cluster(manifests, shrink)


def available_bytes() -> int:
    """Available memory of this machine, or the value that a test sets instead."""
    if simulated := os.environ.get(MEMORY_MB):
        return int(simulated) << 20
    return int(psutil.virtual_memory().available)
