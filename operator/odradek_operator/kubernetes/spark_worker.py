"""SparkPipelines and SparkApplications on Kubernetes: one pass over all of them.

    SparkWorker(client, namespaces, image, native=True).one_pass() -> seconds until the next look

Pipelines become SparkApplications (spark/desired.py) when their clusters and topics are ready. If
`native`, the SparkApplications are run by us too, also those that users wrote (spark/plan.py
decides, kubernetes/spark_manifests.py renders); else kubeflow's Spark operator does it.

Level-based, and listed rather than watched: a pipeline changes rarely, and Spark takes longer to
start than a look is late. The status is written before the action that it announces.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from lightkube import Client
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_namespaced_resource
from lightkube.resources.core_v1 import ConfigMap, Pod, Service, ServiceAccount
from lightkube.resources.rbac_authorization_v1 import Role, RoleBinding
from lightkube.types import PatchType

from odradek_api.base import API_VERSION, InvalidManifestError, Resource
from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_api.kafka_cluster.status import KafkaClusterStatus
from odradek_api.kinds import KINDS
from odradek_api.parse import parse
from odradek_api.pipeline.job import clusters_of
from odradek_api.pipeline.spec import SparkPipelineSpec
from odradek_api.pipeline.status import JobStatus, SparkPipelineStatus, TopicLag
from odradek_api.topic import TopicStatus
from odradek_operator.kafka.actions import Reason
from odradek_operator.kafka.status import conditions
from odradek_operator.kubernetes import spark_manifests as native_objects
from odradek_operator.kubernetes.events import Events
from odradek_operator.kubernetes.objects import (
    MANAGER,
    NOT_FOUND,
    ChangedMeanwhileError,
    Document,
    KafkaCluster,
    Topic,
    difference,
    key_of,
    plain,
    read_status,
)
from odradek_operator.kubernetes.platform import contains
from odradek_operator.spark import desired
from odradek_operator.spark.plan import ENDED, Decision, Driver, decide
from odradek_operator.spark.runs import Run, which_run
from odradek_operator.spark.waiting import waits_for

SparkPipeline = create_namespaced_resource(
    "odradek.dev", "v1alpha1", "SparkPipeline", KINDS["SparkPipeline"].plural
)
SparkApplication = create_namespaced_resource(
    "sparkoperator.k8s.io", "v1beta2", "SparkApplication", "sparkapplications"
)
APPLICATION: Any = SparkApplication  # lightkube takes documents; its types do not say so
MADE: dict[str, Any] = {"ServiceAccount": ServiceAccount, "Role": Role, "RoleBinding": RoleBinding,
        "Service": Service, "Pod": Pod, "ConfigMap": ConfigMap}  # fmt: skip

PROGRESS = "odradek.dev/progress"  # of a driver's pod: what it says of its queries
BUSY_S, IDLE_S, ABSENT_S = 2.0, 5.0, 60.0
SENTENCES = {
    "": "the SparkApplication was made",
    "SUBMITTED": "the driver starts",
    "RUNNING": "the driver runs",
    "COMPLETED": "it is done",
    "PENDING_RERUN": "it is started again soon",
    "SUSPENDED": "it is suspended",
}

log = logging.getLogger(__name__)


class SparkWorker:
    def __init__(
        self, client: Client, namespaces: Sequence[str], image: str, *, native: bool
    ) -> None:
        self._client = client
        self._namespaces = tuple(namespaces) or ("*",)
        self._image = image
        self._native = native
        self._events = Events(client)

    def one_pass(self) -> float:
        """Seconds until the next; ABSENT_S if the CRDs are not installed."""
        self._events.next_pass()
        pipelines, applications = self._list(SparkPipeline), self._list(SparkApplication)
        if pipelines is None or applications is None:
            return ABSENT_S
        busy = False
        if self._native:
            for document in applications:
                busy |= self._try(self._run, document)
            if busy:
                applications = self._list(SparkApplication) or []
        known = {key_of(one): one for one in applications}
        if pipelines:
            world = self._world()
            for document in pipelines:
                busy |= self._try(self._pipeline, document, known, world)
        return BUSY_S if busy else IDLE_S

    def _try(self, work: Any, document: Document, *more: Any) -> bool:
        """One that fails does not keep the others from their turn."""
        try:
            return bool(work(document, *more))
        except ChangedMeanwhileError:
            return True
        except ApiError as error:
            log.warning("%s: the API server said no: %s", key_of(document), error)
            self._events.say(document, "Refused", str(error), warning=True)
            return False

    def _list(self, kind: Any) -> list[dict[str, Any]] | None:
        try:
            found = (self._client.list(kind, namespace=name) for name in self._namespaces)
            return [plain(one) for listed in found for one in listed]
        except ApiError as error:
            if error.status.code == NOT_FOUND:
                return None
            raise

    # -- pipelines ---------------------------------------------------------------------------------

    def _world(self) -> tuple[dict[str, Document], dict[str, dict[str, TopicStatus]]]:
        """Clusters by key, and the Topics' statuses by cluster."""
        clusters: dict[str, Document] = {key_of(one): one for one in self._list(KafkaCluster) or []}
        topics: dict[str, dict[str, TopicStatus]] = {}
        for one in self._list(Topic) or []:
            ref = one["spec"]["cluster"]
            key = f"{ref.get('namespace') or one['metadata']['namespace']}/{ref['name']}"
            status = read_status(one, TopicStatus)
            name = one["spec"].get("name") or one["metadata"]["name"]
            topics.setdefault(key, {})[key_of(one)] = msgspec.structs.replace(
                status, topic_name=name
            )
        return clusters, topics

    def _pipeline(
        self,
        document: Document,
        applications: Mapping[str, Document],
        world: tuple[dict[str, Document], dict[str, dict[str, TopicStatus]]],
    ) -> bool:
        if document["metadata"].get("deletionTimestamp"):
            return False  # what it made goes with it, by its owner references
        try:
            resource = parse(document)
        except InvalidManifestError as refused:
            say = "; ".join(f"{p.field}: {p.message}" for p in refused.problems)
            return self._say(document, Reason("InvalidSpec", say), None)
        assert resource is not None
        if problem := desired.unusable(resource.spec):
            return self._say(document, Reason("InvalidSpec", problem), None)
        clusters = {key: read_status(one, KafkaClusterStatus) for key, one in world[0].items()}
        application = applications.get(resource.key)
        before = read_status(document, SparkPipelineStatus)
        last, at_work = _last_run(before, application), _at_work(application)
        run = which_run(resource.spec, _created_s(document), last, time.time(), at_work=at_work)
        if run.name is None:
            return self._say(document, Reason("Scheduled", f"it runs at {run.next}"), None, run)
        if application is None and _is_over(document, before, run):
            return False  # its SparkApplication has gone with its time to live
        fresh = application is None or run.name != _run_of(application)
        if fresh and (waits := waits_for(resource, clusters, world[1])):
            not_begun = Run(last or None, run.next)
            return self._say(document, Reason("Waiting", waits), application, not_begun)
        self._apply_application(document, resource, clusters, world[0], application, run.name)
        return self._say(document, None, application, run)

    def _apply_application(
        self,
        document: Document,
        resource: Resource[SparkPipelineSpec],
        clusters: Mapping[str, KafkaClusterStatus],
        documents: Mapping[str, Document],
        there: Document | None,
        run: str,
    ) -> None:
        """A cluster that is rolled at the moment keeps its addresses, and the pipeline its job."""
        wanted = clusters_of(resource.spec, resource.namespace)
        addresses = {key: clusters[key].bootstrap_servers for key in wanted if key in clusters}
        if not all(addresses.get(key) for key in wanted):
            return
        owner = {"apiVersion": API_VERSION, "kind": "SparkPipeline", "name": resource.name,
                 "uid": document["metadata"]["uid"], "controller": True,
                 "blockOwnerDeletion": True}  # fmt: skip
        job = desired.job_of(resource, addresses, _topology_key(documents, wanted))
        config = desired.config_map(resource, job, owner)
        made = desired.application(resource, config["metadata"]["name"], self._image, owner, run)
        if there is not None and contains(there["spec"], made["spec"]):
            return
        self._apply(ConfigMap.from_dict(config), resource.namespace)
        self._apply(APPLICATION(made), resource.namespace)
        labels: Any = {desired.PIPELINE_LABEL: resource.name}
        for old in self._client.list(ConfigMap, namespace=resource.namespace, labels=labels):
            name = str(old.metadata.name if old.metadata else "")
            if name.startswith(f"{resource.name}-job-") and name != config["metadata"]["name"]:
                self._delete(ConfigMap, name, resource.namespace)  # of jobs that are no more

    def _say(
        self,
        document: Document,
        problem: Reason | None,
        application: Document | None,
        run: Run | None = None,
    ) -> bool:
        before = read_status(document, SparkPipelineStatus)
        generation = int(document["metadata"].get("generation") or 0)
        state = _state(application) if application else ""
        status = SparkPipelineStatus(
            observed_generation=generation,
            application=document["metadata"]["name"] if application else "",
            state=state or ("" if problem else "SUBMITTED"),
            restarts=max(0, _attempts(application) - 1) if application else 0,
            last_schedule_time=(run.name if run else None) or before.last_schedule_time,
            next_schedule_time=run.next if run else "",
        )
        said = self._progress(application) if application else None
        if said is not None:
            status = with_progress(status, said)
        reason = problem or _ready(state, application, said)
        ready = "True" if problem is None and state in ("RUNNING", "COMPLETED") else "False"
        status = msgspec.structs.replace(
            status,
            conditions=conditions(
                [("Ready", ready, reason)], before.conditions, generation, time.time()
            ),
        )
        change = difference(document.get("status") or {}, msgspec.to_builtins(status))
        if not change:
            return False
        self._client.patch(
            SparkPipeline.Status, document["metadata"]["name"], {"status": change},
            namespace=document["metadata"]["namespace"], patch_type=PatchType.MERGE,
            field_manager=MANAGER,
        )  # fmt: skip
        if problem is not None and problem.code != "Scheduled":
            self._events.say(document, problem.code, problem.message, warning=True)
        return True

    def _progress(self, application: Document) -> JobStatus | None:
        pod = self._pod(application)
        text = ((pod.metadata.annotations if pod and pod.metadata else None) or {}).get(PROGRESS)
        if not text:
            return None
        try:
            return msgspec.json.decode(text, type=JobStatus)
        except msgspec.DecodeError:
            return None

    # -- applications ------------------------------------------------------------------------------

    def _run(self, document: Document) -> bool:
        """One step of a SparkApplication that is ours to run."""
        if document["metadata"].get("deletionTimestamp"):
            return False
        metadata = document["metadata"]
        pod = self._pod(document)
        before = _decision(document)
        now = decide(document, _driver(pod), before, time.time())
        if now.state != before.state or now.action:
            log.info("SparkApplication %s: %s %s %s", key_of(document), now.state, now.action,
                     now.message)  # fmt: skip
        self._write(document, now)
        if now.action == "submit":
            for one in native_objects.objects(document, now.submission, now.attempts):
                self._apply(MADE[one["kind"]].from_dict(one), metadata["namespace"])
        elif now.action == "remove driver" and pod is not None:
            self._delete(Pod, native_objects.driver_name(metadata["name"]), metadata["namespace"])
        elif now.action == "remove application":
            self._delete(SparkApplication, metadata["name"], metadata["namespace"])
        if now.state != before.state and (now.state in ENDED or now.state == "FAILING"):
            warning = now.state != "COMPLETED"
            self._events.say(document, f"SparkApplication{now.state.title()}",
                             now.message or now.state, warning=warning)  # fmt: skip
        return now.state != before.state or bool(now.action)

    def _pod(self, application: Document) -> Pod | None:
        metadata = application["metadata"]
        name = native_objects.driver_name(metadata["name"])
        try:
            return self._client.get(Pod, name, namespace=metadata["namespace"])
        except ApiError as error:
            if error.status.code == NOT_FOUND:
                return None
            raise

    def _write(self, document: Document, now: Decision) -> None:
        metadata = document["metadata"]
        status = _application_status(document, now)
        change = difference(document.get("status") or {}, status)
        if change:
            self._client.patch(
                SparkApplication.Status, metadata["name"], {"status": change},
                namespace=metadata["namespace"], patch_type=PatchType.MERGE, field_manager=MANAGER,
            )  # fmt: skip

    def _apply(self, made: Any, namespace: str) -> None:
        apply: Any = self._client.apply
        apply(made, field_manager=MANAGER, force=True, namespace=namespace)

    def _delete(self, kind: Any, name: str, namespace: str) -> None:
        try:
            self._client.delete(kind, name, namespace=namespace)
        except ApiError as error:
            if error.status.code != NOT_FOUND:
                raise


