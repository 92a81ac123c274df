"""One pass over all SparkPipelines and SparkApplications.

    worker = SparkWorker(client, topics, users, namespaces, image, mode="auto")
    worker.one_pass()                        # returns the seconds until the next

PipelineController turns pipelines into SparkApplications. ApplicationController runs them, also
those that users wrote, unless kubeflow's Spark operator does (spark/modes.py). Level-based.
Resources are listed in every pass, not watched: they change rarely, and Spark takes longer to start
than the interval between passes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from lightkube import Client
from lightkube.core.exceptions import ApiError

from odradek_api.pipeline.status import SparkPipelineStatus
from odradek_api.topic import TopicStatus
from odradek_operator.kubernetes.application_controller import ApplicationController
from odradek_operator.kubernetes.events import Events
from odradek_operator.kubernetes.objects import (
    NOT_FOUND,
    ChangedMeanwhileError,
    Document,
    KafkaCluster,
    SparkApplication,
    SparkPipeline,
    key_of,
    plain,
    read_status,
    served,
)
from odradek_operator.kubernetes.pipeline_controller import PipelineController, Surroundings
from odradek_operator.kubernetes.topic_book import TopicBook
from odradek_operator.kubernetes.user_book import UserBook
from odradek_operator.spark.modes import GROUP_VERSION, Mode, Runner, runner

BUSY_S, IDLE_S, ABSENT_S = 2.0, 5.0, 60.0  # until the next pass; ABSENT_S: CRDs not installed

log = logging.getLogger(__name__)


class SparkWorker:
    def __init__(
        self,
        client: Client,
        topics: TopicBook,
        users: UserBook,
        namespaces: Sequence[str],
        image: str,
        *,
        mode: Mode,
    ) -> None:
        """`topics`, `users`: kept up to date by the operator's watch."""
        self._client = client
        self._topics, self._users = topics, users
        self._namespaces = tuple(namespaces) or ("*",)
        self._mode = mode
        self._runner: Runner = ""
        self._look_at = 0.0  # when to ask again which kinds the API server serves
        self._events = Events(client)
        self._pipelines = PipelineController(client, self._events, image)
        self._applications = ApplicationController(client, self._events)
        self.statuses: dict[str, SparkPipelineStatus] = {}  # as the last pass found them

    def one_pass(self) -> float:
        """Returns the seconds until the next pass."""
        self._events.next_pass()
        if time.monotonic() >= self._look_at:
            self._look_around()
        if not self._runner:
            return ABSENT_S
        pipelines, applications = self._list(SparkPipeline), self._list(SparkApplication)
        if pipelines is None or applications is None:
            self._look_at, self.statuses = 0.0, {}
            return ABSENT_S
        self.statuses = {key_of(one): read_status(one, SparkPipelineStatus) for one in pipelines}
        busy = False
        if self._runner == "native":
            for document in applications:
                busy |= self._try(document, self._applications.reconcile)
            if busy:
                applications = self._list(SparkApplication) or []
        if pipelines:
            around = Surroundings(
                {key_of(one): one for one in applications},
                {key_of(one): one for one in self._list(KafkaCluster) or []},
                self._topic_statuses(),
                {
                    user.key: user.status
                    for cluster in self._users.clusters()
                    for user in self._users.of(cluster)
                },
                self._runner,
            )
            for document in pipelines:
                busy |= self._try(document, lambda one: self._pipelines.reconcile(one, around))
        return BUSY_S if busy else IDLE_S

    def _look_around(self) -> None:
        """Operators are installed rarely, so this is not asked in every pass."""
        found = runner(self._mode, served(self._client, GROUP_VERSION))
        if found != self._runner:
            log.info("SparkApplications are run by: %s", found or "nobody, the CRD is missing")
        self._runner = found
        self._look_at = time.monotonic() + (ABSENT_S if found else 0.0)

    def _try(self, document: Document, reconcile: Callable[[Document], bool]) -> bool:
        """A resource that fails does not keep the others from being reconciled."""
        try:
            return reconcile(document)
        except ChangedMeanwhileError:
            return True
        except ApiError as error:
            log.warning("%s: API request failed: %s", key_of(document), error)
            self._events.record(document, "Refused", str(error), warning=True)
            return False

    def _list(self, kind: Any) -> list[dict[str, Any]] | None:
        """None if the CRD is not installed."""
        try:
            found = (self._client.list(kind, namespace=name) for name in self._namespaces)
            return [plain(one) for listed in found for one in listed]
        except ApiError as error:
            if error.status.code == NOT_FOUND:
                return None
            raise

    def _topic_statuses(self) -> dict[str, dict[str, TopicStatus]]:
        """Cluster → Topic resource → status, with the topic's name in Kafka."""
        found: dict[str, dict[str, TopicStatus]] = {}
        for cluster in self._topics.clusters():
            for topic in self._topics.of(cluster):
                status, resource = topic.status, topic.resource
                if resource is not None:
                    name = resource.spec.name or resource.name
                    status = msgspec.structs.replace(status, topic_name=name)
                found.setdefault(cluster, {})[topic.key] = status
        return found
