"""The controller: decide → append → replay → respond.

A pure function decides against the latest image. Its records are appended to the metadata log as
one batch and replayed into the next image at once. When they are committed, that image is
published, subscribers get the delta and the response is sent. So concurrent requests are decided
in order, and no client sees anything that could still be lost:

    latest     everything appended: decisions are made against it
    image      everything committed: requests are answered from it

Every broker has a controller; only that of the quorum's leader is active (`active.py` has its
state). When it loses leadership, the outcome of uncommitted appends is unknown: it drops
`latest`, and the next controller starts from the committed records.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from random import Random
from typing import TypeVar

from odradek_broker.controller import topics
from odradek_broker.controller import voters as voters_rules
from odradek_broker.controller.active import ActiveController, PeriodicTask, Term, delta_of
from odradek_broker.controller.context import ControllerContext, at_once
from odradek_broker.controller.metadata_log import MetadataLog
from odradek_broker.controller.partition_changes import RECOVERING
from odradek_broker.controller.result import ControllerResult, Sweep
from odradek_broker.controller.topics import Charge, free, partitions_asked_for
from odradek_broker.metadata.delta import MetadataDelta, PartitionChange
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.publisher import MetadataPublisher
from odradek_broker.metadata.records import MetadataRecord
from odradek_broker.model.principal import Principal
from odradek_broker.raft.values import ReplicaKey
from odradek_broker.runtime.clock import Clock, SystemClock
from odradek_broker.runtime.settings import Settings
from odradek_broker.runtime.slices import Slices
from odradek_broker.runtime.tasks import Scheduler
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId, LeaderEpoch
from odradek_protocol.messages.struct import Struct

logger = logging.getLogger(__name__)

T = TypeVar("T")

# The end of a broker may cause more records than fit into one batch. They need not be atomic: the
# next controller continues. Requests stay far below this (10,000 partitions).
RECORDS_PER_BATCH_MAX = 25_000
# A request about more partitions than this is decided in a thread: it would block the loop for
# longer than 50 ms.
LARGE_PARTITIONS = 200


def with_sweep(result: ControllerResult[T]) -> Callable[[], ControllerResult[T]]:
    """The complete decision, including its sweep."""
    return lambda: ControllerResult(result.all_records(), result.response)


class ControllerService:
    def __init__(
        self,
        settings: Settings,
        rng: Random,
        log: MetadataLog,
        metadata: MetadataPublisher,
        cluster_id: str,
        clock: Clock | None = None,
        scheduler: Scheduler | None = None,
    ) -> None:
        """Without a scheduler, long work is not divided into slices."""
        self.node_id = BrokerId(settings.node_id)
        self.cluster_id = cluster_id
        self._settings = settings
        self._rng = rng
        self._log = log
        self._metadata = metadata
        self._clock = clock or SystemClock()
        self._slices = Slices(self._clock, scheduler) if scheduler else None
        self._active: ActiveController | None = None
        # Set by the caller of `tick`: called when `next_tick_ms` has become earlier.
        self.on_due_earlier: Callable[[], None] = lambda: None
        # Set before the start: SCRAM credentials that a cluster formed by this node begins with.
        self.first_users: Sequence[MetadataRecord] = ()
        self._last_append: asyncio.Future[None] | None = None
        # Set while a thread works on a decision, so that no other decision is made; done when its
        # records are appended.
        self._sweeping: asyncio.Future[None] | None = None
        # Periodic tasks that are still to be decided in this round; empty between rounds.
        self._tasks_left: deque[PeriodicTask] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self.unclean_elections = 0  # while this node was the active controller
        metadata.subscribe(self._committed)

    @property
    def image(self) -> MetadataImage:
        """Everything committed, as far as this broker knows."""
        return self._metadata.image

    @property
    def epoch(self) -> LeaderEpoch:
        return self._log.epoch

    # -- leadership of the quorum -----------------------------------------------------------

    @property
    def is_active(self) -> bool:
        return self._active is not None

    @property
    def context(self) -> ControllerContext | None:
        """The states of replicas and partitions, read-only; None while not active."""
        return self._active.context if self._active else None

    def become_active(self, epoch: LeaderEpoch, image: MetadataImage) -> None:
        """This node leads the quorum; `image` has everything committed by its predecessors."""
        self._active = ActiveController(
            Term(epoch, image, self._clock.monotonic_ms()),
            self._settings,
            self._rng,
            self.cluster_id,
            wall_ms=self._clock.now_ms,
            in_slices=self._slices.add if self._slices else at_once,
        )
        records = self._active.first_records(self.first_users)
        if records:
            try:
                self._append(self._active, records)
            except KafkaError as error:  # deposed while paused; LostLeadership follows
                logger.info("the controller of epoch %d was deposed at once: %s", epoch, error)

    def resign(self) -> None:
        """This node does not lead any more."""
        self._active = None
        self._tasks_left.clear()
        self._sweeping = None

    def _committed(self, delta: MetadataDelta, _: LeaderEpoch) -> None:
        if self._active is not None:
            self._active.committed(delta)
            self.unclean_elections += sum(map(_is_unclean_election, delta.changed_partitions()))

    # -- periodic work ----------------------------------------------------------------------

    def tick(self) -> None:
        """Runs the periodic tasks that are due; call it no later than `next_tick_ms`."""
        active = self._active
        if active is None or self._sweeping is not None:
            return
        if not self._tasks_left:
            self._tasks_left.extend(PeriodicTask)
        try:
            while self._tasks_left:
                task = self._tasks_left.popleft()
                result = active.decide_periodic(task, self._clock.monotonic_ms())
                if result.sweep is not None:
                    self._sweep_in_background(active, result.sweep)
                    return  # the rest of the round follows when it is appended
                if result.records:
                    self._append(active, result.records)
        except KafkaError as error:  # deposed: LostLeadership follows
            logger.info("periodic work of the controller stops: %s", error)
            self._tasks_left.clear()

    def _sweep_in_background(self, active: ActiveController, sweep: Sweep) -> None:
        async def run() -> None:
            try:
                await self._in_thread(active, lambda: ControllerResult(sweep(), None))
            except KafkaError as error:
                logger.info("periodic work of the controller stops: %s", error)
                self._tasks_left.clear()
            self.on_due_earlier()

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def was_away(self, pause_ms: float) -> None:
        """This process read no requests for `pause_ms`: it does not count against any session."""
        if self._active is not None:
            self._active.was_away(pause_ms, self._clock.monotonic_ms())

    def lost_contact(self, broker_id: BrokerId) -> None:
        """The broker's connection to this node broke: it may be dead, see heartbeats.py."""
        if self._active is not None:
            self._active.lost_contact(broker_id, self._clock.monotonic_ms())
            self.on_due_earlier()

    def next_tick_ms(self) -> float:
        """When `tick` is due, in monotonic time; infinity while not active."""
        if self._active is None or self._sweeping is not None:
            return float("inf")
        return 0.0 if self._tasks_left else self._active.next_periodic_ms()

    def voter_change(
        self, voters: Collection[ReplicaKey], observers: Collection[ReplicaKey]
    ) -> voters_rules.VoterChange:
        """The next change of the voters, if one is due; see voters.py.

        Against the latest image: a broker that may stop must not become a voter meanwhile.
        """
        if self._active is None:
            return None
        listed, latest = self._settings.quorum_voters, self._active.latest
        return voters_rules.voter_change(latest, voters, observers, self.node_id, listed)

    async def remember_voter_removal(self, node_id: int) -> None:
        """Before an operator's RemoveRaftVoter: the node is not made a voter again by itself."""
        active = await self._turn()
        await self._commit(active, voters_rules.remember_removal(active.latest, node_id))

    async def forget_voter_removal(self, node_id: int) -> None:
        active = await self._turn()
        await self._commit(active, voters_rules.forget_removal(active.latest, node_id))

    # -- requests of brokers: decoded in, response out ------------------------------------------

    async def broker_registration(self, request: Struct) -> Struct:
        active = await self._turn()
        now_ms = self._clock.monotonic_ms()
        result = active.register_broker(request, self._log.next_offset, now_ms)
        if result.sweep is not None:
            return await self._in_thread(active, with_sweep(result))
        return await self._commit(active, result)

    async def broker_heartbeat(self, request: Struct) -> Struct:
        active = self._decider()
        result = active.heartbeat(request, self._log.next_offset, self._clock.monotonic_ms())
        if not (result.sweep or result.records or result.response.should_shut_down):
            # The response promises nothing that needs a commit: a heartbeat must not wait until ten
            # thousand new partitions are committed.
            return result.response
        sessions, broker_id = active.sessions, request.broker_id
        sessions.answering(broker_id)
        try:
            return await self._answer_heartbeat(active, request, result)
        finally:
            sessions.answered(broker_id, self._clock.monotonic_ms())
            self.on_due_earlier()

    async def _answer_heartbeat(
        self, active: ActiveController, request: Struct, result: ControllerResult[Struct]
    ) -> Struct:
        """A heartbeat that changes something; answered when that is committed."""
        if result.sweep is not None and self._sweeping is not None:
            active = await self._turn()
            result = active.heartbeat(request, self._log.next_offset, self._clock.monotonic_ms())
        if result.sweep is not None:
            return await self._in_thread(active, with_sweep(result))
        return await self._commit(active, result)

    async def alter_partition(self, request: Struct) -> Struct:
        active = await self._turn()
        if sum(len(topic.partitions) for topic in request.topics) > LARGE_PARTITIONS:
            return await self._in_thread(active, partial(active.alter_partition, request))
        return await self._commit(active, active.alter_partition(request))

    async def assign_replicas_to_dirs(self, request: Struct) -> Struct:
        active = await self._turn()
        topics_of = (directory.topics for directory in request.directories)
        if sum(len(t.partitions) for found in topics_of for t in found) > LARGE_PARTITIONS:
            return await self._in_thread(active, partial(active.assign_replicas_to_dirs, request))
        return await self._commit(active, active.assign_replicas_to_dirs(request))

    async def allocate_producer_ids(self, request: Struct) -> Struct:
        active = await self._turn()
        return await self._commit(active, active.allocate_producer_ids(request))

    # -- requests of operators ------------------------------------------------------------------

    async def create_topics(self, request: Struct, charge: Charge = free) -> Struct:
        active = await self._turn()
        decide = partial(
            topics.create_topics, settings=self._settings, rng=self._rng, charge=charge
        )
        if partitions_asked_for(request.topics, self._settings) > LARGE_PARTITIONS:
            return await self._in_thread(active, partial(decide, active.latest, request))
        return await self._commit(active, decide(active.latest, request))

    async def delete_topics(self, request: Struct, charge: Charge = free) -> Struct:
        active = await self._turn()
        return await self._commit(active, active.delete_topics(request, charge))

    async def create_partitions(self, request: Struct, charge: Charge = free) -> Struct:
        active = await self._turn()
        decide = partial(topics.create_partitions, rng=self._rng, charge=charge)
        if sum(topic.count for topic in request.topics) > LARGE_PARTITIONS:
            return await self._in_thread(active, partial(decide, active.latest, request))
        return await self._commit(active, decide(active.latest, request))

    async def incremental_alter_configs(self, request: Struct) -> Struct:
        active = await self._turn()
        return await self._commit(active, active.incremental_alter_configs(request))

    async def alter_configs(self, request: Struct) -> Struct:
        active = await self._turn()
        return await self._commit(active, active.alter_configs(request))

    async def alter_partition_reassignments(self, request: Struct) -> Struct:
        active = await self._turn()
        if sum(len(topic.partitions) for topic in request.topics) > LARGE_PARTITIONS:
            return await self._in_thread(
                active, partial(active.alter_partition_reassignments, request)
            )
        return await self._commit(active, active.alter_partition_reassignments(request))

    async def elect_leaders(self, request: Struct) -> Struct:
        active = await self._turn()
        return await self._commit(active, active.elect_leaders(request))

    async def unregister_broker(self, request: Struct) -> Struct:
        active = await self._turn()
        return await self._commit(active, active.unregister_broker(request))

    async def create_acls(self, request: Struct) -> Struct:
        active = await self._turn()
        return await self._commit(active, active.create_acls(request))

    async def delete_acls(self, request: Struct) -> Struct:
        active = await self._turn()
        return await self._commit(active, active.delete_acls(request))

    async def update_features(self, request: Struct) -> Struct:
        active = await self._turn()
        return await self._commit(active, active.update_features(request))

    async def alter_user_scram_credentials(self, request: Struct) -> Struct:
        active = await self._turn()
        return await self._commit(active, active.alter_user_scram_credentials(request))

    async def create_delegation_token(self, request: Struct, principal: Principal) -> Struct:
        active = await self._turn()
        return await self._commit(active, active.create_delegation_token(request, principal))

    async def renew_delegation_token(self, request: Struct, principal: Principal) -> Struct:
        active = await self._turn()
        return await self._commit(active, active.renew_delegation_token(request, principal))

    async def expire_delegation_token(self, request: Struct, principal: Principal) -> Struct:
        active = await self._turn()
        return await self._commit(active, active.expire_delegation_token(request, principal))

    async def alter_client_quotas(self, request: Struct) -> Struct:
        active = await self._turn()
        return await self._commit(active, active.alter_client_quotas(request))

    # -- append, replay, respond ---------------------------------------------------------------

    async def _turn(self) -> ActiveController:
        """The active controller, as soon as no other decision is in progress."""
        while self._sweeping is not None:
            await asyncio.shield(self._sweeping)
        return self._decider()

    def _decider(self) -> ActiveController:
        if self._active is None:
            raise KafkaError(ErrorCode.not_controller, "this broker is not the controller")
        return self._active

    async def _commit(self, active: ActiveController, result: ControllerResult[T]) -> T:
        """Appends the records of a decision and waits for their commit. No other decision may be
        made between decision and append, so callers do not await in between."""
        if result.records:
            await self._append(active, result.records)
            if active.latest.offset == self.image.offset:
                active.latest = self.image  # no record: nothing changed, so keep the existing image
        elif self._last_append is not None and not self._last_append.done():
            # The decision depends on records that may never be committed. If the response came too
            # early, a leader whose ISR "is changed already" could wait for the change for ever.
            await asyncio.shield(self._last_append)
        return result.response

    async def _in_thread(
        self, active: ActiveController, decide: Callable[[], ControllerResult[T]]
    ) -> T:
        """A decision about thousands of partitions: made and encoded in a thread, because it is a
        pure function. Other decisions wait until it is appended."""
        done = self._sweeping = asyncio.get_running_loop().create_future()
        try:
            response, batches = await asyncio.to_thread(self._prepare, active.latest, decide)
            if self._active is not active or self._log.epoch != active.epoch:
                raise KafkaError(ErrorCode.not_controller, "another controller was elected")
            for records, data, delta in batches:
                delta.rebase(active.latest)
                self._append_batch(active, records, data, delta)
        finally:
            if self._sweeping is done:
                self._sweeping = None
            done.set_result(None)
        return await self._commit(active, ControllerResult([], response))

    def _prepare(
        self, image: MetadataImage, decide: Callable[[], ControllerResult[T]]
    ) -> tuple[T, list[tuple[Sequence[MetadataRecord], bytes, MetadataDelta]]]:
        result = decide()
        batches = []
        for at in range(0, len(result.records), RECORDS_PER_BATCH_MAX):
            records = result.records[at : at + RECORDS_PER_BATCH_MAX]
            delta = delta_of(image, records)
            image = delta.finish(image.offset).after
            batches.append((records, self._log.batch_of(records), delta))
        return result.response, batches

    def _append(
        self, active: ActiveController, records: Sequence[MetadataRecord]
    ) -> asyncio.Future[None]:
        """Appends records; the future is done when all are committed and published."""
        if self._log.epoch != active.epoch:
            raise KafkaError(ErrorCode.not_controller, "another controller was elected")
        for at in range(0, len(records), RECORDS_PER_BATCH_MAX):
            batch = records[at : at + RECORDS_PER_BATCH_MAX]
            committed = self._append_batch(active, batch, None, delta_of(active.latest, batch))
        return committed

    def _append_batch(
        self,
        active: ActiveController,
        records: Sequence[MetadataRecord],
        data: bytes | None,
        delta: MetadataDelta,
    ) -> asyncio.Future[None]:
        """`delta` is the delta of the records on `active.latest`, not finished yet."""
        delta.finish(self._log.next_offset + len(records) - 1)
        committed = self._log.append(records, data, delta)
        active.latest = delta.after
        self._last_append = committed
        return committed


def _is_unclean_election(change: PartitionChange) -> bool:
    """The new leader is marked as recovering: it may lack committed records."""
    before, after = change.before, change.after
    return (
        before is not None
        and after.leader_epoch != before.leader_epoch
        and after.leader_recovery_state == RECOVERING
        and after.leader >= 0
    )