# -- pure parts ------------------------------------------------------------------------------------


def with_progress(status: SparkPipelineStatus, said: JobStatus) -> SparkPipelineStatus:
    main = said.queries.get("main")
    if main is None:
        return status
    return msgspec.structs.replace(
        status,
        lag=[TopicLag(topic=topic, records=n) for topic, n in sorted(main.lag.items())],
        lag_records=sum(main.lag.values()),
        input_rate=main.input_rate,
        process_rate=main.process_rate,
        batch=main.batch,
        batch_ms=main.batch_ms,
        last_batch_time=main.checkpoint,
    )


def _ready(state: str, application: Document | None, said: JobStatus | None) -> Reason:
    if said is not None and said.message:
        where = f"{said.field}: " if said.field else ""
        return Reason("Failed", f"{where}{said.message}")
    known = ((application or {}).get("status") or {}).get("applicationState") or {}
    say = known.get("errorMessage") or SENTENCES.get(state, "")
    return Reason(state.title().replace("_", "") or "Submitted", say)


def _topology_key(documents: Mapping[str, Document], wanted: set[str]) -> str:
    for key in sorted(wanted):
        if key in documents:
            spec = msgspec.convert(documents[key]["spec"], KafkaClusterSpec)
            return spec.racks.topology_key
    return "topology.kubernetes.io/zone"


