"""Who should vote about the metadata log: up to three brokers, spread over racks.

A cluster that grows from one broker to three gets three voters by itself; one that has lost a
voter for good (it was unregistered) gets another in its place. One change at a time, because
that is what Raft can do safely; the next is decided when the last is committed. With two
brokers there is one voter: two would be stopped by either's death.

What an operator said goes before that:

    controller.quorum.voters=1@…,2@…,3@…    these vote, as in Kafka. Another is taken in only for
                                            a voter that was unregistered
    RemoveRaftVoter, AddRaftVoter           a voter removed by hand is not taken in again until it
                                            is added by hand

The second is remembered as the broker's setting `odradek.quorum.auto.join.enable=false`: it is
in the metadata log, so the next controller knows it, `kafka-configs --describe` shows it, and
deleting it takes the removal back. Set for all brokers, the voters are left to the operator.
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

    `observers` are those that fetch the metadata log, are caught up, and do not vote. `leader`
    is the node id of this controller, which is never removed. `listed` are the nodes of
    `controller.quorum.voters`. Only brokers that are registered and neither fenced nor about to
    stop are taken in.
    """
    ids = {voter.id for voter in voters}
    for voter in sorted(voters):
        # The same node with an empty disk: it voted for what it does not remember.
        if any(o.id == voter.id and o.directory_id != voter.directory_id for o in observers):
            return Remove(voter, f"node {voter.id} has lost the disk with which it voted")
    ready = [o for o in observers if o.id not in ids and _is_up(image, o.id)]
    ready = [o for o in ready if may_join(image, o.id)]
    gone = [v for v in sorted(voters) if v.id not in image.brokers and v.id != leader]
    if gone and ready and len(voters) <= VOTERS_MAX:
        # The successor comes first, so that there are never fewer voters than before.
        return Add(
            _best(image, voters, ready, listed), f"for voter {gone[0].id}, who is not registered"
        )
    if gone:
        return Remove(gone[0], f"broker {gone[0].id} is not registered")
    most = VOTERS_MAX
    if listed:
        most = len(listed) - (len(listed) + 1) % 2  # an even number could spare no more
        ready = [o for o in ready if o.id in listed]
    wanted = most if len(ids) + len(ready) >= most else 1
    if len(voters) < wanted and ready:
        return Add(
            _best(image, voters, ready, listed), f"there are {len(voters)} of {wanted} voters"
        )
    if len(voters) == 2 and len(image.brokers) == 2:
        other = max(voter for voter in voters if voter.id != leader)
        return Remove(other, "of two voters neither can be spared, of one the other can")
    return None


def may_join(image: MetadataImage, node_id: int) -> bool:
    """Whether the controller may make a voter of this node by itself."""
    everybody = image.config(ResourceType.BROKER, "").get(AUTO_JOIN, "true")
    return image.config(ResourceType.BROKER, str(node_id)).get(AUTO_JOIN, everybody) != "false"


def remember_removal(image: MetadataImage, node_id: int) -> ControllerResult[None]:
    """An operator wants this node not to vote."""
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
    """A listed one, if there is; in the rack with the fewest voters; with the lowest id."""
    racks = Counter(_rack(image, voter.id) for voter in voters)
    return min(ready, key=lambda key: (key.id not in listed, racks[_rack(image, key.id)], key.id))


def _rack(image: MetadataImage, node_id: int) -> str | None:
    broker = image.brokers.get(BrokerId(node_id))
    return None if broker is None else broker.rack
