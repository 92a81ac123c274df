"""A cache of all Topics by their cluster, kept up to date by the watch.

So thousands of Topics are not read again in every pass. A version is never replaced by an older
one: the operator puts its own writes in at once, and the watch delivers them again later.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from odradek_api.base import ClusterRef, InvalidManifestError, Resource
from odradek_api.parse import parse
from odradek_api.topic import TopicSpec, TopicStatus
from odradek_operator.kubernetes.objects import FINALIZER, Document, key_of, read_status


@dataclass(frozen=True)
class TopicObject:
    key: str
    cluster: str
    version: int
    document: Document
    status: TopicStatus
    resource: Resource[TopicSpec] | None  # None: `problem` says why it is invalid
    problem: str = ""

    @property
    def deleting(self) -> bool:
        return bool(self.document["metadata"].get("deletionTimestamp"))

    @property
    def held(self) -> bool:
        return FINALIZER in (self.document["metadata"].get("finalizers") or ())

    @property
    def generation(self) -> int:
        return int(self.document["metadata"].get("generation") or 0)


def topic_object(document: Document) -> TopicObject:
    metadata = document["metadata"]
    cluster = _cluster_ref(document).key(metadata["namespace"])
    resource, problem = None, ""
    try:
        resource = parse(document)
    except InvalidManifestError as refused:
        problem = "; ".join(f"{p.field}: {p.message}" for p in refused.problems)
    # Drop what is never read, to save memory for each of thousands of Topics.
    slim = {k: v for k, v in metadata.items() if k not in ("managedFields", "annotations")}
    kept = {"kind": "Topic", "metadata": slim, "status": document.get("status") or {}}
    status = read_status(document, TopicStatus)
    version = int(metadata["resourceVersion"])
    return TopicObject(key_of(document), cluster, version, kept, status, resource, problem)


def _cluster_ref(document: Document) -> ClusterRef:
    """The reference of a Topic whose spec may be invalid otherwise."""
    try:
        return msgspec.convert((document.get("spec") or {}).get("cluster"), ClusterRef)
    except msgspec.ValidationError:
        return ClusterRef(name="")


class TopicBook:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._topics: dict[str, TopicObject] = {}
        self._by_cluster: dict[str, dict[str, TopicObject]] = {}

    def put(self, document: Document) -> str:
        """Returns the key of its cluster."""
        found = topic_object(document)
        with self._lock:
            known = self._topics.get(found.key)
            if known is None or known.version < found.version:
                self._remove(found.key)
                self._topics[found.key] = found
                self._by_cluster.setdefault(found.cluster, {})[found.key] = found
        return found.cluster

    def drop(self, document: Document) -> str:
        gone = topic_object(document)
        with self._lock:
            known = self._topics.get(gone.key)
            if known is not None and known.version <= gone.version:
                self._remove(gone.key)
        return gone.cluster

    def forget(self, key: str) -> None:
        with self._lock:
            self._remove(key)

    def replace_all(self, documents: Iterable[Document], version: int) -> set[str]:
        """All Topics as of this version; returns the clusters of those that were deleted."""
        listed = set()
        for document in documents:
            self.put(document)
            listed.add(key_of(document))
        with self._lock:
            gone = [t for key, t in self._topics.items()
                    if key not in listed and t.version <= version]  # fmt: skip
            for topic in gone:
                self._remove(topic.key)
        return {topic.cluster for topic in gone}

    def of(self, cluster: str) -> list[TopicObject]:
        with self._lock:
            return list(self._by_cluster.get(cluster, {}).values())

    def get(self, key: str) -> TopicObject | None:
        with self._lock:
            return self._topics.get(key)

    def clusters(self) -> set[str]:
        with self._lock:
            return set(self._by_cluster)

    def __len__(self) -> int:
        return len(self._topics)

    def _remove(self, key: str) -> None:
        known = self._topics.pop(key, None)
        if known is not None:
            others = self._by_cluster[known.cluster]
            del others[key]
            if not others:
                del self._by_cluster[known.cluster]
