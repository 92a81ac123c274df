"""Leader election: only the holder of a Lease works, as Kubernetes' own controllers do it.

    lease = Lease(client, "odradek-system", "odradek-operator", identity)
    while not lease.acquire(): wait RENEW_S
    every RENEW_S: lease.acquire()       # False: another replica holds it; exit at once

The holder renews every 2 s; a replica that sees no renewal for 15 s takes over. Each replica
measures on its own clock, from the moment it observed the last change of the Lease. A holder that
could not renew for 10 s exits, before another replica may start.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

import httpx2
from lightkube import Client
from lightkube.core.exceptions import ApiError
from lightkube.models.coordination_v1 import LeaseSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.coordination_v1 import Lease as LeaseObject

DURATION_S, DEADLINE_S, RENEW_S = 15, 10.0, 2.0
NOT_FOUND, CONFLICT = 404, 409


class Lease:
    def __init__(self, client: Client, namespace: str, name: str, identity: str) -> None:
        self._client = client
        self._namespace, self._name, self.identity = namespace, name, identity
        self._seen: tuple[str, float] = ("", 0.0)  # its version, and when it was observed first
        self._renewed = 0.0

    @property
    def lost(self) -> bool:
        return time.monotonic() - self._renewed > DEADLINE_S

    def acquire(self) -> bool:
        """Takes or renews it. False: another replica holds it, or renewing failed for too long."""
        try:
            asked = time.monotonic()
            held = self._try()
        except (ApiError, httpx2.HTTPError):
            return not self.lost  # still held until the deadline
        if held:
            self._renewed = asked
        else:
            self._renewed = 0.0
        return held

    def release(self) -> None:
        """Releases the Lease so that a standby takes over at once."""
        try:
            found = self._client.get(LeaseObject, self._name, namespace=self._namespace)
            if found.spec is not None and found.spec.holderIdentity == self.identity:
                found.spec.holderIdentity = ""
                found.spec.leaseDurationSeconds = 1
                self._client.replace(found)
        except (ApiError, httpx2.HTTPError):
            pass  # it expires
        self._renewed = 0.0

    def _try(self) -> bool:
        try:
            found = self._client.get(LeaseObject, self._name, namespace=self._namespace)
        except ApiError as error:
            if error.status.code != NOT_FOUND:
                raise
            return self._create()
        spec = found.spec or LeaseSpec()
        version = (found.metadata.resourceVersion if found.metadata else None) or ""
        if version != self._seen[0]:
            self._seen = version, time.monotonic()
        if spec.holderIdentity and spec.holderIdentity != self.identity:
            patience = spec.leaseDurationSeconds or DURATION_S
            if time.monotonic() - self._seen[1] < patience:
                return False
        now = datetime.now(UTC)
        if spec.holderIdentity != self.identity:
            spec.acquireTime = now
            spec.leaseTransitions = (spec.leaseTransitions or 0) + 1
        spec.holderIdentity, spec.renewTime = self.identity, now
        spec.leaseDurationSeconds = DURATION_S
        found.spec = spec
        try:
            self._client.replace(found)
        except ApiError as error:
            if error.status.code == CONFLICT:
                return False  # another replica was faster
            raise
        return True

    def _create(self) -> bool:
        now = datetime.now(UTC)
        spec = LeaseSpec(
            holderIdentity=self.identity,
            leaseDurationSeconds=DURATION_S,
            acquireTime=now,
            renewTime=now,
            leaseTransitions=0,
        )
        made = LeaseObject(
            metadata=ObjectMeta(name=self._name, namespace=self._namespace), spec=spec
        )
        try:
            self._client.create(made, namespace=self._namespace)
        except ApiError as error:
            if error.status.code == CONFLICT:
                return False
            raise
        return True
