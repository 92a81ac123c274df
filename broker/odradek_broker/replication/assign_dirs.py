"""Reports the log directory of each replica to the controller (AssignReplicasToDirs, 73).

Needed where a broker has several: when one of them fails, the controller has to know which
partitions need another leader. With a single directory it knows by itself. The metadata log
brings the reported directories back, so there is nothing to remember here.
"""

import logging
from uuid import UUID

from odradek_broker.controller_client.channel import ControllerCalls
from odradek_broker.partition.partition import Partition
from odradek_broker.partition.service import PartitionService
from odradek_broker.replication.batch_sender import (
    TIMEOUT_MS,
    Batch,
    BatchSender,
)
from odradek_broker.runtime.peer import PeerUnavailable
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

logger = logging.getLogger(__name__)

ASSIGN_REPLICAS_TO_DIRS, VERSION = 73, 0


class DirectorySender(BatchSender[UUID]):
    def __init__(self, partitions: PartitionService, channel: ControllerCalls) -> None:
        super().__init__(channel)
        self._partitions = partitions

    def still_wanted(self, partition: Partition, value: UUID) -> bool:
        here = self._partitions.by_name.get(partition.topic_partition) is partition
        return here and partition.directory_known_as(self._partitions.peers.node_id) != value

    async def send(self, batch: Batch[UUID]) -> bool:
        peers = self._partitions.peers
        directories: dict[UUID, dict[bytes, list[Struct]]] = {}
        for (topic_id, index), (_, directory) in batch.items():
            topics = directories.setdefault(directory, {})
            topics.setdefault(topic_id, []).append(Struct(partition_index=index))
        request = Struct(
            broker_id=peers.node_id,
            broker_epoch=peers.broker_epoch,
            directories=[
                Struct(
                    id_=directory,
                    topics=[
                        Struct(topic_id=UUID(bytes=topic_id), partitions=partitions)
                        for topic_id, partitions in topics.items()
                    ],
                )
                for directory, topics in directories.items()
            ],
        )
        try:
            response = await self._channel.call(
                ASSIGN_REPLICAS_TO_DIRS, VERSION, request, TIMEOUT_MS
            )
            error = ErrorCode(response.error_code)
        except PeerUnavailable as unavailable:
            logger.warning("the controller did not answer: %s", unavailable)
            error = ErrorCode.network_exception
        if error:
            self.add_again(batch)
            return False
        # A single one may be refused because its topic was just deleted: then it goes away here
        # too, or the metadata log says more.
        return True
