"""Reconciles one SparkApplication where no other Spark operator does: its driver pod and status.

spark/plan.py decides the next state and action, spark_manifests.py renders the objects. The status
is written before the action, so that a restarted operator knows what it was about to do.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime
from typing import Any

from lightkube import Client
from lightkube.core.exceptions import ApiError
from lightkube.resources.core_v1 import ConfigMap, Pod, Service, ServiceAccount
from lightkube.resources.rbac_authorization_v1 import Role, RoleBinding

from odradek_api.base import instant
from odradek_operator.kubernetes import spark_manifests
from odradek_operator.kubernetes.events import Events
from odradek_operator.kubernetes.objects import (
    NOT_FOUND,
    Document,
    SparkApplication,
    key_of,
    write_status,
)
from odradek_operator.kubernetes.writer import ObjectWriter
from odradek_operator.spark.plan import ENDED, Decision, Driver, decide

RESOURCES: dict[str, Any] = {
    "ServiceAccount": ServiceAccount, "Role": Role, "RoleBinding": RoleBinding,
    "Service": Service, "Pod": Pod, "ConfigMap": ConfigMap,
}  # fmt: skip

log = logging.getLogger(__name__)


class ApplicationController:
    def __init__(self, client: Client, events: Events) -> None:
        self._client = client
        self._events = events

    def reconcile(self, document: Document) -> bool:
        """At most one state transition; returns whether anything changed."""
        metadata = document["metadata"]
        if metadata.get("deletionTimestamp"):
            return False
        pod = driver_pod(self._client, document)
        before = _last_decision(document)
        now = decide(document, _driver(pod), before, time.time())
        if now.state != before.state or now.action:
            log.info("SparkApplication %s: %s %s %s", key_of(document), now.state, now.action,
                     now.message)  # fmt: skip
        write_status(self._client, document, _status(document, now))
        writer = ObjectWriter(self._client, metadata["namespace"])
        if now.action == "submit":
            for one in spark_manifests.objects(document, now.submission, now.attempts):
                writer.apply_always(RESOURCES[one["kind"]].from_dict(one))
        elif now.action == "remove driver" and pod is not None:
            writer.delete(Pod, spark_manifests.driver_name(metadata["name"]))
        elif now.action == "remove application":
            writer.delete(SparkApplication, metadata["name"])
        if now.state != before.state and (now.state in ENDED or now.state == "FAILING"):
            self._events.record(
                document,
                f"SparkApplication{now.state.title()}",
                now.message or now.state,
                warning=now.state != "COMPLETED",
            )
        return now.state != before.state or bool(now.action)


def driver_pod(client: Client, application: Document) -> Pod | None:
    metadata = application["metadata"]
    name = spark_manifests.driver_name(metadata["name"])
    try:
        return client.get(Pod, name, namespace=metadata["namespace"])
    except ApiError as error:
        if error.status.code == NOT_FOUND:
            return None
        raise


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
    message = message or (pod.status.message if pod.status else "") or ""
    return Driver(phase, message, deleting, code)


def _last_decision(document: Document) -> Decision:
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


def _status(document: Document, now: Decision) -> dict[str, Any]:
    """The fields of kubeflow's status that people and tools read."""
    name, namespace = document["metadata"]["name"], document["metadata"]["namespace"]
    status = dict(document.get("status") or {})
    status["applicationState"] = {"state": now.state}
    if now.message:
        status["applicationState"]["errorMessage"] = now.message
    status["executionAttempts"] = now.attempts
    status["submissionAttempts"] = now.attempts
    status["submissionID"] = now.submission
    service = spark_manifests.ui_service_name(name)
    status["driverInfo"] = {
        "podName": spark_manifests.driver_name(name),
        "webUIServiceName": service,
        "webUIPort": spark_manifests.UI_PORT,
        "webUIAddress": f"{service}.{namespace}.svc:{spark_manifests.UI_PORT}",
    }
    if now.action == "submit":
        status["lastSubmissionAttemptTime"] = instant(time.time())
    status.pop("terminationTime", None)
    if now.ended_at_s is not None:
        status["terminationTime"] = instant(now.ended_at_s)
    return status
