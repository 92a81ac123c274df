"""Baselines for the optimizer: the operator's own levelling by counts, and a greedy one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np

from odradek_operator.kafka.actions import Reassign
from odradek_operator.kafka.balance.goals import HARD, LOADS
from odradek_operator.kafka.balance.model import Cluster, Ints
from odradek_operator.kafka.balance.state import State
from odradek_operator.kafka.balance.steps import Chooser
from odradek_operator.kafka.desired import DesiredCluster
from odradek_operator.kafka.moves import level
from odradek_operator.kafka.observed import ObservedKafka, Partition


def by_counts(cluster: Cluster) -> Ints:
    """`spec.rebalance: auto` of a KafkaCluster: replicas go where there are fewest, in batches."""
    racks = {int(b): SimpleNamespace(rack=f"r{r}") for b, r in enumerate(cluster.racks)}
    desired = cast(DesiredCluster, SimpleNamespace(brokers=racks))
    rows = {cluster.name(p): p for p in range(cluster.partitions)}
    replicas = cluster.replicas.copy()
    while True:
        kafka = ObservedKafka(
            partitions=tuple(
                Partition(
                    name, int(replicas[p, 0]), tuple(int(b) for b in replicas[p]), frozenset()
                )
                for name, p in rows.items()
            )
        )
        plan = level(desired, kafka)
        if not plan:
            return replicas
        assert isinstance(plan[0], Reassign)
        for name, brokers in plan[0].moves.items():
            replicas[rows[name]] = brokers


def greedy(cluster: Cluster) -> Ints:
    """Always the largest replica that fits from the fullest disk to the emptiest."""
    state = State(cluster, LOADS)
    choose = Chooser(state, HARD, range(len(LOADS)), 0.0, state.open)
    while True:
        order = np.argsort(-state.used_bytes, kind="stable")
        src, gap = int(order[0]), state.used_bytes[order[0]] - state.used_bytes
        rows, places = state.on(src)
        for index in np.argsort(-state.size[rows], kind="stable"):
            row, place = int(rows[index]), int(places[index])
            to = choose.allowed(row, place, np.nonzero(gap > cluster.size_bytes[row])[0])
            if len(to):
                state.move(row, place, int(to[state.used_bytes[to].argmin()]))
                break
        else:
            return state.replicas
