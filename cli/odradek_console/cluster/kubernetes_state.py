"""A KafkaCluster on Kubernetes and what belongs to it, from the status of its resources.

    found = KubernetesState("kafka", "main").read()     # None: there is no such KafkaCluster

Reads KafkaClusters, Topics, KafkaRebalances and SparkPipelines of one namespace, with the
kubeconfig or the pod's service account, and nothing else: no Secrets, no pods. Topics and pipelines
of other namespaces are not shown. `steer` patches one field, if the account may.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import httpx2
from lightkube import Client
from lightkube.core.exceptions import ApiError, ConfigError, LoadResourceError
from lightkube.models.authorization_v1 import ResourceAttributes, SelfSubjectAccessReviewSpec
from lightkube.resources.authorization_v1 import SelfSubjectAccessReview
from lightkube.types import PatchType

from odradek_api.base import GROUP, RESTART_ANNOTATION, InvalidManifestError, Resource, instant
from odradek_api.kafka_cluster.status import KafkaClusterStatus
from odradek_api.kafka_rebalance.status import KafkaRebalanceStatus
from odradek_api.parse import parse
from odradek_api.pipeline.job import clusters_of
from odradek_api.pipeline.status import SparkPipelineStatus
from odradek_api.topic import TopicStatus
from odradek_console.cluster.cache import Cache
from odradek_console.cluster.runtime_state import (
    CLUSTER,
    PIPELINE,
    ClusterPlan,
    PipelineState,
    PlanError,
    RuntimeState,
    SteerError,
    SteeringAction,
    UnreadableStateError,
    remaining_steps,
)
from odradek_operator.kubernetes.objects import RESOURCES, get, key_of, plain, read_status

RIGHTS_AGE_S = 60.0
FIELD_MANAGER = "odradek-console"
AGE_S = 2.0  # for all sessions together: ten open pages ask as often as one
TIMEOUT_S = 10.0
NOT_FOUND = 404

Document = Mapping[str, Any]


class KubernetesState:
    """Safe for threads."""

    def __init__(self, namespace: str, name: str) -> None:
        """Raises UnreadableStateError if there is neither a kubeconfig nor a service account."""
        self._namespace, self._key = namespace, f"{namespace}/{name}"
        self._cache = Cache()
        try:
            self._client = Client(timeout=httpx2.Timeout(TIMEOUT_S))
        except (ConfigError, LoadResourceError, OSError) as error:
            raise UnreadableStateError(f"Kubernetes: {error}") from None

    @property
    def title(self) -> str:
        return f"KafkaCluster {self._key} on Kubernetes"

    @property
    def how_to_start(self) -> str:
        return f"There is no KafkaCluster {self._key}. Create it, or give another --kubernetes."

    @property
    def plans_manifests(self) -> bool:
        return False

    def plan(self, manifests: str) -> RuntimeState:  # noqa: ARG002
        raise PlanError("use: odradek plan --kubernetes -f FILE")

    def may_steer(self) -> frozenset[str]:
        """As the API server says about this account."""
        return self._cache.get("rights", RIGHTS_AGE_S, self._rights)

    def _rights(self) -> frozenset[str]:
        name = self._key.partition("/")[2]
        asked = {CLUSTER: ("kafkaclusters", name), PIPELINE: ("sparkpipelines", "")}
        try:
            return frozenset(kind for kind, (plural, one) in asked.items()
                             if self._may_patch(plural, one))  # fmt: skip
        except (ApiError, httpx2.HTTPError):
            return frozenset()

    def _may_patch(self, plural: str, name: str) -> bool:
        attributes = ResourceAttributes(
            group=GROUP, resource=plural, verb="patch", namespace=self._namespace, name=name
        )
        review = SelfSubjectAccessReview(
            spec=SelfSubjectAccessReviewSpec(resourceAttributes=attributes)
        )
        answer = self._client.create(review)
        return answer.status is not None and answer.status.allowed

    def steer(self, action: SteeringAction, key: str) -> None:
        kind = CLUSTER if action in (SteeringAction.PAUSE, SteeringAction.RESUME) else PIPELINE
        namespace, _, name = key.partition("/")
        change: dict[str, Any] = {"spec": {"suspend": action is SteeringAction.STOP}}
        if kind == CLUSTER:
            change = {"spec": {"pause": action is SteeringAction.PAUSE}}
        elif action is SteeringAction.RESTART:
            change["metadata"] = {"annotations": {RESTART_ANNOTATION: instant(time.time())}}
        try:
            self._client.patch(
                RESOURCES[kind], name, change, namespace=namespace, patch_type=PatchType.MERGE,
                field_manager=FIELD_MANAGER,
            )  # fmt: skip
        except ApiError as error:
            raise SteerError(f"Kubernetes refused: {error}") from None
        except httpx2.HTTPError as error:
            raise SteerError(f"Kubernetes does not answer: {error}") from None
        self._cache.forget()

    def read(self) -> RuntimeState | None:
        return self._cache.get("state", AGE_S, self._read)

    def _read(self) -> RuntimeState | None:
        try:
            document = get(self._client, "KafkaCluster", self._key)
            if document is None:
                return None
            topics, rebalances = self._list("Topic"), self._list("KafkaRebalance")
            pipelines = self._list("SparkPipeline")
        except ApiError as error:
            raise UnreadableStateError(f"Kubernetes refused: {error}") from None
        except httpx2.HTTPError as error:
            raise UnreadableStateError(f"Kubernetes does not answer: {error}") from None
        plan = _cluster(
            document,
            {key_of(one): read_status(one, TopicStatus) for one in topics if self._is_of(one)},
            {
                key_of(one): read_status(one, KafkaRebalanceStatus)
                for one in rebalances
                if self._is_of(one)
            },
        )
        found = [_pipeline(one) for one in pipelines if self._uses(one)]
        return RuntimeState([plan], [one for one in found if one is not None])

    def _list(self, kind: str) -> list[dict[str, Any]]:
        """Sorted by name; [] where its CRD is not installed."""
        try:
            found = [
                plain(one) for one in self._client.list(RESOURCES[kind], namespace=self._namespace)
            ]
        except ApiError as error:
            if error.status.code == NOT_FOUND:
                return []
            raise
        return sorted(found, key=key_of)

    def _is_of(self, document: Document) -> bool:
        reference = (document.get("spec") or {}).get("cluster") or {}
        namespace = reference.get("namespace") or document["metadata"]["namespace"]
        return f"{namespace}/{reference.get('name')}" == self._key

    def _uses(self, document: Document) -> bool:
        resource = _parsed(document)
        if resource is None:
            return self._is_of(document)
        return self._key in clusters_of(resource.spec, resource.namespace)


def _parsed(document: Document) -> Resource[Any] | None:
    """None for a spec that another version of the CRD allows."""
    try:
        return parse(document)
    except InvalidManifestError:
        return None


def _cluster(
    document: Document,
    topics: Mapping[str, TopicStatus],
    rebalances: Mapping[str, KafkaRebalanceStatus],
) -> ClusterPlan:
    status = read_status(document, KafkaClusterStatus)
    return ClusterPlan(
        key_of(document),
        status,
        remaining_steps(status),
        topics=topics,
        rebalances=rebalances,
        unseen=_unseen(document, status.observed_generation),
    )


def _unseen(document: Document, observed: int) -> str:
    generation = int(document["metadata"].get("generation") or 0)
    if document["metadata"].get("deletionTimestamp"):
        return "The KafkaCluster is being deleted."
    if observed == 0:
        return "The operator has not reported anything yet. Does it run, and watch this namespace?"
    if observed < generation:
        return (
            f"The operator has not seen the last change yet: the spec has generation {generation}, "
            f"the status is of {observed}. Does the operator run?"
        )
    return ""


def _pipeline(document: Document) -> PipelineState | None:
    resource, status = _parsed(document), read_status(document, SparkPipelineStatus)
    ready = next((one for one in status.conditions if one.type == "Ready"), None)
    message = ready.message if ready is not None and ready.status != "True" else ""
    state = status.state.capitalize().replace("_", " ")
    return PipelineState(
        key_of(document),
        state or (ready.reason if ready is not None else "Not started"),
        resource.spec if resource is not None else None,
        message=message,
        restarts=status.restarts,
        batch=status.batch,
        input_rate=status.input_rate,
        process_rate=status.process_rate,
        batch_ms=status.batch_ms,
        lag={one.topic: one.records for one in status.lag},
        rows_in=status.rows_in,
        rows_out=status.rows_out,
        dead_letters=status.dead_letters,
        late_rows=status.late_rows,
        state_rows=status.state_rows,
        state_bytes=status.state_bytes,
        watermark=status.watermark,
        checkpoint=status.last_batch_time,
    )
