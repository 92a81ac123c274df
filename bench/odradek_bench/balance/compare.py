"""How good an assignment is: the scores of its goals, their weighted sum, and the bytes moved."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from odradek_operator.kafka.balance.goals import LOADS
from odradek_operator.kafka.balance.model import Cluster, Ints
from odradek_operator.kafka.balance.search import optimize
from odradek_operator.kafka.balance.state import State
from odradek_operator.kafka.balance.steps import ORDER


class Quality(NamedTuple):
    """One algorithm's answer for one cluster."""

    name: str
    cpu_s: float
    objective: float  # weighted sum of the scores, the first goal with weight 1
    disk: float
    bytes_in: float
    leaders: float
    bytes_moved: float  # of all bytes


def bytes_moved(cluster: Cluster, replicas: Ints) -> float:
    """The part of all bytes that is copied to other brokers."""
    new = ~(replicas[:, :, None] == cluster.replicas[:, None, :]).any(axis=2)
    total = float((cluster.size_bytes * cluster.factor).sum())
    return float((new * cluster.size_bytes[:, None]).sum()) / total


def objective(cluster: Cluster, replicas: Ints) -> tuple[float, list[float]]:
    scores = State(cluster.moved_to(replicas), LOADS).scores().tolist()
    return sum(score * ORDER**-g for g, score in enumerate(scores)), scores


def rate(name: str, cluster: Cluster, find: Callable[[Cluster], Ints]) -> Quality:
    began = time.process_time()
    replicas = find(cluster)
    cpu_s = time.process_time() - began
    total, scores = objective(cluster, replicas)
    moved = bytes_moved(cluster, replicas)
    return Quality(name, cpu_s, total, scores[0], scores[1], scores[4], moved)


def ours(cluster: Cluster) -> Ints:
    return optimize(cluster).replicas


def unchanged(cluster: Cluster) -> Ints:
    return cluster.replicas


def rows(qualities: list[Quality]) -> Iterator[str]:
    """A table for the documentation."""
    yield "| | weighted sum | disk | bytes in | leaders | bytes moved | CPU |"
    yield "|---|---|---|---|---|---|---|"
    for q in qualities:
        yield (
            f"| {q.name} | {q.objective:.4f} | {q.disk:.2%} | {q.bytes_in:.2%} | {q.leaders:.2%} "
            f"| {q.bytes_moved:.1%} | {q.cpu_s:.2f} s |"
        )
