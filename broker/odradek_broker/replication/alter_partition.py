"""Brings proposed ISRs to the controller (AlterPartition, 56) and its answers back.

The partition decides what follows from an answer, or from none (partition/leader_state.py).
"""

import logging
from collections import Counter
from uuid import UUID

from odradek_broker.controller_client.channel import ControllerCalls
from odradek_broker.partition.leader_events import (
    CheckIsr,
    Proposal,
    ProposalAnswered,
    ProposalLost,
)
from odradek_broker.partition.partition import Partition
from odradek_broker.partition.service import PartitionService
from odradek_broker.replication.batch_sender import (
    TIMEOUT_MS,
    Batch,
    BatchSender,
)
from odradek_broker.runtime.peer import PeerUnavailable
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import BrokerId
from odradek_protocol.messages.struct import Struct

logger = logging.getLogger(__name__)

ALTER_PARTITION, VERSION = 56, 3
# A refused proposal is looked at again after this long.
RECHECK_SECONDS = 0.5
# Answers about more partitions than this are summed up in the log.
LOGGED_MAX = 10


class AlterPartitionSender(BatchSender[Proposal]):
    def __init__(self, partitions: PartitionService, channel: ControllerCalls) -> None:
        super().__init__(channel)
        self._partitions = partitions

    def still_wanted(self, partition: Partition, value: Proposal) -> bool:
        return partition.leading is not None and partition.leading.pending == value

    async def send(self, batch: Batch[Proposal]) -> bool:
        try:
            response = await self._channel.call(
                ALTER_PARTITION, VERSION, self._request(batch), TIMEOUT_MS
            )
        except PeerUnavailable as error:
            logger.warning("the controller did not answer AlterPartition: %s", error)
            self._lost(batch)
            return False
        if response.error_code:
            # Refused as a whole: the controller has moved, or has another broker epoch of us.
            logger.info("AlterPartition: %s", ErrorCode(response.error_code).name)
            self.add_again(batch)
            return False
        went_well = True
        level = logging.INFO if len(batch) <= LOGGED_MAX else logging.DEBUG
        if len(batch) > LOGGED_MAX:
            self._log_many(batch, response)
        for topic in response.topics:
            topic_id = topic.topic_id.bytes
            for answer in topic.partitions:
                found = batch.pop((topic_id, answer.partition_index), None)
                if found is not None:
                    went_well &= self._answered(*found, answer, level)
        self._lost(batch)  # not mentioned
        return went_well

    def _lost(self, batch: Batch[Proposal]) -> None:
        for partition, proposal in batch.values():
            self._partitions.step(partition, ProposalLost(proposal))

    def _request(self, batch: Batch[Proposal]) -> Struct:
        peers = self._partitions.peers
        topics: dict[bytes, list[Struct]] = {}
        for (topic_id, index), (_, proposal) in batch.items():
            topics.setdefault(topic_id, []).append(
                Struct(
                    partition_index=index,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[
                        Struct(broker_id=broker_id, broker_epoch=epoch)
                        for broker_id, epoch in proposal.isr
                    ],
                    leader_recovery_state=0,
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return Struct(
            broker_id=peers.node_id,
            broker_epoch=peers.broker_epoch,
            topics=[
                Struct(topic_id=UUID(bytes=topic_id), partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
        )

    def _log_many(self, batch: Batch[Proposal], response: Struct) -> None:
        """One line for each outcome: a broker's end changes the ISRs of thousands of partitions."""
        codes = Counter(
            answer.error_code for topic in response.topics for answer in topic.partitions
        )
        example = next(iter(batch.values()))[0].topic_partition
        for code, count in codes.items():
            outcome = f"not accepted: {ErrorCode(code).name}" if code else "changed"
            logger.info("ISRs of %d partitions (%s and others) %s", count, example, outcome)

    def _answered(
        self, partition: Partition, proposal: Proposal, answer: Struct, level: int
    ) -> bool:
        error = ErrorCode(answer.error_code)
        if error:
            logger.log(
                level,
                "%s: ISR %s not accepted: %s",
                partition.topic_partition,
                list(proposal.isr_ids),
                error.name,
            )
            # Retriable (a broker that is about to be unfenced), and only this repeats it.
            self._loop.call_later(RECHECK_SECONDS, self._partitions.step, partition, CheckIsr())
            # Without other fields, if this broker is the controller and nothing was decoded.
            self._partitions.step(partition, ProposalAnswered(proposal, error))
            return False
        logger.log(level, "%s: ISR is %s now", partition.topic_partition, list(answer.isr))
        self._partitions.step(
            partition,
            ProposalAnswered(
                proposal,
                error,
                answer.leader_epoch,
                answer.partition_epoch,
                tuple(BrokerId(broker_id) for broker_id in answer.isr),
            ),
        )
        return True
