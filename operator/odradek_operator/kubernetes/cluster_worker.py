"""One pass over one KafkaCluster and its Topics on Kubernetes: observe, plan, report, act.

    outcome = ClusterWorker("default/main", tools).one_pass()

Level-based: a pass starts from the observed state, whatever triggered it and however the pass
before it ended. What must not be forgotten is persisted before the action: which nodes formed the
cluster and which settings were altered, in its status; which resource manages a topic, in the
Topic's status.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import msgspec
from lightkube import Client
from lightkube.core.exceptions import ApiError

from odradek_api.base import Condition, InvalidManifestError, Resource
from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_api.kafka_cluster.status import KafkaClusterStatus
from odradek_api.parse import parse
from odradek_operator.admin.handshakes import ask
from odradek_operator.admin.kafka_admin import KafkaAdmin
from odradek_operator.kafka.actions import Reason, Refuse, Wait
from odradek_operator.kafka.desired import accepts, build_topic
from odradek_operator.kafka.disks import transitions
from odradek_operator.kafka.explain import explain
from odradek_operator.kafka.status import cluster_status, conditions, topic_statuses
from odradek_operator.kubernetes import names
from odradek_operator.kubernetes.certificates import ClusterCertificates
from odradek_operator.kubernetes.events import Events
from odradek_operator.kubernetes.objects import (
    ChangedMeanwhileError,
    Document,
    get,
    read_status,
    set_finalizer,
    write_status,
)
from odradek_operator.kubernetes.platform import KubernetesPlatform
from odradek_operator.kubernetes.rebalance_book import RebalanceBook
from odradek_operator.kubernetes.rebalance_controller import RebalanceController
from odradek_operator.kubernetes.topic_book import TopicBook, TopicObject
from odradek_operator.kubernetes.user_book import UserBook
from odradek_operator.kubernetes.user_controller import UserController
from odradek_operator.reconcile.certificates import Ask, Certified
from odradek_operator.reconcile.entrance import entrance
from odradek_operator.reconcile.kafka import Assessment, PersistedRecord, act, assess
from odradek_operator.security.issuing import words
from odradek_operator.security.status import certificate_statuses, expiries

REFUSED = (400, 403, 422)

log = logging.getLogger(__name__)


class Outcome(Enum):
    BUSY = "busy"  # something was changed: reconcile again at once
    WAITING = "waiting"  # something is pending
    IDLE = "idle"
    GONE = "gone"  # neither the cluster nor a Topic of it exists


@dataclass(frozen=True)
class Tools:
    """Shared by all workers of an operator."""

    client: Client
    topics: TopicBook
    users: UserBook
    rebalances: RebalanceBook
    node_racks: Callable[[str], Mapping[str, str]]  # node → its value of a label
    image: Callable[[KafkaClusterSpec], str]
    make_admin: Callable[[], KafkaAdmin] = field(default=lambda: KafkaAdmin(""))
    ask: Ask = ask  # the certificates that a node serves and accepts


class ClusterWorker:
    def __init__(self, key: str, tools: Tools) -> None:
        self.key = key
        self.failures: list[str] = []  # of the last pass
        self.broker_count = 0
        self.not_after: dict[str, float] = {}  # of each certificate, in unix seconds
        self._tools = tools
        self._admin = tools.make_admin()
        self._events = Events(tools.client)
        self._applied: dict[tuple[str, str], str] = {}
        self._users = UserController(tools.client, tools.users, self._events)
        self._rebalances = RebalanceController(tools.client, tools.rebalances, self._events)
        self._certificates: ClusterCertificates | None = None

    def close(self) -> None:
        self._admin.close()

    def one_pass(self) -> Outcome:
        try:
            return self._one_pass()
        except ChangedMeanwhileError as changed:
            if changed.kind == "Topic":
                now = get(self._tools.client, "Topic", changed.key)
                self._tools.topics.forget(changed.key)
                self._put(now)
            elif changed.kind == "KafkaUser":
                self._users.refresh(changed.key)
            elif changed.kind == "KafkaRebalance":
                self._rebalances.refresh(changed.key)
            return Outcome.BUSY

    def _one_pass(self) -> Outcome:
        self._events.next_pass()
        self.failures = []
        topics = self._tools.topics.of(self.key)
        document = get(self._tools.client, "KafkaCluster", self.key)
        if document is None or document["metadata"].get("deletionTimestamp"):
            self.broker_count = 0
            for topic in topics:
                self._without_cluster(topic)
            users = self._users.without_cluster(self.key)
            rebalances = self._rebalances.without_cluster(self.key)
            return Outcome.IDLE if topics or users or rebalances else Outcome.GONE
        try:
            resource = parse(document)
        except InvalidManifestError as refused:
            problem = "; ".join(f"{p.field}: {p.message}" for p in refused.problems)
            self._not_usable(document, Reason("InvalidSpec", problem))
            return Outcome.IDLE
        assert resource is not None
        if problem := names.unusable(resource.name):
            self._not_usable(document, Reason("InvalidSpec", f"metadata.name: {problem}"))
            return Outcome.IDLE
        return self._reconcile(document, resource, topics)

    # -- a valid cluster ---------------------------------------------------------------------------

    def _reconcile(
        self,
        document: Document,
        resource: Resource[KafkaClusterSpec],
        topics: list[TopicObject],
    ) -> Outcome:
        before = read_status(document, KafkaClusterStatus)
        tools, spec = self._tools, resource.spec
        node_racks = tools.node_racks(spec.racks.topology_key)
        platform = KubernetesPlatform(
            tools.client, resource, before, tools.image, self._applied, node_racks
        )
        platform.refresh()
        if problem := platform.conflict():
            self._not_usable(document, Reason("InvalidSpec", f"spec.listeners: {problem}"))
            return Outcome.IDLE
        usable = [topic for topic in topics if self._usable(topic, resource)]
        wanted = [build_topic(topic.resource) for topic in usable if topic.resource]
        if self._certificates is None:
            self._certificates = ClusterCertificates(tools.client, resource, tools.ask)
        self._certificates.connect(resource, platform, self._admin)
        racks = sorted(set(node_racks.values()))
        record = record_of(before, usable)
        self._rebalances.begin(self.key)
        assessed = assess(
            resource, wanted, racks, platform, record, self._admin, self._rebalances.keeper
        )
        self.broker_count = len(assessed.desired.brokers)
        certified = self._certificates.assess(assessed.desired, platform)
        self.not_after = expiries(certified.material) if certified else {}
        self._hold(usable, assessed)
        status = self._report(document, usable, assessed, before, platform.bootstrap(), certified)
        self._release(usable, assessed)
        self._rebalances.persist()
        if spec.pause:
            self._users_pass(resource, assessed, certified)
            return Outcome.IDLE
        try:
            missing = self._certificates.request(certified, platform) if certified else ""
            if certified is not None and (problem := missing or certified.problem):
                self.failures = [problem]
                self._events.record(document, "InvalidSecret", problem, warning=True)
                return Outcome.WAITING
            self._certify(document, certified)  # nodes cannot start without certificates
            platform.apply(assessed.desired)
            self._announce(document, usable, assessed)
            self._rebalances.announce(assessed.plan)
            failed, pending = act(assessed, platform, self._admin)
            if certified and spec.engine == "apache" and assessed.observed.kafka is not None:
                failed += self._certificates.load_again(certified, platform, self._admin)
            users_changed = self._users_pass(resource, assessed, certified)
        except ApiError as error:
            if error.status.code in REFUSED:  # a quota, a policy or missing rights
                self._events.record(document, "Refused", str(error), warning=True)
            raise
        self.failures = [*platform.problems, *failed, *self._users.failures]
        for one in pending:
            log.info("%s: %s", self.key, one)
            self._events.record(document, "Waiting", one)
        for failure in self.failures:
            log.warning("%s: %s", self.key, failure)
            self._events.record(document, "Failed", failure, warning=True)
        doing = [action for action in assessed.plan if not isinstance(action, Refuse)]
        if users_changed:
            return Outcome.BUSY
        if certified is not None and certified.lines:
            return Outcome.BUSY if certified.plan.steps else Outcome.WAITING
        if not doing and self._users.failures:
            return Outcome.WAITING
        if not doing:
            # No event reports that a disk has free space again.
            rests = self._rebalances.resting and not status.disks
            return Outcome.IDLE if rests else Outcome.WAITING
        waiting = self.failures or pending or all(isinstance(action, Wait) for action in doing)
        return Outcome.WAITING if waiting else Outcome.BUSY

    def _users_pass(
        self,
        resource: Resource[KafkaClusterSpec],
        assessed: Assessment,
        certified: Certified | None,
    ) -> bool:
        """Users wait until the cluster answers: nothing is known about them before."""
        if assessed.observed.kafka is None:
            self._users.wait(resource, assessed.observed.unreachable)
            return False
        host = f"{names.bootstrap_service(resource.name)}.{resource.namespace}.svc"
        inside = [one for one in resource.spec.listener_list if one.type == "internal"]
        services = {one.name: f"{host}:{one.port}" for one in inside}
        material = certified.material if certified and not certified.problem else None
        doors = entrance(assessed.desired, assessed.observed, material, services)
        return self._users.one_pass(resource, doors, self._admin)

    def _hold(self, topics: list[TopicObject], assessed: Assessment) -> None:
        """Adds the finalizer to Topics with deletionPolicy Delete, before the topic is created."""
        for topic in topics:
            if topic.resource is None or topic.deleting:
                continue
            name = topic.resource.spec.name or topic.resource.name
            ours = assessed.record.managed_topics.get(name) == topic.key
            policy = topic.resource.spec.deletion_policy
            self._put(set_finalizer(self._tools.client, topic.document,
                                    held=ours and policy == "Delete"))  # fmt: skip

    def _release(self, topics: list[TopicObject], assessed: Assessment) -> None:
        """Removes the finalizer of deleted Topics whose topic is gone."""
        still = set(assessed.record.managed_topics.values())
        for topic in topics:
            if topic.deleting and topic.held and topic.key not in still:
                self._let_go(topic)

    def _let_go(self, topic: TopicObject) -> None:
        found = set_finalizer(self._tools.client, topic.document, held=False)
        self._put(found)
        if found is not None and not found["metadata"].get("finalizers"):
            self._tools.topics.forget(topic.key)

    def _report(
        self,
        document: Document,
        topics: list[TopicObject],
        assessed: Assessment,
        before: KafkaClusterStatus,
        bootstrap: str,
        certified: Certified | None,
    ) -> KafkaClusterStatus:
        certificates = certificate_statuses(certified.material, certified.plan) if certified else []
        status = msgspec.structs.replace(
            cluster_status(
                assessed.desired, assessed.observed, assessed.plan, before, certificates
            ),
            bootstrap_servers=bootstrap,
            dynamic_config=sorted(assessed.record.dynamic_config),
        )
        write_status(self._tools.client, document, status)
        for reason, warning in transitions(before.disks, status.disks):
            log.log(logging.WARNING if warning else logging.INFO, "%s: %s", self.key, reason)
            self._events.record(document, reason.code, reason.message, warning=warning)
        by_key = {topic.key: topic for topic in topics if not topic.deleting}
        statuses = topic_statuses(
            [t for t in assessed.topics if t.owner in by_key],
            assessed.observed,
            assessed.plan,
            assessed.record.managed_topics,
            {key: topic.status for key, topic in by_key.items()},
            {key: topic.generation for key, topic in by_key.items()},
            self.key,
        )
        for key, found in statuses.items():
            ours = sorted(assessed.record.managed_settings.get(found.topic_name, ()))
            full = msgspec.structs.replace(found, dynamic_config=ours if found.managed else [])
            document = (self._tools.topics.get(key) or by_key[key]).document
            self._put(write_status(self._tools.client, document, full))
        return status

    def _certify(self, document: Document, certified: Certified | None) -> None:
        """Writes the Secrets that are due; each one is an Event, an outage is a warning."""
        if certified is None or self._certificates is None:
            return
        for problem in certified.warnings:
            self._events.record(document, "CertificateProblem", problem, warning=True)
        for step in self._certificates.act(certified):
            log.info("%s: %s", self.key, words(step))
            warning = step.code in ("CaUnusable", "CertificateUnusable")
            self._events.record(document, step.code, words(step), warning=warning)

    def _announce(
        self, document: Document, topics: list[TopicObject], assessed: Assessment
    ) -> None:
        by_key = {topic.key: topic for topic in topics}
        for action in assessed.plan:
            if isinstance(action, Wait):
                continue
            about, warning = document, isinstance(action, Refuse)
            if isinstance(action, Refuse) and action.subject in by_key:
                about = by_key[action.subject].document
            log.info("%s: %s", self.key, explain(action))
            self._events.record(about, action.reason.code, explain(action), warning=warning)

    # -- invalid resources -------------------------------------------------------------------------

    def _usable(self, topic: TopicObject, cluster: Resource[KafkaClusterSpec]) -> bool:
        if topic.resource is None:
            self._topic_not_ready(topic, Reason("InvalidSpec", topic.problem))
            return False
        if not accepts(cluster, topic.resource):
            message = f"KafkaCluster {self.key} does not list namespace {topic.resource.namespace} "
            message += "in spec.topicNamespaces"
            self._topic_not_ready(topic, Reason("NotAccepted", message))
            if topic.deleting:
                self._let_go(topic)
            return False
        return True

    def _without_cluster(self, topic: TopicObject) -> None:
        if not topic.deleting:
            message = f"KafkaCluster {self.key} does not exist"
            self._topic_not_ready(topic, Reason("ClusterMissing", message))
        elif topic.held:
            message = f"KafkaCluster {self.key} was deleted, and its topics with it"
            self._events.record(topic.document, "ClusterMissing", message)
            self._let_go(topic)

    def _topic_not_ready(self, topic: TopicObject, reason: Reason) -> None:
        if topic.deleting:
            return
        made = _not_ready(topic.status.conditions, reason, topic.generation)
        status = msgspec.structs.replace(
            topic.status, observed_generation=topic.generation, conditions=made
        )
        self._put(write_status(self._tools.client, topic.document, status))

    def _not_usable(self, document: Document, reason: Reason) -> None:
        """Only reported: running brokers are left alone."""
        before = read_status(document, KafkaClusterStatus)
        generation = int(document["metadata"].get("generation") or 0)
        made = _not_ready(before.conditions, reason, generation)
        status = msgspec.structs.replace(before, observed_generation=generation, conditions=made)
        if write_status(self._tools.client, document, status):
            self._events.record(document, reason.code, reason.message, warning=True)

    def _put(self, document: Document | None) -> None:
        if document is not None:
            self._tools.topics.put(document)


def record_of(status: KafkaClusterStatus, topics: list[TopicObject]) -> PersistedRecord:
    managed = {t.status.topic_name: t for t in topics if t.status.managed}
    return PersistedRecord(
        frozenset(status.dynamic_config),
        {name: topic.key for name, topic in managed.items()},
        {name: frozenset(topic.status.dynamic_config) for name, topic in managed.items()},
    )


def _not_ready(before: Sequence[Condition], reason: Reason, generation: int) -> list[Condition]:
    """Ready becomes False; the other conditions keep their last values."""
    made = conditions([("Ready", "False", reason)], before, generation, time.time())
    return [*made, *(condition for condition in before if condition.type != "Ready")]
