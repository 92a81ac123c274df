"""Reconciles one SparkPipeline: its SparkApplication and ConfigMap, and its status.

The SparkApplication (spark/desired.py) is created when the pipeline's clusters and topics are ready
and, with a schedule, when a run is due (spark/runs.py). The status is written in every pass.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
from lightkube import Client
from lightkube.resources.core_v1 import ConfigMap, PersistentVolumeClaim

from odradek_api.base import API_VERSION, InvalidManifestError, Resource, owner_reference
from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_api.kafka_cluster.status import KafkaClusterStatus
from odradek_api.kafka_user.status import KafkaUserStatus
from odradek_api.parse import parse
from odradek_api.pipeline.job import clusters_of, users_of
from odradek_api.pipeline.outputs import DEAD_LETTER, MAIN
from odradek_api.pipeline.spec import SparkPipelineSpec
from odradek_api.pipeline.status import (
    PROGRESS_ANNOTATION,
    JobStatus,
    QueryProgress,
    SinkStatus,
    SparkPipelineStatus,
    TopicLag,
    of_sinks,
)
from odradek_api.topic import TopicStatus
from odradek_operator.kafka.actions import Reason
from odradek_operator.kafka.status import conditions
from odradek_operator.kubernetes.application_controller import RESOURCES, driver_pod
from odradek_operator.kubernetes.events import Events
from odradek_operator.kubernetes.objects import (
    Document,
    SparkApplication,
    read_status,
    write_status,
)
from odradek_operator.kubernetes.spark_manifests import driver_account
from odradek_operator.kubernetes.writer import ObjectWriter, contains
from odradek_operator.spark import desired
from odradek_operator.spark.modes import Runner
from odradek_operator.spark.plan import ENDED
from odradek_operator.spark.runs import Run, which_run
from odradek_operator.spark.waiting import waits_for

SENTENCES = {
    "": "the SparkApplication was created",
    "SUBMITTED": "the driver is starting",
    "RUNNING": "the driver is running",
    "COMPLETED": "the pipeline has completed",
    "PENDING_RERUN": "the driver will be started again",
    "SUSPENDED": "the pipeline is suspended",
}


@dataclass(frozen=True)
class Surroundings:
    """The dependencies of a pipeline, as observed in this pass; all by "namespace/name"."""

    applications: Mapping[str, Document]
    clusters: Mapping[str, Document]
    topics: Mapping[str, Mapping[str, TopicStatus]]  # cluster → Topic resource → status
    users: Mapping[str, KafkaUserStatus] = field(default_factory=dict)
    runner: Runner = "native"  # of SparkApplications

    def user_secrets(self, pipeline: Resource[SparkPipelineSpec]) -> dict[str, str]:
        """KafkaUser → the name of its Secret, which is in the pipeline's namespace."""
        return {
            name: self.users[key].secret.partition("/")[2]
            for name in users_of(pipeline.spec)
            if (key := f"{pipeline.namespace}/{name}") in self.users
        }

    def cluster_statuses(self) -> dict[str, KafkaClusterStatus]:
        return {key: read_status(one, KafkaClusterStatus) for key, one in self.clusters.items()}

    def topology_key(self, clusters: set[str]) -> str:
        """The node label that is the rack, of the first of these clusters."""
        for key in sorted(clusters & self.clusters.keys()):
            spec = msgspec.convert(self.clusters[key]["spec"], KafkaClusterSpec)
            return spec.racks.topology_key
        return "topology.kubernetes.io/zone"


