"""Forming a cluster from `controller.quorum.voters=1@a:9092,2@b:9092,3@c:9092`.

Every listed node starts with an empty disk and asks the others for the leader. The node with the
lowest id makes itself the only voter, but only after every other node has responded that it
belongs to no cluster either (epoch 0). The others find it, follow it and become voters one by one.

So a node that lost its disk never forms a second cluster: the nodes that still have theirs
respond with an epoch, and it joins like a new node. The price is that every listed node must be
up for the first start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek_broker.raft.values import LeaderAndEpoch, NodeId
from odradek_broker.runtime.quorum_addresses import Address


@dataclass(slots=True)
class Formation:
    node_id: NodeId
    others: frozenset[NodeId]  # the other nodes of controller.quorum.voters
    # Nodes that responded with epoch 0. Invariant: a subset of `others`.
    unformed: set[NodeId] = field(default_factory=set)

    def heard(self, node_id: NodeId, leader: LeaderAndEpoch) -> None:
        """Takes the response of a listed node."""
        if node_id not in self.others:
            return
        if leader.leader_id is None and leader.epoch == 0:
            self.unformed.add(node_id)
        else:
            self.unformed.discard(node_id)

    @property
    def may_form(self) -> bool:
        return self.node_id < min(self.others, default=self.node_id + 1) and (
            self.unformed == self.others
        )

    @property
    def waits_for(self) -> str:
        missing = sorted(self.others - self.unformed)
        if self.others and self.node_id > min(self.others):
            return f"node {min(self.others)} has not formed the cluster yet"
        return f"the cluster forms when all voters are up, missing: {missing}"


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """How a node that knows no voters yet finds its cluster."""

    addresses: Mapping[NodeId, Address]  # of the nodes to ask; without the node itself
    formation: Formation | None  # None: it joins a cluster that exists already
