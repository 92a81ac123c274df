"""Fetching and proposing in a simulated broker: what replication/ does with tasks and sockets.

One fetch per partition and message (no sessions: handlers/fetch_session.py and
replication/session.py are tested on their own). Answers may come late, twice, or after the
fetch was abandoned: all are given to the follower's state machine, which has to drop late ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from broker_tests.sim.cluster_log import Entry
from broker_tests.sim.world import Address
from odradek_broker.handlers import fetch_records
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.partition import follower_state, leader_events
from odradek_broker.partition.follower_state import FetchPosition, FollowerState, Status
from odradek_broker.partition.leader_events import Proposal
from odradek_broker.partition.partition import Partition
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId, TopicPartition
from odradek_protocol.messages.struct import Struct

if TYPE_CHECKING:
    from broker_tests.sim.cluster_node import ClusterNode

FETCH_TIMEOUT_MS = 250
FETCH_PAUSE_MS_MAX = 40
FETCH_RECORDS_MAX = 8
PROPOSAL_TIMEOUT_MS = 300
PROPOSAL_PAUSE_MS = 30
RECHECK_MS = 100


class Fetch(NamedTuple):
    name: TopicPartition
    replica_id: int
    broker_epoch: int
    position: FetchPosition


class Fetched(NamedTuple):
    name: TopicPartition
    answer: follower_state.FetchAnswered
    entries: tuple[Entry, ...] = ()


class ListOffsets(NamedTuple):
    name: TopicPartition
    position: FetchPosition


class ListedOffsets(NamedTuple):
    name: TopicPartition
    found: follower_state.OffsetsFound


def _joining(batch: dict[TopicPartition, tuple[Partition, Proposal]]) -> list[BrokerId]:
    return [
        replica
        for partition, proposal in batch.values()
        for replica in proposal.isr_ids
        if partition.leading is not None and replica not in partition.leading.isr
    ]


class SimReplication:
    """`partition.service.Replication` of one life of a broker."""

    idle_pause_ms_max = FETCH_PAUSE_MS_MAX

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self._world = node.world
        self._rng = node.world.rng(f"fetch-{node.node_id}")
        self._proposals: dict[TopicPartition, tuple[Partition, Proposal]] = {}
        self._proposing = False

    # ------------------------------------------------------------ following

    def follow(self, partition: Partition) -> None:
        assert partition.following is not None
        self._later(0, partition, partition.following)

    def unfollow(self, partition: Partition) -> None:
        """Its fetching ends by itself: `partition.following` is another one now."""

    def update_metadata(self, image: MetadataImage) -> None: ...

    def _later(self, delay_ms: int, partition: Partition, following: FollowerState) -> None:
        self._world.after_on(self._node.node_id, delay_ms, self._fetch, partition, following)

    def _fetch(self, partition: Partition, following: FollowerState) -> None:
        if partition.following is not following:
            return
        now_ms = self._node.clock.monotonic_ms()
        position = follower_state.next_fetch(following, partition.log, now_ms)
        if position is None:
            if following.status is Status.BACKING_OFF:
                pause_ms = max(1, int(following.ready_at_ms - now_ms) + 1)
                self._later(pause_ms, partition, following)
            return
        node = self._node
        fetch = Fetch(
            partition.topic_partition, node.node_id, node.partitions.peers.broker_epoch, position
        )
        if (node.node_id, following.leader) not in node.ambusher.stalled:
            self._world.send(node.node_id, following.leader, fetch)
        self._give_up_later(partition, following, position)

    def _give_up_later(
        self, partition: Partition, following: FollowerState, position: FetchPosition
    ) -> None:
        node_id = self._node.node_id
        args = (partition, following, position)
        self._world.after_on(node_id, FETCH_TIMEOUT_MS, self._give_up, *args)

    def _give_up(
        self, partition: Partition, following: FollowerState, position: FetchPosition
    ) -> None:
        if partition.following is following and following.under_way == position:
            event = follower_state.FetchUnanswered(position, failed=True)
            self._step(partition, following, event)
            self._later(0, partition, following)

    def failed(self, message: Fetch | ListOffsets) -> None:
        partition = self._node.partition(message.name)
        if partition is not None and partition.following is not None:
            self._give_up(partition, partition.following, message.position)

    def fetched(self, message: Fetched) -> None:
        partition = self._node.partition(message.name)
        if partition is None or partition.following is None:
            return
        following, answer = partition.following, message.answer
        if answer.position.leader_epoch != following.leader_epoch:
            return
        acted = self._step(partition, following, answer, message.entries)
        pause_ms = 0 if acted else self._rng.randint(1, self.idle_pause_ms_max)
        if partition.must_flush:
            self._node.threads.run(
                partition.log.flush, lambda error: self._flushed(partition, following, error)
            )
        else:
            self._later(pause_ms, partition, following)

    def _flushed(
        self, partition: Partition, following: FollowerState, error: BaseException | None
    ) -> None:
        self._later(0, partition, following)

    def listed(self, message: ListedOffsets) -> None:
        partition = self._node.partition(message.name)
        if partition is not None and partition.following is not None:
            self._step(partition, partition.following, message.found)
            self._later(0, partition, partition.following)

    def _step(
        self,
        partition: Partition,
        following: FollowerState,
        event: follower_state.Event,
        entries: tuple[Entry, ...] = (),
    ) -> bool:
        """Carry out the instructions of the event (as replication/applying.py); True if any."""
        node, log = self._node, partition.log
        now_ms = node.clock.monotonic_ms()
        instructions = follower_state.step(following, event, log, now_ms)
        for instruction in instructions:
            match instruction:
                case follower_state.Append():
                    log.append_as_follower(entries)  # type: ignore[arg-type]  # the log of the simulation
                    node.partitions.mark_dirty(partition)
                case follower_state.MoveHighWatermark(high_watermark):
                    log.high_watermark = high_watermark
                    node.partitions.mark_dirty(partition)
                case follower_state.Truncate(offset, _):
                    log.truncate_to(offset)
                case follower_state.TruncateFully(offset) | follower_state.StartAt(offset):
                    log.truncate_fully_and_start_at(offset)
                case follower_state.LookUpOffsets(position):
                    self._look_up(partition, following, position)
        following.validate()
        return bool(instructions)

    def _look_up(
        self, partition: Partition, following: FollowerState, position: FetchPosition
    ) -> None:
        message = ListOffsets(partition.topic_partition, position)
        self._world.send(self._node.node_id, following.leader, message)
        self._give_up_later(partition, following, position)

    # ------------------------------------------------------------ leading

    def serve_fetch(self, source: Address, fetch: Fetch) -> None:
        """As handlers/fetch_follower.py treats a follower's fetch."""
        position = fetch.position
        try:
            answer, entries = self._read(fetch)
        except KafkaError as error:
            answer, entries = follower_state.FetchAnswered(position, error.code), ()
        self._world.reply(self._node.node_id, source, Fetched(fetch.name, answer, entries))

    def _read(self, fetch: Fetch) -> tuple[follower_state.FetchAnswered, tuple[Entry, ...]]:
        partition, position = self._node.partition(fetch.name), fetch.position
        if partition is None:
            raise KafkaError(self._node.partitions.why_missing(*fetch.name))
        partition.led_here(position.leader_epoch)
        log = partition.log
        diverging = fetch_records.divergence(partition, position)  # type: ignore[arg-type]  # same fields
        entries: tuple[Entry, ...] = ()
        if diverging is None:
            if position.fetch_offset > log.log_end_offset:
                raise KafkaError(ErrorCode.offset_out_of_range)
            event = leader_events.FollowerFetched(
                BrokerId(fetch.replica_id),
                fetch.broker_epoch,
                position.fetch_offset,
                position.log_start_offset,
                log.written_offset,
            )
            self._node.partitions.step(partition, event)
            end = min(log.written_offset, position.fetch_offset + FETCH_RECORDS_MAX)
            entries = tuple(log.entries[position.fetch_offset : end])  # type: ignore[attr-defined]
        answer = follower_state.FetchAnswered(
            position,
            high_watermark=log.high_watermark,
            log_start_offset=log.log_start_offset,
            diverging=diverging,
            records_end=position.fetch_offset + len(entries) if entries else None,
        )
        return answer, entries

    def serve_list_offsets(self, source: Address, asked: ListOffsets) -> None:
        partition, position = self._node.partition(asked.name), asked.position
        try:
            if partition is None:
                raise KafkaError(self._node.partitions.why_missing(*asked.name))
            partition.led_here(position.leader_epoch)
            log = partition.log
            found = follower_state.OffsetsFound(position, log.log_start_offset, log.log_end_offset)
        except KafkaError as error:
            found = follower_state.OffsetsFound(position, error=error.code)
        self._world.reply(self._node.node_id, source, ListedOffsets(asked.name, found))

    # ------------------------------------------------------------ proposing

    def propose(self, partition: Partition, instruction: leader_events.Propose) -> None:
        self._proposals[partition.topic_partition] = (partition, instruction.proposal)
        if not self._proposing:
            self._proposing = True
            pause_ms = PROPOSAL_PAUSE_MS if instruction.retry else 0
            self._world.after_on(self._node.node_id, pause_ms, self._send_proposals)

    def _send_proposals(self) -> None:
        batch, self._proposals = self._proposals, {}
        batch = {
            name: (partition, proposal)
            for name, (partition, proposal) in batch.items()
            if partition.leading is not None and partition.leading.pending == proposal
        }
        if not batch:
            self._proposing = False
            return
        peers = self._node.partitions.peers
        topics = [
            Struct(
                topic_id=UUID(bytes=partition.topic_id),
                partitions=[
                    Struct(
                        partition_index=name.partition,
                        leader_epoch=proposal.leader_epoch,
                        new_isr_with_epochs=[
                            Struct(broker_id=broker_id, broker_epoch=epoch)
                            for broker_id, epoch in proposal.isr
                        ],
                        new_isr=[],
                        leader_recovery_state=0,
                        partition_epoch=proposal.partition_epoch,
                    )
                ],
            )
            for name, (partition, proposal) in batch.items()
        ]
        request = Struct(broker_id=peers.node_id, broker_epoch=peers.broker_epoch, topics=topics)
        self._node.call(
            "alter_partition",
            request,
            lambda response: self._answered(batch, response),
            PROPOSAL_TIMEOUT_MS,
            self._node.ambusher.proposal_delays_ms(peers.node_id, _joining(batch)),
        )

    def _answered(
        self, batch: dict[TopicPartition, tuple[Partition, Proposal]], response: Struct | None
    ) -> None:
        partitions = self._node.partitions
        pause_ms = PROPOSAL_PAUSE_MS
        if response is None:
            for partition, proposal in batch.values():
                partitions.step(partition, leader_events.ProposalLost(proposal))
        elif response.error_code:
            self._proposals = {**batch, **self._proposals}
        else:
            pause_ms = 0
            for topic in response.topics:
                name = self._node.metadata.image.topics_by_id[topic.topic_id].name
                for answer in topic.partitions:
                    one = TopicPartition(name, answer.partition_index)
                    self._answered_one(*batch[one], answer)
        if self._proposals:
            self._world.after_on(self._node.node_id, pause_ms, self._send_proposals)
        else:
            self._proposing = False

    def _answered_one(self, partition: Partition, proposal: Proposal, answer: Struct) -> None:
        error = ErrorCode(answer.error_code)
        partitions = self._node.partitions
        event = leader_events.ProposalAnswered(proposal, error)
        if not error:
            isr = tuple(BrokerId(broker_id) for broker_id in answer.isr)
            event = leader_events.ProposalAnswered(
                proposal, error, answer.leader_epoch, answer.partition_epoch, isr
            )
        else:
            check = leader_events.CheckIsr()
            self._world.after_on(self._node.node_id, RECHECK_MS, partitions.step, partition, check)
        partitions.step(partition, event)

    def assign_directory(self, partition: Partition, directory_id: UUID) -> None:
        """Once: the metadata log makes the partition ask again."""
        peers = self._node.partitions.peers
        asked = Struct(
            topic_id=UUID(bytes=partition.topic_id),
            partitions=[Struct(partition_index=partition.topic_partition.partition)],
        )
        request = Struct(
            broker_id=peers.node_id,
            broker_epoch=peers.broker_epoch,
            directories=[Struct(id_=directory_id, topics=[asked])],
        )
        self._node.call("assign_replicas_to_dirs", request, lambda _: None, PROPOSAL_TIMEOUT_MS)
