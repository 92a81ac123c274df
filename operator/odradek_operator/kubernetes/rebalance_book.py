"""All KafkaRebalances by their cluster."""

from __future__ import annotations

from dataclasses import dataclass

from odradek_api.base import InvalidManifestError
from odradek_api.kafka_rebalance.status import KafkaRebalanceStatus
from odradek_api.parse import parse
from odradek_operator.kafka.rebalance_states import WantedRebalance, wanted_of
from odradek_operator.kubernetes.book import Book, OfCluster, cluster_of, slim
from odradek_operator.kubernetes.objects import (
    REBALANCE_FINALIZER,
    Document,
    key_of,
    read_status,
)


@dataclass(frozen=True)
class RebalanceObject(OfCluster):
    status: KafkaRebalanceStatus
    wanted: WantedRebalance

    @property
    def held(self) -> bool:
        return REBALANCE_FINALIZER in (self.document["metadata"].get("finalizers") or ())


def rebalance_object(document: Document) -> RebalanceObject:
    key = key_of(document)
    try:
        resource = parse(document)
        assert resource is not None
        wanted = wanted_of(resource)
    except InvalidManifestError as refused:
        problem = "; ".join(f"{p.field}: {p.message}" for p in refused.problems)
        metadata = document["metadata"]
        wanted = WantedRebalance(
            key,
            None,
            deleting=bool(metadata.get("deletionTimestamp")),
            generation=int(metadata.get("generation") or 0),
            problem=problem,
        )
    return RebalanceObject(
        key,
        cluster_of(document),
        int(document["metadata"]["resourceVersion"]),
        {**slim(document), "kind": "KafkaRebalance"},
        read_status(document, KafkaRebalanceStatus),
        wanted,
    )


class RebalanceBook(Book[RebalanceObject]):
    def __init__(self) -> None:
        super().__init__(rebalance_object)
