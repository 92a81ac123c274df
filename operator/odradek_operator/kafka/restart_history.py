"""The last restarts of a cluster's nodes, and what clients noticed of them. Does no I/O.

    restarts = restart_history(before.restarts, desired, observed, plan, was_ready)

It is called in every pass, before the plan is carried out. An entry begins with the Restart of a
plan, or when a broker that was ready is not ready any more; it ends when the node serves clients
again. In between it collects the partitions that could not be written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from odradek_api.base import instant
from odradek_api.kafka_cluster.status import RestartStatus
from odradek_operator.kafka.actions import Plan, Restart
from odradek_operator.kafka.desired import DesiredCluster
from odradek_operator.kafka.observed import NO_LEADER, Observed, ObservedBroker, Phase

RESTARTS_MAX = 20  # in the status; the newest
UNAVAILABLE_MAX = 20  # partitions named for each
BEGINS_WITHIN_S = 600.0  # until a node that is to be restarted stops serving; pods end slowly


def restart_history(
    before: Sequence[RestartStatus],
    desired: DesiredCluster,
    observed: Observed,
    plan: Plan,
    was_ready: Iterable[int],
) -> list[RestartStatus]:
    """Newest first. `was_ready`: nodes that were ready in the pass before."""
    now = instant(observed.now)
    nodes = {**observed.brokers, **observed.controllers}
    wanted = desired.brokers.keys() | desired.controllers.keys()
    steps = {b: step for step in plan if isinstance(step, Restart) for b in step.brokers}
    open_nodes = {one.node for one in before if not one.ready}
    begun = [
        RestartStatus(
            node=node,
            planned=True,
            reason=step.reason.message,
            began=now,
            leaders=_led(observed, node),
            unavailable=[str(p) for p in step.unavailable[:UNAVAILABLE_MAX]],
        )
        for node, step in steps.items()
        if node not in open_nodes
    ]
    begun += [
        RestartStatus(node=node, reason=_why(nodes.get(node)), began=now)
        for node in sorted(set(was_ready) & wanted)
        if node not in open_nodes and node not in steps and not _is_ready(nodes.get(node))
    ]
    known = [
        one if one.ready else _continued(one, nodes.get(one.node), observed, one.node in steps)
        for one in before
        if one.ready or one.node in wanted  # one that was removed does not come back
    ]
    return [*begun, *(one for one in known if one is not None)][:RESTARTS_MAX]


def _continued(
    entry: RestartStatus, node: ObservedBroker | None, observed: Observed, is_due: bool
) -> RestartStatus | None:
    """None: it was planned, and did not happen."""
    if node is not None and _is_ready(node) and not is_due:
        since = instant(node.since) if node.since else instant(observed.now)
        if since >= entry.began:
            return msgspec.structs.replace(entry, ready=since)
        began_s = datetime.fromisoformat(entry.began).timestamp()
        return entry if observed.now - began_s < BEGINS_WITHIN_S else None
    seen = [*entry.unavailable, *_not_writable(observed, entry.node)]
    found = list(dict.fromkeys(seen))[:UNAVAILABLE_MAX]
    return msgspec.structs.replace(entry, unavailable=found)


def _not_writable(observed: Observed, node: int) -> list[str]:
    """Partitions with a replica there that refuse writes with acks=all."""
    if observed.kafka is None:
        return []
    return [
        str(one.id)
        for one in observed.kafka.partitions
        if node in one.replicas and (one.leader == NO_LEADER or len(one.isr) < one.min_isr)
    ]


def _led(observed: Observed, node: int) -> int:
    if observed.kafka is None:
        return 0
    return sum(one.leader == node for one in observed.kafka.partitions)


def _is_ready(node: ObservedBroker | None) -> bool:
    return node is not None and node.phase is Phase.READY


def _why(node: ObservedBroker | None) -> str:
    if node is not None and node.ended is not None:
        return node.ended.words
    return (node.detail if node is not None else "") or "it stopped serving clients by itself"
