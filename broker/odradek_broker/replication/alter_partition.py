"""Brings proposed ISRs to the controller (AlterPartition, 56) and its answers back.

All proposals that have gathered go out in one request, and there is one request at a time: what
comes up meanwhile waits for the next. After trouble the next one waits longer each time. The
partition decides what to make of an answer, and of none (partition/replica_state.py).
"""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Protocol
from uuid import UUID

from odradek_broker.model.errors import ErrorCode
from odradek_broker.model.ids import BrokerId
from odradek_broker.partition.partition import Partition
from odradek_broker.partition.replica_state import (
    CheckIsr,
    Proposal,
    ProposalAnswered,
    ProposalLost,
    Propose,
)
from odradek_broker.partition.service import PartitionService
from odradek_broker.wire.peer import PeerUnavailable
from odradek_broker.wire.struct import Struct

logger = logging.getLogger(__name__)

ALTER_PARTITION, VERSION = 56, 3
# Far below LOST_PROPOSAL_MS: when an answer is given up, the request is not that old.
TIMEOUT_MS = 2000.0
BACKOFF_MIN_SECONDS = 0.05
BACKOFF_MAX_SECONDS = 1.0
RECHECK_SECONDS = 0.5

Key = tuple[bytes, int]  # topic id, partition


class ControllerChannel(Protocol):
    """Reaches the active controller, wherever it is."""

    def call(
        self, api_key: int, version: int, request: Struct, timeout_ms: float
    ) -> Awaitable[Struct]:
        """Raises PeerUnavailable when no answer came, or no controller is known."""


class AlterPartitionSender:
    def __init__(self, partitions: PartitionService, channel: ControllerChannel) -> None:
        self._partitions = partitions
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Key, tuple[Partition, Proposal]] = {}
        self._task: asyncio.Task[None] | None = None
        self._failures = 0  # in a row

    def propose(self, partition: Partition, propose: Propose) -> None:
        key = (partition.topic_id, partition.topic_partition.partition)
        self._waiting[key] = (partition, propose.proposal)
        if self._task is None:
            self._task = self._loop.create_task(self._run())

    def close(self) -> None:
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._waiting:
            if self._failures:
                pause = BACKOFF_MIN_SECONDS * 2 ** min(self._failures - 1, 10)
                await asyncio.sleep(min(pause, BACKOFF_MAX_SECONDS))
            sent, self._waiting = self._waiting, {}
            # What metadata has overtaken need not be sent.
            sent = {key: one for key, one in sent.items() if _still_pending(*one)}
            if sent:
                await self._send(sent)
        self._task = None

    async def _send(self, sent: dict[Key, tuple[Partition, Proposal]]) -> None:
        self._failures += 1  # unless it turns out well
        try:
            response = await self._channel.call(
                ALTER_PARTITION, VERSION, self._request(sent), TIMEOUT_MS
            )
        except PeerUnavailable as error:
            logger.warning("the controller did not answer AlterPartition: %s", error)
            for partition, proposal in sent.values():
                self._partitions.step(partition, ProposalLost(proposal))
            return
        if response.error_code:
            # Not looked at: another one is the controller, or does not know us as we are.
            logger.info("AlterPartition: %s", ErrorCode(response.error_code).name)
            for key, one in sent.items():
                self._waiting.setdefault(key, one)
            return
        self._failures = 0
        for topic in response.topics:
            topic_id = topic.topic_id.bytes
            for answer in topic.partitions:
                found = sent.pop((topic_id, answer.partition_index), None)
                if found is not None:
                    self._answered(*found, answer)
        for partition, proposal in sent.values():  # not mentioned: as good as lost
            self._partitions.step(partition, ProposalLost(proposal))

    def _request(self, sent: dict[Key, tuple[Partition, Proposal]]) -> Struct:
        peers = self._partitions.peers
        topics: dict[bytes, list[Struct]] = {}
        for (topic_id, index), (_, proposal) in sent.items():
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

    def _answered(self, partition: Partition, proposal: Proposal, answer: Struct) -> None:
        error = ErrorCode(answer.error_code)
        if error:
            self._failures += 1
            logger.info(
                "%s: ISR %s not accepted: %s",
                partition.topic_partition,
                list(proposal.isr_ids),
                error.name,
            )
            # The reason passes (a broker that is about to be let in); nobody else would ask.
            self._loop.call_later(RECHECK_SECONDS, self._partitions.step, partition, CheckIsr())
        else:
            logger.info("%s: ISR is %s now", partition.topic_partition, list(answer.isr))
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


def _still_pending(partition: Partition, proposal: Proposal) -> bool:
    return partition.leading is not None and partition.leading.pending == proposal
