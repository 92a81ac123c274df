"""The metadata image as a client sees it that is connected to one listener.

Shared by Metadata, DescribeCluster and DescribeTopicPartitions.
"""

from odradek_broker.controller.topic_names import INTERNAL_TOPICS
from odradek_broker.handlers.context import RequestContext
from odradek_broker.metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration
from odradek_broker.metadata.records import Endpoint
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import BrokerId

# Bit sets of AclOperation: everything, because there is no authorizer.
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
OPERATIONS_NOT_ASKED = -(2**31)


def is_internal(topic: str) -> bool:
    return topic in INTERNAL_TOPICS


class ClusterView:
    """One image through one listener."""

    def __init__(self, ctx: RequestContext) -> None:
        self.image: MetadataImage = ctx.broker.controller.image
        self.listener = ctx.listener
        self._quorum = ctx.broker.quorum
        self._node_id = BrokerId(ctx.broker.node_id)
        self.reachable: frozenset[BrokerId] = frozenset(
            broker.id for broker in self.brokers() if not broker.fenced
        )

    def brokers(self) -> list[BrokerRegistration]:
        """The brokers that have this listener, including fenced ones."""
        brokers = sorted(self.image.brokers.values(), key=lambda broker: broker.id)
        return [broker for broker in brokers if self.listener in broker.endpoints]

    @property
    def controller_id(self) -> BrokerId:
        """The active controller, or this broker while none is known: every broker forwards."""
        leader = self._quorum.leader.leader_id
        own = self._node_id
        return BrokerId(leader) if leader in self.reachable and leader is not None else own

    def endpoint(self, broker: BrokerRegistration) -> Endpoint:
        return broker.endpoints[self.listener]

    def offline_replicas(self, partition: PartitionRegistration) -> list[BrokerId]:
        """Replicas on brokers that are not reachable."""
        return [replica for replica in partition.replicas if replica not in self.reachable]

    def leader_error(self, partition: PartitionRegistration) -> ErrorCode:
        leader = self.image.brokers.get(partition.leader)
        if leader is None or leader.fenced:
            return ErrorCode.leader_not_available
        if self.listener not in leader.endpoints:
            return ErrorCode.listener_not_found
        return ErrorCode.none