def _created_s(document: Document) -> float:
    return datetime.fromisoformat(document["metadata"]["creationTimestamp"]).timestamp()


def _at_work(application: Document | None) -> bool:
    return application is not None and _state(application) not in ENDED


def _run_of(application: Document) -> str:
    return str((application["spec"].get("sparkConf") or {}).get(desired.RUN_KEY) or "")


def _last_run(before: SparkPipelineStatus, application: Document | None) -> str:
    """The application knows it first; the status still knows it when the application is gone."""
    return (_run_of(application) if application else "") or before.last_schedule_time


def _is_over(document: Document, before: SparkPipelineStatus, run: Run) -> bool:
    """This run of this spec has ended before."""
    same = before.observed_generation == document["metadata"].get("generation")
    return same and before.state in ENDED and run.name == before.last_schedule_time


def _state(application: Document) -> str:
    return str((application.get("status") or {}).get("applicationState", {}).get("state") or "")


def _attempts(application: Document) -> int:
    return int((application.get("status") or {}).get("executionAttempts") or 0)


def _driver(pod: Pod | None) -> Driver | None:
    if pod is None:
        return None
    phase = (pod.status.phase if pod.status else None) or "Pending"
    message, code = "", None
    for one in (pod.status.containerStatuses if pod.status else None) or ():
        ended = one.state.terminated if one.state else None
        if ended is not None and ended.exitCode:
            code = ended.exitCode
            message = f"driver: {ended.reason or 'Error'}, exit code {ended.exitCode}"
            message += f": {ended.message.strip()}" if ended.message else ""
    deleting = pod.metadata is not None and pod.metadata.deletionTimestamp is not None
    said = message or (pod.status.message if pod.status else "") or ""
    return Driver(phase, said, deleting, code)


