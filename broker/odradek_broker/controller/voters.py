"""Selects the voters of the metadata quorum: up to three brokers, spread over racks.

A cluster that grows from one broker to three gets three voters automatically; if a voter is lost
for good (unregistered), another replaces it. Voters are changed one at a time, as Raft requires;
the next change is decided when the last is committed. With two brokers there is one voter: with
two voters the loss of either would stop the quorum.

What an operator configured takes precedence:

    controller.quorum.voters=1@…,2@…,3@…    these nodes are the voters, as in Kafka. Another one is
                                            added only to replace an unregistered voter
    RemoveRaftVoter, AddRaftVoter           a voter that was removed by hand is not added again
                                            until it is added by hand

The second is stored as the broker's setting `odradek.quorum.auto.join.enable=false`: it is in the
metadata log, so the next controller knows it, `kafka-configs --describe` shows it, and deleting it
reverts the removal. If it is set for all brokers, the operator manages the voters.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeAlias

from odradek_broker.controller.result import ControllerResult
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.records import ConfigRecord, ResourceType
from odradek_broker.raft.values import ReplicaKey
from odradek_protocol.ids import BrokerId

VOTERS_MAX = 3
AUTO_JOIN = "odradek.quorum.auto.join.enable"


@dataclass(frozen=True, slots=True)
class Add:
    key: ReplicaKey
    reason: str


@dataclass(frozen=True, slots=True)
class Remove:
    key: ReplicaKey
    reason: str


VoterChange: TypeAlias = Add | Remove | None


def voter_change(
    image: MetadataImage,
    voters: Collection[ReplicaKey],
    observers: Collection[ReplicaKey],
    leader: int,
    listed: Collection[int] = (),
) -> VoterChange:
    """The next change of the voter set, if one is due.

    `observers` fetch the metadata log, are caught up, and are not voters. `leader` is the node id
    of this controller, which is never removed. `listed` are the nodes of
    `controller.quorum.voters`. Only brokers that are registered, unfenced and not shutting down
    are added.
    """
    ids = {voter.id for voter in voters}
    for voter in sorted(voters):
        # The same node with an empty disk: its votes and its log are lost.
        if any(o.id == voter.id and o.directory_id != voter.directory_id for o in observers):
            return Remove(voter, f"node {voter.id} has lost the disk with which it voted")
    ready = [o for o in observers if o.id not in ids and _is_up(image, o.id)]
    ready = [o for o in ready if may_join(image, o.id)]
    gone = [v for v in sorted(voters) if v.id not in image.brokers and v.id != leader]
    if gone and ready and len(voters) <= VOTERS_MAX:
        # The successor is added first, so that there are never fewer voters than before.
        return Add(
            _best(image, voters, ready, listed),
            f"replaces voter {gone[0].id}, which is not registered",
        )
    if gone:
        return Remove(gone[0], f"broker {gone[0].id} is not registered")
    most = VOTERS_MAX
    if listed:
        most = len(listed) - (len(listed) + 1) % 2  # an even number tolerates no more failures
        ready = [o for o in ready if o.id in listed]
    wanted = most if len(ids) + len(ready) >= most else 1
    if len(voters) < wanted and ready:
        return Add(
            _best(image, voters, ready, listed), f"there are {len(voters)} of {wanted} voters"
        )
    if len(voters) == 2 and len(image.brokers) == 2:
        other = max(voter for voter in voters if voter.id != leader)
        return Remove(
            other,
            "with two voters the loss of either one would stop the quorum",
        )
    return None


def may_join(image: MetadataImage, node_id: int) -> bool:
    """Whether the controller may make this node a voter automatically."""
    for_all = image.config(ResourceType.BROKER, "").get(AUTO_JOIN, "true")
    return image.config(ResourceType.BROKER, str(node_id)).get(AUTO_JOIN, for_all) != "false"


def remember_removal(image: MetadataImage, node_id: int) -> ControllerResult[None]:
    """Records that an operator removed this voter."""
    if not may_join(image, node_id):
        return ControllerResult((), None)
    return ControllerResult(
        (ConfigRecord(ResourceType.BROKER, str(node_id), AUTO_JOIN, "false"),), None
    )


def forget_removal(image: MetadataImage, node_id: int) -> ControllerResult[None]:
    if AUTO_JOIN not in image.config(ResourceType.BROKER, str(node_id)):
        return ControllerResult((), None)
    return ControllerResult(
        (ConfigRecord(ResourceType.BROKER, str(node_id), AUTO_JOIN, None),), None
    )


def _is_up(image: MetadataImage, node_id: int) -> bool:
    broker = image.brokers.get(BrokerId(node_id))
    return broker is not None and broker.active


def _best(
    image: MetadataImage,
    voters: Collection[ReplicaKey],
    ready: Collection[ReplicaKey],
    listed: Collection[int],
) -> ReplicaKey:
    """Prefers listed nodes, then the rack with the fewest voters, then the lowest id."""
    racks = Counter(_rack(image, voter.id) for voter in voters)
    return min(ready, key=lambda key: (key.id not in listed, racks[_rack(image, key.id)], key.id))


def _rack(image: MetadataImage, node_id: int) -> str | None:
    broker = image.brokers.get(BrokerId(node_id))
    return None if broker is None else broker.rack
