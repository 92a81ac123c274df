"""A cache of all resources of one kind by their cluster, kept up to date by the watch.

So thousands of Topics are not read again in every pass. A version is never replaced by an older
one: the operator puts its own writes in at once, and the watch delivers them again later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from odradek_api.base import ClusterRef
from odradek_operator.kubernetes.objects import Document, key_of


@dataclass(frozen=True)
class OfCluster:
    """A resource that belongs to a KafkaCluster."""

    key: str
    cluster: str
    version: int
    document: Document

    @property
    def deleting(self) -> bool:
        return bool(self.document["metadata"].get("deletionTimestamp"))

    @property
    def generation(self) -> int:
        return int(self.document["metadata"].get("generation") or 0)


Item = TypeVar("Item", bound=OfCluster)


class Book(Generic[Item]):
    def __init__(self, make: Callable[[Document], Item]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._items: dict[str, Item] = {}
        self._by_cluster: dict[str, dict[str, Item]] = {}

    def put(self, document: Document) -> str:
        """Returns the key of its cluster."""
        found = self._make(document)
        with self._lock:
            known = self._items.get(found.key)
            if known is None or known.version < found.version:
                self._remove(found.key)
                self._items[found.key] = found
                self._by_cluster.setdefault(found.cluster, {})[found.key] = found
        return found.cluster

    def drop(self, document: Document) -> str:
        gone = self._make(document)
        with self._lock:
            known = self._items.get(gone.key)
            if known is not None and known.version <= gone.version:
                self._remove(gone.key)
        return gone.cluster

    def forget(self, key: str) -> None:
        with self._lock:
            self._remove(key)

    def replace_all(self, documents: Iterable[Document], version: int) -> set[str]:
        """All resources as of this version; returns the clusters of those that were deleted."""
        listed = set()
        for document in documents:
            self.put(document)
            listed.add(key_of(document))
        with self._lock:
            gone = [one for key, one in self._items.items()
                    if key not in listed and one.version <= version]  # fmt: skip
            for item in gone:
                self._remove(item.key)
        return {item.cluster for item in gone}

    def of(self, cluster: str) -> list[Item]:
        with self._lock:
            return list(self._by_cluster.get(cluster, {}).values())

    def get(self, key: str) -> Item | None:
        with self._lock:
            return self._items.get(key)

    def clusters(self) -> set[str]:
        with self._lock:
            return set(self._by_cluster)

    def __len__(self) -> int:
        return len(self._items)

    def _remove(self, key: str) -> None:
        known = self._items.pop(key, None)
        if known is not None:
            others = self._by_cluster[known.cluster]
            del others[key]
            if not others:
                del self._by_cluster[known.cluster]


def cluster_of(document: Document) -> str:
    """ "namespace/name" of its cluster, also if its spec is invalid otherwise."""
    try:
        ref = msgspec.convert((document.get("spec") or {}).get("cluster"), ClusterRef)
    except msgspec.ValidationError:
        ref = ClusterRef(name="")
    return ref.key(document["metadata"]["namespace"])


def slim(document: Document) -> Document:
    """The document without unused fields: there may be thousands of resources."""
    metadata = document["metadata"]
    kept = {k: v for k, v in metadata.items() if k not in ("managedFields", "annotations")}
    return {"kind": document["kind"], "metadata": kept, "status": document.get("status") or {}}
