"""Reconciles the manifests of a directory on this machine: `odradek local up -f dir`.

    with LocalRuntime([Path("examples/quickstart")], state_dir) as runtime:
        runtime.run(show)          # until stop() or a signal; show(report) after each pass

Every pass reads the manifests again if a file changed, so editing a file is like `kubectl apply`.
An invalid file is reported, and the last valid manifests stay in force. Only one runtime at a time
may use a state directory (it holds a lock):

    runtime.json                    pid and manifests of the runtime
    status.json                     the last report, for `odradek local status`
    default.main/                   a cluster: state.json and a directory per broker
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import msgspec

from odradek_api.base import (
    LOCAL_PORT_ANNOTATION,
    InvalidManifestError,
    Problem,
    Resource,
)
from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_api.kafka_cluster.status import KafkaClusterStatus
from odradek_api.parse import SUFFIXES, load, refused_changes
from odradek_api.topic import TopicSpec, TopicStatus, topic_cluster
from odradek_operator.admin.kafka_admin import KafkaAdmin
from odradek_operator.kafka.desired import DesiredTopic, accepts, build_topic
from odradek_operator.kafka.explain import explain
from odradek_operator.kafka.status import cluster_status, topic_statuses
from odradek_operator.local.ledger import LedgerError, TopicEntry, write_json
from odradek_operator.local.pipelines import LocalPipelines, PipelineReport
from odradek_operator.local.platform import LocalPlatform
from odradek_operator.local.processes import JARS
from odradek_operator.reconcile.kafka import Assessment, Record, act, assess

BUSY_S, IDLE_S = 0.2, 1.0  # between passes, with and without a plan
IDLE_SHARE = 0.05  # of a core, at most, for observing an idle cluster
DEFAULT_STATE = ".odradek"


class RuntimeBusyError(Exception):
    """Another runtime uses this state directory; the message names its pid."""


class ClusterReport(msgspec.Struct, rename="camel"):
    status: KafkaClusterStatus
    plan: list[str]
    topics: dict[str, TopicStatus] = {}
    failures: list[str] = []
    pids: dict[int, int] = {}
    admin: dict[int, str] = {}  # broker → address of /metrics, /healthz and /readyz


class Report(msgspec.Struct, rename="camel"):
    clusters: dict[str, ClusterReport] = {}
    pipelines: dict[str, PipelineReport] = {}
    problems: list[str] = []  # invalid manifests, topics without a cluster

    @property
    def settled(self) -> bool:
        """Whether the cluster matches the manifests and nothing is left to do."""
        ready = [
            condition.status == "True"
            for report in self.clusters.values()
            for condition in report.status.conditions
            if condition.type == "Ready"
        ]
        quiet = not any(r.plan or r.failures for r in self.clusters.values())
        return bool(self.clusters) and all(ready) and quiet and not self.problems


class LocalCluster:
    """One KafkaCluster: its processes, its admin connection and its last status."""

    def __init__(self, resource: Resource[KafkaClusterSpec], state_dir: Path) -> None:
        self.resource = resource
        first_port = resource.annotations.get(LOCAL_PORT_ANNOTATION)
        directory = state_dir / f"{resource.namespace}.{resource.name}"
        self.platform = LocalPlatform(directory, int(first_port) if first_port else None)
        self.admin = KafkaAdmin("")
        self.status: KafkaClusterStatus | None = None
        self.topic_statuses: dict[str, TopicStatus] = {}

    @property
    def record(self) -> Record:
        ledger = self.platform.ledger
        return Record(
            frozenset(ledger.dynamic_config),
            {n: t.owner for n, t in ledger.topics.items()},
            {n: frozenset(t.settings) for n, t in ledger.topics.items()},
        )

    def assess(self, topics: list[Resource[TopicSpec]]) -> Assessment:
        wanted = [build_topic(t) for t in topics]
        owners = {t.owner for t in wanted}
        wanted += [
            DesiredTopic(name, entry.owner, delete=True, retain=entry.retain)
            for name, entry in self.platform.ledger.topics.items()
            if entry.owner not in owners
        ]
        self.admin.bootstrap = self.platform.bootstrap()
        spec = self.resource.spec
        racks = spec.racks.names or ["a", "b", "c"]  # one machine has no zones
        return assess(self.resource, wanted, racks, self.platform, self.record, self.admin)

    def apply(self, assessed: Assessment) -> None:
        self.platform.apply(assessed.desired)
        ledger, record = self.platform.ledger, assessed.record
        retained = {t.name: t.retain for t in assessed.topics}
        topics = {
            name: TopicEntry(owner, retained.get(name, False),
                             sorted(record.managed_settings.get(name, ())))
            for name, owner in record.managed_topics.items()
        }  # fmt: skip
        dynamic = sorted(record.dynamic_config)
        if (topics, dynamic) != (ledger.topics, ledger.dynamic_config):
            ledger.topics, ledger.dynamic_config = topics, dynamic
            self.platform.save()

    def report(self, assessed: Assessment, failures: list[str]) -> ClusterReport:
        self.status = cluster_status(
            assessed.desired, assessed.observed, assessed.plan, self.status
        )
        self.topic_statuses = topic_statuses(
            [t for t in assessed.topics if not t.delete],
            assessed.observed,
            assessed.plan,
            assessed.record.managed_topics,
            self.topic_statuses,
            cluster=self.resource.key,
        )
        lines = [explain(action) for action in assessed.plan]
        pids, admin = self.platform.pids(), self.platform.admin_addresses()
        return ClusterReport(self.status, lines, self.topic_statuses, failures, pids, admin)

    def close(self) -> None:
        self.admin.close()


class LocalRuntime:
    def __init__(self, paths: Iterable[Path], state_dir: Path) -> None:
        self.paths = [path.resolve() for path in paths]
        self.state_dir = state_dir.resolve()
        self.clusters: dict[str, LocalCluster] = {}
        self.topics: dict[str, list[Resource[TopicSpec]]] = {}
        self.pipelines = LocalPipelines(self.state_dir)
        self.resources: list[Resource[Any]] = []  # as the manifests have them
        self.report = Report()
        self.manifest_problems: list[str] = []
        self._topic_problems: list[str] = []
        self._read_at: Any = None
        self._stop = threading.Event()
        self._lock: IO[str] | None = None

    # -- start and stop ----------------------------------------------------------------------------

    def acquire(self) -> Self:
        """Takes the lock of the state directory, until `release`."""
        self._lock = lock(self.state_dir, self.paths)
        (self.state_dir / "status.json").unlink(missing_ok=True)  # of an earlier runtime
        return self

    def __enter__(self) -> Self:
        return self if self._lock is not None else self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def release(self) -> None:
        for cluster in self.clusters.values():
            cluster.close()
        if self._lock is not None:
            (self.state_dir / "runtime.json").unlink(missing_ok=True)
            self._lock.close()
            self._lock = None

    def stop(self) -> None:
        """Ends `run`; may be called from a signal handler."""
        self._stop.set()

    def run(self, show: Callable[[Report], None] = lambda _: None) -> None:
        while not self._stop.is_set():
            before = time.process_time()
            show(self.one_pass())
            cost = time.process_time() - before
            busy = any(c.plan for c in self.report.clusters.values()) or self.report.problems
            self._stop.wait(BUSY_S if busy else max(IDLE_S, cost / IDLE_SHARE))

    def stop_brokers(self) -> None:
        """Stops pipelines, then brokers; active controllers last: the others need them."""
        self.pipelines.stop()
        for cluster in self.clusters.values():
            cluster.close()
            controller = cluster.status.controller if cluster.status else -1
            others = [b for b in cluster.platform.known().existing if b != controller]
            cluster.platform.stop_all(others)

    # -- passes ------------------------------------------------------------------------------------

    def one_pass(self) -> Report:
        self.read_manifests()
        report = Report(problems=[*self.manifest_problems, *self._topic_problems])
        for key, cluster in self.clusters.items():
            cluster.platform.supervise()
            assessed = cluster.assess(self.topics.get(key, []))
            try:
                cluster.apply(assessed)
                current = cluster.report(assessed, [])
                self._publish(key, current, report)  # before acting: it announces the actions
                failures, _ = act(assessed, cluster.platform, cluster.admin)
            except LedgerError as error:
                current, failures = cluster.report(assessed, []), [str(error)]
            report.clusters[key] = msgspec.structs.replace(
                current, failures=failures, pids=cluster.platform.pids()
            )
        report.pipelines = self.pipelines.one_pass(
            {key: one.status for key, one in report.clusters.items()},
            {key: one.topics for key, one in report.clusters.items()},
        )
        self._publish("", None, report)
        return self.report

    def plan(self) -> Report:
        """What a pass would do; changes nothing."""
        self.read_manifests()
        if self.manifest_problems:
            raise InvalidManifestError([Problem("", "", "", p) for p in self.manifest_problems])
        report = Report(problems=list(self._topic_problems))
        for key, cluster in self.clusters.items():
            assessed = cluster.assess(self.topics.get(key, []))
            report.clusters[key] = cluster.report(assessed, [])
        return report

    def read_manifests(self) -> None:
        """Reads them if a file changed. If one is invalid, the last valid ones stay in force."""
        stamp = _stamp(self.paths)
        if stamp == self._read_at:
            return
        self._read_at = stamp
        try:
            resources = load(self.paths)
            clusters = {r.key: r for r in resources if r.kind == "KafkaCluster"}
            self._check(clusters)
        except InvalidManifestError as refused:
            self.manifest_problems = [str(p) for p in refused.problems]
            return
        self.manifest_problems = []
        self.resources = resources
        for key in [k for k in self.clusters if k not in clusters]:
            gone = self.clusters.pop(key)  # its data stays until `odradek local down --delete`
            gone.close()
            gone.platform.stop_all()
        for key, resource in clusters.items():
            if key not in self.clusters:
                self.clusters[key] = LocalCluster(resource, self.state_dir)
            self.clusters[key].resource = resource
        self._sort_topics([r for r in resources if r.kind == "Topic"])
        first = self.paths[0]
        here = first if first.is_dir() else first.parent
        self.pipelines.update([r for r in resources if r.kind == "SparkPipeline"], here)

    def _check(self, clusters: dict[str, Resource[KafkaClusterSpec]]) -> None:
        """Refuses what this machine cannot run, and changes that are not possible."""
        problems = []
        for key, new in clusters.items():
            subject = f"KafkaCluster {key}"
            if new.spec.engine == "apache" and not (shutil.which("java") and os.environ.get(JARS)):
                message = f"engine apache needs java, and the directory of Kafka's jars in {JARS}"
                problems.append(Problem(new.source, subject, "spec.engine", message))
            port = new.annotations.get(LOCAL_PORT_ANNOTATION)
            if port is not None and not (port.isdecimal() and 0 < int(port) < 60_000):
                field = f"metadata.annotations[{LOCAL_PORT_ANNOTATION}]"
                problems.append(Problem(new.source, subject, field, f"{port} is not a port"))
            if key in self.clusters:
                problems += refused_changes(new, self.clusters[key].resource)
        if problems:
            raise InvalidManifestError(problems)

    def _sort_topics(self, topics: list[Resource[TopicSpec]]) -> None:
        self.topics, self._topic_problems = {}, []
        for topic in topics:
            key = topic_cluster(topic)
            cluster = self.clusters.get(key)
            about = f"{topic.source}: Topic {topic.key}: spec.cluster: KafkaCluster {key} "
            if cluster is None:
                self._topic_problems.append(f"{about}does not exist")
            elif not accepts(cluster.resource, topic):
                problem = f"does not list namespace {topic.namespace} in spec.topicNamespaces"
                self._topic_problems.append(about + problem)
            else:
                self.topics.setdefault(key, []).append(topic)

    def _publish(self, key: str, part: ClusterReport | None, report: Report) -> None:
        """Writes status.json if it changed."""
        if part is not None:
            clusters = {**self.report.clusters, **report.clusters, key: part}
            now = Report(
                {k: v for k, v in clusters.items() if k in self.clusters},
                self.report.pipelines,
                report.problems,
            )
        else:
            now = report
        if now != self.report:
            self.report = now
            if self._lock is not None:
                write_json(self.state_dir / "status.json", now)


def lock(state_dir: Path, paths: Iterable[Path]) -> IO[str]:
    """Locks the state directory until the file is closed or the process ends."""
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        file = open(state_dir / "lock", "a+")  # noqa: SIM115 (held until release)
    except OSError as error:
        raise LedgerError(f"{state_dir} cannot be used: {error}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        pid = running_pid(state_dir)
        raise RuntimeBusyError(
            f"a local runtime (pid {pid}) is already running in {state_dir}; it applies changes of "
            "its manifests by itself, and `odradek local down` stops it"
        ) from None
    about = {"pid": os.getpid(), "manifests": [str(p) for p in paths], "since": time.time()}
    write_json(state_dir / "runtime.json", about)
    return file


def running_pid(state_dir: Path) -> int | None:
    """The pid of the runtime that holds the lock, if there is one."""
    try:
        with open(state_dir / "lock") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except FileNotFoundError:
        return None
    except OSError:
        pass
    try:
        return int(msgspec.json.decode((state_dir / "runtime.json").read_bytes())["pid"])
    except (OSError, ValueError, KeyError):
        return None


def read_report(state_dir: Path) -> Report | None:
    try:
        return msgspec.json.decode((state_dir / "status.json").read_bytes(), type=Report)
    except (OSError, msgspec.DecodeError):
        return None


def stop_orphans(state_dir: Path) -> int:
    """Stops brokers of a runtime that ended; returns how many there were."""
    count = 0
    for directory in sorted(state_dir.glob("*.*/")):
        if (directory / "state.json").exists():
            platform = LocalPlatform(directory)
            count += len(platform.pids())
            platform.stop_all()
    return count


def _stamp(paths: Iterable[Path]) -> list[tuple[str, int, int]]:
    """Changes whenever a manifest changes."""
    found = []
    for path in paths:
        inside = sorted(path.iterdir()) if path.is_dir() else [path]
        for file in inside:
            with contextlib.suppress(OSError):  # an editor may replace a file at any moment
                if file.suffix in SUFFIXES and file.is_file():
                    about = file.stat()
                    found.append((str(file), about.st_mtime_ns, about.st_size))
    return found
