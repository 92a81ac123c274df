"""Which replica a consumer should read from (KIP-392): one in its own rack, if there is one.

Asked by the fetch handler of the leader, when `replica.selector.class` names Kafka's
RackAwareReplicaSelector and the consumer sent its `client.rack`. Does no I/O.
"""

from odradek_broker.metadata.image import MetadataImage
from odradek_broker.partition.leader_state import LeaderState
from odradek_protocol.ids import BrokerId, Offset

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def preferred_read_replica(
    state: LeaderState, image: MetadataImage, rack: str, listener: str, offset: Offset
) -> BrokerId | None:
    """A follower in `rack` that is in sync and has `offset`; None: read from the leader."""
    best: BrokerId | None = None
    best_end: Offset = -1
    for replica in state.isr:
        broker = image.brokers.get(replica)
        if broker is None or broker.fenced or broker.rack != rack:
            continue
        if replica == state.peers.node_id:
            return None  # the leader is as near as it gets
        follower = state.followers[replica]
        has_offset = follower.log_start_offset <= offset <= follower.log_end_offset
        if has_offset and listener in broker.endpoints and follower.log_end_offset > best_end:
            best, best_end = replica, follower.log_end_offset
    return best
