"""Reconciles the manifests of a directory on this machine: `odradek local up -f dir`.

    with LocalRuntime([Path("examples/quickstart")], state_dir) as runtime:
        runtime.run(show)          # until stop() or a signal; show(report) after each pass

Every pass reads the manifests again if a file changed, so editing a file is like `kubectl apply`.
An invalid file is reported, and the last valid manifests stay in force. Only one runtime at a time
may use a state directory (it holds a lock):

    runtime.json                    pid and manifests of the runtime
    status.json                     the last report, for `odradek local status`
    steering.json                   what the console asked for: pause, stop, restart
    default.main/                   a cluster: state.json and a directory per broker
    secrets/default/billing/        the credentials of a KafkaUser
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Sequence
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
from odradek_api.kafka_rebalance.rules import rebalance_cluster
from odradek_api.kafka_rebalance.spec import KafkaRebalanceSpec
from odradek_api.kafka_user.rules import user_cluster
from odradek_api.kafka_user.spec import KafkaUserSpec
from odradek_api.parse import load, refused_changes
from odradek_api.topic import TopicSpec, TopicStatus, topic_cluster
from odradek_operator.admin.kafka_admin import KafkaAdmin
from odradek_operator.kafka.desired import DesiredTopic, accepts, build_topic
from odradek_operator.kafka.explain import explain
from odradek_operator.kafka.status import cluster_status, topic_statuses
from odradek_operator.local import steering
from odradek_operator.local.certificates import LocalCertificates
from odradek_operator.local.ledger import LedgerError, TopicEntry, write_json
from odradek_operator.local.locking import RuntimeBusyError as RuntimeBusyError
from odradek_operator.local.locking import lock as lock
from odradek_operator.local.locking import running_pid as running_pid
from odradek_operator.local.pipelines import LocalPipelines
from odradek_operator.local.platform import LocalPlatform
from odradek_operator.local.processes import JARS
from odradek_operator.local.rebalances import FileDocuments, LocalRebalances
from odradek_operator.local.registry import LocalRegistry, registry_problems
from odradek_operator.local.report import ClusterReport as ClusterReport
from odradek_operator.local.report import Report as Report
from odradek_operator.local.stamp import stamp
from odradek_operator.local.users import LocalUsers, LocalUserSecrets, load_secrets
from odradek_operator.reconcile.certificates import Certified
from odradek_operator.reconcile.entrance import entrance
from odradek_operator.reconcile.kafka import Assessment, PersistedRecord, act, assess
from odradek_operator.reconcile.rebalances import RebalanceKeeper
from odradek_operator.security.material import InvalidSecretError
from odradek_operator.security.status import certificate_statuses
from odradek_operator.security.users import not_accepted
from odradek_protocol.client.settings import PLAINTEXT

BUSY_S, IDLE_S = 0.2, 1.0  # between passes, with and without a plan
IDLE_SHARE = 0.05  # share of a core, at most, for observing an idle cluster
DEFAULT_STATE = ".odradek"
FIRST_PORT_MAX = 64_000  # leaves room for the ports that follow from it


class LocalCluster:
    """One KafkaCluster: its processes, its admin connection and its last status."""

    def __init__(self, resource: Resource[KafkaClusterSpec], state_dir: Path) -> None:
        self.resource = resource
        first_port = resource.annotations.get(LOCAL_PORT_ANNOTATION)
        directory = cluster_directory(state_dir, resource)
        self.certificates = LocalCertificates(state_dir, resource.namespace, resource.name)
        self.platform = LocalPlatform(
            directory, int(first_port) if first_port else None, self.certificates
        )
        self.admin = KafkaAdmin("")
        self.status: KafkaClusterStatus | None = None
        self.topic_statuses: dict[str, TopicStatus] = {}
        self.users = LocalUsers(LocalUserSecrets(state_dir))
        self.user_lines: list[str] = []
        self.rebalances = LocalRebalances(RebalanceKeeper(FileDocuments(directory)))
        self.registry = LocalRegistry(directory)

    @property
    def record(self) -> PersistedRecord:
        ledger = self.platform.ledger
        return PersistedRecord(
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
        self.admin.bootstrap, tls = self.platform.route()
        own = self.certificates.keeper.client_security() if tls else None
        self.admin.security = own or PLAINTEXT
        spec = self.resource.spec
        racks = spec.racks.names or ["a", "b", "c"]  # one machine has no zones
        self.rebalances.begin(self.platform.ledger)
        found = assess(
            self.resource, wanted, racks, self.platform, self.record, self.admin,
            self.rebalances.keeper,
        )  # fmt: skip
        self.user_lines = self._assess_users(found)
        return found

    def _assess_users(self, found: Assessment) -> list[str]:
        """The pending actions on users, in sentences."""
        try:
            material = self.certificates.keeper.material() if found.desired.secured else None
        except InvalidSecretError as error:
            self.users.wait(str(error))
            return []
        if found.observed.kafka is None:
            self.users.wait(found.observed.unreachable)
            return []
        doors = entrance(found.desired, found.observed, material)
        return self.users.assess(self.platform.ledger, doors, self.admin)

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
        changed = self.users.record(ledger)
        changed = self.rebalances.persist(ledger) or changed
        if changed or (topics, dynamic) != (ledger.topics, ledger.dynamic_config):
            ledger.topics, ledger.dynamic_config = topics, dynamic
            self.platform.save()

    def certify(self, assessed: Assessment) -> Certified | None:
        running = self.platform.running()
        return self.certificates.assess(self.resource, assessed.desired, running)

    def report(
        self, assessed: Assessment, failures: list[str], certified: Certified | None
    ) -> ClusterReport:
        self.status = cluster_status(
            assessed.desired, assessed.observed, assessed.plan, self.status,
            certificate_statuses(certified.material, certified.plan) if certified else (),
        )  # fmt: skip
        self.topic_statuses = topic_statuses(
            [t for t in assessed.topics if not t.delete],
            assessed.observed,
            assessed.plan,
            assessed.record.managed_topics,
            self.topic_statuses,
            cluster=self.resource.key,
        )
        registry = self.registry.assess(self.resource, self.status)
        lines = certified.lines if certified else []
        lines += [*map(explain, assessed.plan), *self.user_lines, *self.rebalances.lines]
        lines += self.registry.lines
        pids, admin = self.platform.pids(), self.platform.admin_addresses()
        users = self.users.report()
        return ClusterReport(
            self.status, lines, self.topic_statuses, users, failures, pids, admin,
            self.rebalances.report(), registry,
        )  # fmt: skip

    def act(self, assessed: Assessment, certified: Certified | None) -> list[str]:
        """Certificates first: nodes cannot start without them. Returns the errors."""
        if certified is not None and certified.problem:
            return [certified.problem]
        refused: list[str] = []
        if certified is not None:
            self.certificates.act(certified)
            if assessed.desired.spec.engine == "apache" and assessed.observed.kafka is not None:
                refused = self.certificates.load_again(
                    certified, self.platform.running(), self.admin
                )
            refused += [f"spec.certificates: {one}" for one in certified.warnings]
        failures, _ = act(assessed, self.platform, self.admin)
        self.registry.act()
        return refused + failures + self.users.act(self.admin)

    def close(self) -> None:
        self.admin.close()

    def stop(self, first: Sequence[int] = ()) -> None:
        """Stops the registry, which needs the brokers, then all nodes; those in `first` first."""
        self.close()
        self.registry.stop()
        self.platform.stop_all(first)


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
        self._reference_problems: list[str] = []
        self._read_at: Any = None
        self._stop = threading.Event()
        self._lock: IO[str] | None = None

    # -- start and stop ----------------------------------------------------------------------------

    def acquire(self) -> Self:
        """Takes the lock of the state directory, until `release`."""
        self._lock = lock(self.state_dir, self.paths)
        for name in ("status.json", steering.NAME):  # of an earlier runtime
            (self.state_dir / name).unlink(missing_ok=True)
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
            controller = cluster.status.controller if cluster.status else -1
            cluster.stop([b for b in cluster.platform.known().existing if b != controller])

    # -- passes ------------------------------------------------------------------------------------

    def one_pass(self) -> Report:
        self.read_manifests()
        report = Report(problems=[*self.manifest_problems, *self._reference_problems])
        for key, cluster in self.clusters.items():
            cluster.platform.supervise()
            cluster.registry.supervise()
            assessed = cluster.assess(self.topics.get(key, []))
            certified = cluster.certify(assessed)
            try:
                cluster.apply(assessed)
                current = cluster.report(assessed, [], certified)
                self._publish(key, current, report)  # before acting: it announces the actions
                failures = cluster.act(assessed, certified)
            except LedgerError as error:
                current, failures = cluster.report(assessed, [], certified), [str(error)]
            report.clusters[key] = msgspec.structs.replace(
                current, failures=failures, pids=cluster.platform.pids()
            )
        report.pipelines = self.pipelines.one_pass(
            {key: one.status for key, one in report.clusters.items()},
            {key: one.topics for key, one in report.clusters.items()},
            {name: user for one in report.clusters.values() for name, user in one.users.items()},
        )
        self._publish("", None, report)
        return self.report

    def plan(self) -> Report:
        """The actions that a pass would take; changes nothing."""
        self.read_manifests()
        if self.manifest_problems:
            raise InvalidManifestError([Problem("", "", "", p) for p in self.manifest_problems])
        report = Report(problems=list(self._reference_problems))
        for key, cluster in self.clusters.items():
            cluster.rebalances.keeper.sleep = time.sleep
            assessed = cluster.assess(self.topics.get(key, []))
            report.clusters[key] = cluster.report(assessed, [], cluster.certify(assessed))
        return report

    def read_manifests(self) -> None:
        """Reads them if a file changed. If one is invalid, the last valid ones stay in force."""
        wishes = steering.read_steering(self.state_dir)
        now = stamp(self.paths), wishes
        if now == self._read_at:
            return
        self._read_at = now
        try:
            resources = steering.steered(load(self.paths), wishes)
            clusters = {r.key: r for r in resources if r.kind == "KafkaCluster"}
            self._check(clusters)
        except InvalidManifestError as refused:
            self.manifest_problems = [str(p) for p in refused.problems]
            return
        self.manifest_problems = []
        self.resources = resources
        for key in [k for k in self.clusters if k not in clusters]:
            self.clusters.pop(key).stop()  # its data stays until `odradek local down --delete`
        for key, resource in clusters.items():
            if key not in self.clusters:
                self.clusters[key] = LocalCluster(resource, self.state_dir)
            self.clusters[key].resource = resource
        self._sort_topics([r for r in resources if r.kind == "Topic"])
        self._sort_users([r for r in resources if r.kind == "KafkaUser"])
        self._sort_rebalances([r for r in resources if r.kind == "KafkaRebalance"])
        first = self.paths[0]
        here = first if first.is_dir() else first.parent
        self.pipelines.update([r for r in resources if r.kind == "SparkPipeline"], here)

    def _check(self, clusters: dict[str, Resource[KafkaClusterSpec]]) -> None:
        """Refuses manifests that this machine cannot run, and changes that are not possible."""
        problems = []
        for key, new in clusters.items():
            subject = f"KafkaCluster {key}"
            if new.spec.engine == "apache" and not (shutil.which("java") and os.environ.get(JARS)):
                message = f"engine apache needs java, and the directory of Kafka's jars in {JARS}"
                problems.append(Problem(new.source, subject, "spec.engine", message))
            port = new.annotations.get(LOCAL_PORT_ANNOTATION)
            if port is not None and not (port.isdecimal() and 0 < int(port) <= FIRST_PORT_MAX):
                field = f"metadata.annotations[{LOCAL_PORT_ANNOTATION}]"
                message = f"must be a port from 1 to {FIRST_PORT_MAX}, not {port}: the ports of "
                message += "the brokers follow it, those of their metrics 1000 later"
                problems.append(Problem(new.source, subject, field, message))
            problems += registry_problems(new)
            if new.spec.certificates.issuer_ref is not None:
                message = "cert-manager needs Kubernetes: use certificates.secretName here"
                problems.append(Problem(new.source, subject, "spec.certificates", message))
            if key in self.clusters:
                problems += refused_changes(new, self.clusters[key].resource)
        if problems:
            raise InvalidManifestError(problems)

    def _sort_topics(self, topics: list[Resource[TopicSpec]]) -> None:
        self.topics, self._reference_problems = {}, []
        for topic in topics:
            key = topic_cluster(topic)
            cluster = self.clusters.get(key)
            about = f"{topic.source}: Topic {topic.key}: spec.cluster: KafkaCluster {key} "
            if cluster is None:
                self._reference_problems.append(f"{about}does not exist")
            elif not accepts(cluster.resource, topic):
                problem = f"does not list namespace {topic.namespace} in spec.topicNamespaces"
                self._reference_problems.append(about + problem)
            else:
                self.topics.setdefault(key, []).append(topic)

    def _sort_users(self, users: list[Resource[KafkaUserSpec]]) -> None:
        given = load_secrets(self.paths)
        for cluster in self.clusters.values():
            cluster.users.declared, cluster.users.secrets.given = [], given
            cluster.certificates.give(given)
        for user in users:
            found = self.clusters.get(user_cluster(user))
            about = f"{user.source}: KafkaUser {user.key}: spec.cluster: "
            if found is None:
                missing = f"KafkaCluster {user_cluster(user)} does not exist"
                self._reference_problems.append(about + missing)
            elif problem := not_accepted(found.resource, user):
                self._reference_problems.append(about + problem)
            else:
                found.users.declared.append(user)

    def _sort_rebalances(self, rebalances: list[Resource[KafkaRebalanceSpec]]) -> None:
        for cluster in self.clusters.values():
            cluster.rebalances.declared = []
        for one in rebalances:
            if found := self.clusters.get(rebalance_cluster(one)):
                found.rebalances.declared.append(one)
            else:
                missing = f"KafkaCluster {rebalance_cluster(one)} does not exist"
                about = f"{one.source}: KafkaRebalance {one.key}: spec.cluster: "
                self._reference_problems.append(about + missing)

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


def cluster_directory(state_dir: Path, resource: Resource[KafkaClusterSpec]) -> Path:
    return state_dir / f"{resource.namespace}.{resource.name}"


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
            LocalRegistry(directory).stop()
            platform = LocalPlatform(directory)
            count += len(platform.pids())
            platform.stop_all()
    return count
