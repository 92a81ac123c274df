"""The best possible assignment of a small cluster, by HiGHS, with the optimizer's own objective.

Binary variables say which broker has a replica of a partition, and which one leads; every broker
and soft goal has a variable for what is outside of the band. The topics' spread is left out: with
so few replicas it is always reached.
"""

from __future__ import annotations

from typing import Any

import highspy
import numpy as np

from odradek_operator.kafka.balance.goals import LOADS
from odradek_operator.kafka.balance.model import Cluster, Ints
from odradek_operator.kafka.balance.state import State
from odradek_operator.kafka.balance.steps import ORDER

SECONDS_MAX = 30.0
BYTES = 1e-6  # only decides between assignments that are equally good


def solve(cluster: Cluster) -> tuple[Ints, bool]:
    """The assignment, and whether it was proved to be the best within the time."""
    state = State(cluster, LOADS)
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("time_limit", SECONDS_MAX)
    solver.setOptionValue("threads", 1)
    partitions, brokers = range(cluster.partitions), range(cluster.brokers)
    has = [[solver.addBinary() for _ in brokers] for _ in partitions]
    leads = [[solver.addBinary() for _ in brokers] for _ in partitions]
    for p in partitions:
        factor = int(cluster.factor[p])
        solver.addConstr(solver.qsum(has[p]) == factor)
        solver.addConstr(solver.qsum(leads[p]) == 1)
        for b in brokers:
            solver.addConstr(leads[p][b] <= has[p][b])
        for rack in np.unique(cluster.racks):
            members = [has[p][b] for b in brokers if cluster.racks[b] == rack]
            solver.addConstr(solver.qsum(members) <= int(state.per_rack_max[factor]))
    for b in brokers:
        used = solver.qsum(float(cluster.size_bytes[p]) * has[p][b] for p in partitions)
        solver.addConstr(used <= float(cluster.disk_bytes_max[b]))
    cost: list[Any] = []
    for g in range(len(LOADS)):
        for b in brokers:
            outside = solver.addVariable(lb=0.0)
            load = solver.qsum(
                float(state.per_replica[p, g]) * has[p][b]
                + float(state.per_leader[p, g]) * leads[p][b]
                for p in partitions
            )
            solver.addConstr(outside - load >= -float(state.upper[g, b]))
            solver.addConstr(outside + load >= float(state.lower[g, b]))
            cost.append(ORDER ** (len(LOADS) - g) * outside)
    for p in partitions:
        here = {int(b) for b in cluster.replicas[p]}
        cost += [BYTES * float(state.size[p]) * has[p][b] for b in brokers if b not in here]
    solver.minimize(solver.qsum(cost))
    proved = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    replicas = cluster.replicas.copy()
    for p in partitions:
        lead = max(brokers, key=lambda b: solver.val(leads[p][b]))
        others = [b for b in brokers if solver.val(has[p][b]) > 0.5 and b != lead]
        replicas[p, : int(cluster.factor[p])] = [lead, *others]
    return replicas, proved