class PipelineController:
    def __init__(self, client: Client, events: Events, image: str) -> None:
        self._client = client
        self._events = events
        self._image = image

    def reconcile(self, document: Document, around: Surroundings) -> bool:
        """Returns whether anything changed."""
        if document["metadata"].get("deletionTimestamp"):
            return False  # owner references delete its objects with it
        try:
            resource = parse(document)
        except InvalidManifestError as refused:
            problem = "; ".join(f"{p.field}: {p.message}" for p in refused.problems)
            return self._report(document, Reason("InvalidSpec", problem), None)
        assert resource is not None
        if problem := desired.unusable(resource.spec):
            return self._report(document, Reason("InvalidSpec", problem), None)
        clusters = around.cluster_statuses()
        application = around.applications.get(resource.key)
        if around.runner == "kubeflow" and resource.spec.suspend and _is_running(application):
            # That operator cannot suspend one. The next one continues from the checkpoint.
            ObjectWriter(self._client, resource.namespace).delete(SparkApplication, resource.name)
            application = None
        before = read_status(document, SparkPipelineStatus)
        last, running = _last_run(before, application), _is_running(application)
        run = which_run(resource.spec, _created_s(document), last, time.time(), at_work=running)
        if run.name is None:
            waiting = Reason("Scheduled", f"the next run starts at {run.next}")
            return self._report(document, waiting, None, run)
        if application is None and _has_ended(document, before, run):
            return False  # its SparkApplication was deleted after timeToLiveSeconds
        new = application is None or run.name != _run_of(application)
        if new and (pending := waits_for(resource, clusters, around.topics, around.users)):
            not_started = Run(last or None, run.next)
            return self._report(document, Reason("Waiting", pending), application, not_started)
        self._apply_application(document, resource, around, application, run.name)
        return self._report(document, None, application, run)

    def _apply_application(
        self,
        document: Document,
        resource: Resource[SparkPipelineSpec],
        around: Surroundings,
        found: Document | None,
        run: str,
    ) -> None:
        """A rolling restart does not change a cluster's addresses, so the job stays the same."""
        wanted, clusters = clusters_of(resource.spec, resource.namespace), around.cluster_statuses()
        addresses = {key: clusters[key].bootstrap_servers for key in wanted if key in clusters}
        if not all(addresses.get(key) for key in wanted):
            return
        uid = document["metadata"]["uid"]
        owner = owner_reference(API_VERSION, "SparkPipeline", resource.name, uid)
        job = desired.job_of(resource, addresses, around.topology_key(wanted))
        config = desired.config_map(resource, job, owner)
        config_name = config["metadata"]["name"]
        secrets = around.user_secrets(resource)
        made = desired.application(resource, config_name, self._image, owner, run, secrets)
        if around.runner == "kubeflow":
            made = desired.for_kubeflow(made)
        if found is not None and contains(found["spec"], made["spec"]):
            return
        writer = ObjectWriter(self._client, resource.namespace)
        if found is None and (claim := desired.own_claim(resource, owner)) is not None:
            writer.create(PersistentVolumeClaim.from_dict(claim))
        writer.apply_always(ConfigMap.from_dict(config))
        if around.runner == "kubeflow" and resource.spec.kubernetes.service_account is None:
            for one in driver_account(document):
                writer.apply_always(RESOURCES[one["kind"]].from_dict(one))
        # lightkube accepts a document here; its types do not say so.
        application: Any = SparkApplication
        writer.apply_always(application(made))
        labels: Any = {desired.PIPELINE_LABEL: resource.name}
        for old in self._client.list(ConfigMap, namespace=resource.namespace, labels=labels):
            name = str(old.metadata.name if old.metadata else "")
            if name.startswith(f"{resource.name}-job-") and name != config_name:
                writer.delete(ConfigMap, name)  # of an earlier job

    def _report(
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
        job = self._job_status(application) if application else None
        if job is not None:
            status = with_progress(status, job)
        failure = _failure(before) if before.observed_generation == generation else None
        reason = problem or _ready(state, application, job, failure)
        ready = "True" if problem is None and state in ("RUNNING", "COMPLETED") else "False"
        status = msgspec.structs.replace(
            status,
            conditions=conditions(
                [("Ready", ready, reason)], before.conditions, generation, time.time()
            ),
        )
        if write_status(self._client, document, status) is None:
            return False
        if problem is not None and problem.code != "Scheduled":
            self._events.record(document, problem.code, problem.message, warning=True)
        return True

    def _job_status(self, application: Document) -> JobStatus | None:
        """The driver's last report, in an annotation of its pod."""
        pod = driver_pod(self._client, application)
        annotations = (pod.metadata.annotations if pod and pod.metadata else None) or {}
        try:
            return msgspec.json.decode(annotations.get(PROGRESS_ANNOTATION, ""), type=JobStatus)
        except msgspec.DecodeError:
            return None


def with_progress(status: SparkPipelineStatus, job: JobStatus) -> SparkPipelineStatus:
    if job.flows:
        return with_flows(status, job)
    main, dead = of_sinks(job.queries), job.queries.get(DEAD_LETTER)
    if main is None:
        return status
    return msgspec.structs.replace(
        status,
        lag=[TopicLag(topic=topic, records=n) for topic, n in sorted(main.lag.items())],
        lag_records=sum(main.lag.values()),
        input_rate=main.input_rate,
        process_rate=main.process_rate,
        rows_in=main.rows,
        rows_out=main.rows_out,
        dead_letters=max(0, dead.rows_out) if dead is not None else 0,
        late_rows=main.late_rows,
        state_rows=main.state_rows,
        state_bytes=main.state_bytes,
        watermark=main.watermark,
        batch=main.batch,
        batch_ms=main.batch_ms,
        batch_limit=main.batch_limit,
        last_batch_time=main.checkpoint,
        sinks=_sinks(job) if job.queries.keys() - {MAIN, DEAD_LETTER} else [],
    )


def _sinks(job: JobStatus) -> list[SinkStatus]:
    return [
        SinkStatus(
            name=name,
            rows_out=one.rows_out,
            lag_records=sum(one.lag.values()),
            batch=one.batch,
            batch_ms=one.batch_ms,
            watermark=one.watermark,
        )
        for name, one in sorted(job.queries.items())
        if name != DEAD_LETTER
    ]


def with_flows(status: SparkPipelineStatus, job: JobStatus) -> SparkPipelineStatus:
    """Of a project of Spark's declarative pipelines: each flow, and sums over all."""
    known = [job.queries.get(flow.name, QueryProgress()) for flow in job.flows]
    lag: Counter[str] = Counter()
    for progress in known:
        lag.update(progress.lag)
    return msgspec.structs.replace(
        status,
        flows=job.flows,
        lag=[TopicLag(topic=topic, records=n) for topic, n in sorted(lag.items())],
        lag_records=sum(lag.values()),
        rows_in=sum(progress.rows for progress in known),
        input_rate=sum(progress.input_rate for progress in known),
        process_rate=sum(progress.process_rate for progress in known),
        last_batch_time=max((progress.checkpoint for progress in known), default=""),
    )


def _failure(before: SparkPipelineStatus) -> Reason | None:
    """The reported failure of an earlier driver."""
    found = [one for one in before.conditions if one.reason == "Failed"]
    return Reason("Failed", found[0].message) if found else None


def _ready(
    state: str, application: Document | None, job: JobStatus | None, failure: Reason | None
) -> Reason:
    """While a driver is started again the condition keeps the failure of the last one."""
    if job is not None and job.message:
        where = f"{job.field}: " if job.field else ""
        return Reason("Failed", f"{where}{job.message}")
    if failure is not None and state in ("PENDING_RERUN", "SUBMITTED"):
        return failure
    known = ((application or {}).get("status") or {}).get("applicationState") or {}
    message = known.get("errorMessage") or SENTENCES.get(state, "")
    return Reason(state.title().replace("_", "") or "Submitted", message)


def _created_s(document: Document) -> float:
    return datetime.fromisoformat(document["metadata"]["creationTimestamp"]).timestamp()


def _is_running(application: Document | None) -> bool:
    return application is not None and _state(application) not in ENDED


def _run_of(application: Document) -> str:
    return str((application["spec"].get("sparkConf") or {}).get(desired.RUN_KEY) or "")


def _last_run(before: SparkPipelineStatus, application: Document | None) -> str:
    """From the application, or from the status if the application has been deleted."""
    return (_run_of(application) if application else "") or before.last_schedule_time


def _has_ended(document: Document, before: SparkPipelineStatus, run: Run) -> bool:
    """Whether this run of this spec has ended already."""
    same = before.observed_generation == document["metadata"].get("generation")
    return same and before.state in ENDED and run.name == before.last_schedule_time


def _state(application: Document) -> str:
    return str((application.get("status") or {}).get("applicationState", {}).get("state") or "")


def _attempts(application: Document) -> int:
    return int((application.get("status") or {}).get("executionAttempts") or 0)
