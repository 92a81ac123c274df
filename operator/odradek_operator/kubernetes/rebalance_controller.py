"""The KafkaRebalances of one cluster on Kubernetes, as a part of the cluster's pass.

The whole proposal is a ConfigMap of its KafkaRebalance, compressed; it is deleted with it. Before
the first move begins, the finalizer and the phase Moving are written: so whoever deletes the
resource, and whenever the operator is killed, moves are stopped and the throttle is removed.
"""

from __future__ import annotations

import base64
import gzip
import logging
from typing import Any

import msgspec
from lightkube import Client
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.resources.core_v1 import ConfigMap

from odradek_api.base import API_VERSION
from odradek_operator.kafka.actions import Plan, Rebalancing
from odradek_operator.kafka.balance.document import Proposal, from_json, to_json
from odradek_operator.kafka.explain import explain
from odradek_operator.kafka.rebalance_states import ACTIVE
from odradek_operator.kubernetes import names
from odradek_operator.kubernetes.events import Events
from odradek_operator.kubernetes.objects import (
    REBALANCE_FINALIZER,
    Document,
    get,
    set_finalizer,
    write_status,
)
from odradek_operator.kubernetes.rebalance_book import RebalanceBook, RebalanceObject
from odradek_operator.reconcile.rebalances import (
    Item,
    RebalanceKeeper,
    announcements,
)

FILE = "proposal.json.gz"
NAME_MAX = 253

log = logging.getLogger(__name__)


def document_name(name: str) -> str:
    return f"{name[: NAME_MAX - 9]}-proposal"


class ConfigMapDocuments:
    """The port `Documents` of reconcile/rebalances.py."""

    def __init__(self, client: Client, book: RebalanceBook) -> None:
        self._client = client
        self._book = book

    def read(self, key: str) -> Proposal | None:
        namespace, _, name = key.partition("/")
        # The operator's Role may list ConfigMaps, not get one by its name.
        fields: dict[str, Any] = {"metadata.name": document_name(name)}
        for found in self._client.list(ConfigMap, namespace=namespace, fields=fields):
            packed = (found.binaryData or {}).get(FILE)
            try:
                if packed:
                    return from_json(gzip.decompress(base64.b64decode(packed)).decode())
            except (ValueError, OSError, EOFError):
                return None
        return None

    def write(self, key: str, proposal: Proposal) -> str:
        namespace, _, name = key.partition("/")
        own = self._book.get(key)
        uid = str(own.document["metadata"].get("uid")) if own else ""
        packed = gzip.compress(to_json(proposal).encode(), mtime=0)
        owner = OwnerReference(API_VERSION, "KafkaRebalance", name, uid)
        made = ConfigMap(
            apiVersion="v1",
            kind="ConfigMap",
            metadata=ObjectMeta(
                name=document_name(name), namespace=namespace, ownerReferences=[owner]
            ),
            binaryData={FILE: base64.b64encode(packed).decode()},
        )
        self._client.apply(made, field_manager=names.FIELD_MANAGER, force=True)
        return document_name(name)

    def remove(self, key: str) -> None:
        """It is deleted with its owner."""


class RebalanceController:
    def __init__(self, client: Client, book: RebalanceBook, events: Events) -> None:
        self._client = client
        self._book = book
        self._events = events
        self.keeper = RebalanceKeeper(ConfigMapDocuments(client, book))

    def begin(self, cluster: str) -> None:
        self.keeper.begin(Item(one.wanted, one.status) for one in self._book.of(cluster))

    def persist(self) -> None:
        """Documents, finalizers, then statuses; before anything is done because of them."""
        said = announcements(self.keeper.assessed)
        for one in self.keeper.assessed:
            own = self._book.get(one.key)
            if own is None:
                continue
            status = one.status
            if one.document is not None:
                name = self.keeper.documents.write(one.key, one.document)
                status = msgspec.structs.replace(status, document=name)
            if not own.deleting:
                held = status.phase in ACTIVE
                self._put(set_finalizer(self._client, own.document, held=held,
                                        name=REBALANCE_FINALIZER))  # fmt: skip
            self._put(write_status(self._client, self._now(own).document, status))
            if one.key in said:
                reason, message, warning = said[one.key]
                log.info("KafkaRebalance %s: %s: %s", one.key, reason, message)
                self._events.record(own.document, reason, message, warning=warning)
            if one.gone and own.held:
                self._release(own)

    def announce(self, plan: Plan) -> None:
        """An Event for each action of a rebalance, on the rebalance."""
        for action in plan:
            own = self._book.get(action.subject) if isinstance(action, Rebalancing) else None
            if own is not None:
                self._events.record(own.document, action.reason.code, explain(action))

    def without_cluster(self, cluster: str) -> bool:
        """The cluster does not exist: nothing moves any more."""
        found = self._book.of(cluster)
        for own in found:
            if own.deleting and own.held:
                self._release(own)
        return bool(found)

    def refresh(self, key: str) -> None:
        """After a conflict: reads the resource again."""
        now = get(self._client, "KafkaRebalance", key)
        self._book.forget(key)
        self._put(now)

    @property
    def resting(self) -> bool:
        return all(one.resting for one in self.keeper.assessed)

    def lines(self) -> list[str]:
        return [line for one in self.keeper.assessed for line in one.lines]

    def _release(self, own: RebalanceObject) -> None:
        document = self._now(own).document
        found = set_finalizer(self._client, document, held=False, name=REBALANCE_FINALIZER)
        self._put(found)
        if found is not None and not found["metadata"].get("finalizers"):
            self._book.forget(own.key)

    def _now(self, own: RebalanceObject) -> RebalanceObject:
        """With the version of our own last write."""
        return self._book.get(own.key) or own

    def _put(self, document: Document | None) -> None:
        if document is not None:
            self._book.put(document)
