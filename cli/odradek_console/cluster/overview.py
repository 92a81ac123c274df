"""The overview of a cluster: its health in a sentence, what it has, what lags and what is busy.

    found = collect(view)        # for the page, and for `odradek top`

Rates and lags are of the last sample (sampling.py).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from odradek_cli.health import ClusterHealth
from odradek_console.cluster.sampling import LAG
from odradek_console.cluster.view import ClusterView
from odradek_protocol.client.admin.partitions import list_reassignments
from odradek_protocol.client.errors import ClientError
from odradek_protocol.client.metadata import Node

LAGGING_SHOWN = 8
BUSY_SHOWN = 8


@dataclass
class Overview:
    cluster_id: str
    health: ClusterHealth | None
    sentence: str
    racks: dict[str, list[Node]]
    controller: int
    topics: int
    internal_topics: int
    partitions: int
    replicas: int
    bytes_total: int | None
    group_states: dict[str, int]
    moves: int
    lagging: list[tuple[str, float]] = field(default_factory=list)
    busiest: list[tuple[str, float]] = field(default_factory=list)


def collect(view: ClusterView) -> Overview:
    metadata = view.metadata()
    health: ClusterHealth | None = None
    try:
        health = view.health()
        sentence = _sentence(health)
    except ClientError as error:
        sentence = f"The health is not known: {error}."
    racks: dict[str, list[Node]] = {}
    for node in sorted(metadata.brokers.values()):
        racks.setdefault(node.rack or "no rack", []).append(node)
    states = Counter(one.state or "unknown" for one in _or(view.groups, []))
    sizes = _or(view.topic_sizes, {})
    topics = metadata.topics.values()
    lags = {
        key[1]: view.history.last(key)
        for key in view.history.names()
        if isinstance(key, tuple) and key[0] == LAG
    }
    worst = sorted(((g, lag) for g, lag in lags.items() if lag), key=lambda one: -one[1])
    busy = sorted(((t, r) for t, r in view.rates.items() if r), key=lambda one: -one[1])
    return Overview(
        metadata.cluster_id,
        health,
        sentence,
        dict(sorted(racks.items())),
        health.controller if health is not None else metadata.controller_id,
        sum(not topic.internal for topic in topics),
        sum(topic.internal for topic in topics),
        sum(len(topic.partitions) for topic in topics),
        sum(len(p.replicas) for topic in topics for p in topic.partitions.values()),
        sum(sizes.values()) if sizes else None,
        dict(states.most_common()),
        len(_or(lambda: list_reassignments(view.client), {})),
        worst[:LAGGING_SHOWN],
        busy[:BUSY_SHOWN],
    )


def _sentence(health: ClusterHealth) -> str:
    if health.state == "healthy":
        return f"All {health.brokers} brokers and all replicas of {health.partitions:,} " \
               "partitions are there."  # fmt: skip
    return "; ".join(health.sentences()) + "."


def _or(ask: Any, otherwise: Any) -> Any:
    """Parts that the user may not see are left out of the overview."""
    try:
        return ask()
    except ClientError:
        return otherwise
