"""All Topics by their cluster."""

from __future__ import annotations

from dataclasses import dataclass

from odradek_api.base import InvalidManifestError, Resource
from odradek_api.parse import parse
from odradek_api.topic import TopicSpec, TopicStatus
from odradek_operator.kubernetes.book import Book, OfCluster, cluster_of, slim
from odradek_operator.kubernetes.objects import FINALIZER, Document, key_of, read_status


@dataclass(frozen=True)
class TopicObject(OfCluster):
    status: TopicStatus
    resource: Resource[TopicSpec] | None  # None: `problem` says why it is invalid
    problem: str = ""

    @property
    def held(self) -> bool:
        return FINALIZER in (self.document["metadata"].get("finalizers") or ())


def topic_object(document: Document) -> TopicObject:
    resource, problem = None, ""
    try:
        resource = parse(document)
    except InvalidManifestError as refused:
        problem = "; ".join(f"{p.field}: {p.message}" for p in refused.problems)
    return TopicObject(
        key_of(document),
        cluster_of(document),
        int(document["metadata"]["resourceVersion"]),
        {**slim(document), "kind": "Topic"},
        read_status(document, TopicStatus),
        resource,
        problem,
    )


class TopicBook(Book[TopicObject]):
    def __init__(self) -> None:
        super().__init__(topic_object)