def _decision(document: Document) -> Decision:
    status = document.get("status") or {}
    state = status.get("applicationState") or {}
    ended = status.get("terminationTime")
    return Decision(
        str(state.get("state") or ""),
        message=str(state.get("errorMessage") or ""),
        attempts=int(status.get("executionAttempts") or 0),
        submission=str(status.get("submissionID") or ""),
        ended_at_s=datetime.fromisoformat(ended).timestamp() if ended else None,
    )


def _application_status(document: Document, now: Decision) -> dict[str, Any]:
    """As kubeflow's operator writes it, the parts that people and tools read."""
    name, namespace = document["metadata"]["name"], document["metadata"]["namespace"]
    status = dict(document.get("status") or {})
    status["applicationState"] = {"state": now.state}
    if now.message:
        status["applicationState"]["errorMessage"] = now.message
    status["executionAttempts"] = now.attempts
    status["submissionAttempts"] = now.attempts
    status["submissionID"] = now.submission
    service = native_objects.ui_service_name(name)
    status["driverInfo"] = {
        "podName": native_objects.driver_name(name),
        "webUIServiceName": service,
        "webUIPort": native_objects.UI_PORT,
        "webUIAddress": f"{service}.{namespace}.svc:{native_objects.UI_PORT}",
    }
    if now.action == "submit":
        status["lastSubmissionAttemptTime"] = _time(time.time())
    status.pop("terminationTime", None)
    if now.ended_at_s is not None:
        status["terminationTime"] = _time(now.ended_at_s)
    return status


def _time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
