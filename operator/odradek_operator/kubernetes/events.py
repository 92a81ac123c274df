"""Kubernetes Events: each action on a resource and its reason, as `kubectl describe` shows it.

An Event that is recorded in consecutive passes is written once: a refusal is one Event, not one
per second.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import httpx2
from lightkube import Client
from lightkube.core.exceptions import ApiError
from lightkube.models.core_v1 import EventSource, ObjectReference
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Event

from odradek_api.base import API_VERSION
from odradek_operator.kubernetes.names import FIELD_MANAGER
from odradek_operator.kubernetes.objects import Document

MESSAGE_MAX = 1000  # characters; the API server accepts about 1024 bytes

log = logging.getLogger(__name__)


class Events:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._before: set[tuple[str, str, str]] = set()
        self._now: set[tuple[str, str, str]] = set()

    def next_pass(self) -> None:
        self._before, self._now = self._now, set()

    def record(self, about: Document, reason: str, message: str, *, warning: bool = False) -> None:
        metadata = about["metadata"]
        event_key = (str(metadata.get("uid")), reason, message)
        self._now.add(event_key)
        if event_key in self._before:
            return
        when = datetime.now(UTC)
        event = Event(
            metadata=ObjectMeta(
                generateName=f"{metadata['name'][:40]}-", namespace=metadata["namespace"]
            ),
            involvedObject=ObjectReference(
                apiVersion=API_VERSION,
                kind=about["kind"],
                name=metadata["name"],
                namespace=metadata["namespace"],
                uid=metadata.get("uid"),
                resourceVersion=metadata.get("resourceVersion"),
            ),
            type="Warning" if warning else "Normal",
            reason=reason,
            message=message[:MESSAGE_MAX],
            source=EventSource(component=FIELD_MANAGER),
            reportingComponent=FIELD_MANAGER,
            reportingInstance=FIELD_MANAGER,
            firstTimestamp=when,
            lastTimestamp=when,
            count=1,
        )
        try:
            self._client.create(event, namespace=metadata["namespace"])
        except (ApiError, httpx2.HTTPError) as error:
            # Dropped: Events are best effort. A terminating namespace accepts none, for example.
            log.debug("Event %s of %s was not written: %s", reason, metadata["name"], error)
