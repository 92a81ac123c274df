"""All partitions of this broker: their roles, the deferred write, the timers.

The metadata log decides what is hosted here, who leads and who follows (`apply`); handlers
append and read; followers' fetches and the controller's answers move the leader's state
(`step`). The end of a loop pass is where everything that waits is told: one writev per
partition that got data, then produce requests (acks); and when their answers have left, fetches
that waited, each once however many of their partitions moved.

What needs the network is the business of `replication/`, which attaches itself here
(`Replication`): it fetches for followers and brings proposals to the controller.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol
from uuid import UUID

from odradek_broker.log.errors import LogDirError
from odradek_broker.log.manager import LogManager
from odradek_broker.log.producer_state import EndTxnMarker
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import (
    EMPTY_IMAGE,
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
)
from odradek_broker.model.log_config import LogConfig
from odradek_broker.partition import replica_state
from odradek_broker.partition.commands import (
    Command,
    LeaderAndIsr,
    StopReplica,
    UpdateMetadata,
    commands_of,
    commands_of_image,
)
from odradek_broker.partition.moving import ReplicaMover
from odradek_broker.partition.opening import Opening
from odradek_broker.partition.partition import Partition
from odradek_broker.partition.replica_state import Peers
from odradek_broker.partition.throttle import Direction, ReplicationThrottle
from odradek_broker.partition.waiting import Deadlines, ProgressListener, Purgatory
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.rate_limited_log import RateLimitedLog
from odradek_broker.runtime.settings import Settings
from odradek_broker.runtime.slices import Slices
from odradek_broker.runtime.tasks import Scheduler, Threads
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId, Offset, ProducerId, TopicPartition

logger = logging.getLogger(__name__)

# How soon a failed log directory is noticed that nobody wrote to.
CHECK_SECONDS = 1.0
# What failed for want of a descriptor is tried again after this long.
RETRY_SECONDS = 0.2
# Looked at in one step of `_look_at_isrs`: far less than a slice.
ISRS_PER_STEP = 100


class Replication(Protocol):
    """What `replication/service.py` does for partitions."""

    def follow(self, partition: Partition) -> None:
        """`partition.following` is new: fetch for it, from its leader."""

    def unfollow(self, partition: Partition) -> None:
        """It is a follower no longer, or not here any more."""

    def propose(self, partition: Partition, proposal: replica_state.Propose) -> None:
        """Bring this to the controller; its answer comes back through `step`."""

    def assign_directory(self, partition: Partition, directory_id: UUID) -> None:
        """Tell the controller that the replica is in this log directory."""

    def update_metadata(self, image: MetadataImage) -> None: ...


class PartitionService:
    def __init__(
        self,
        node_id: BrokerId,
        settings: Settings,
        logs: LogManager,
        clock: Clock,
        scheduler: Scheduler,
        threads: Threads,
        cut_off: Callable[[], bool] = lambda: False,
    ) -> None:
        self._node_id = node_id
        self._settings = settings
        self.logs = logs
        self._clock = clock
        self._scheduler = scheduler
        self._threads = threads
        self.peers = Peers(node_id, lag_time_max_ms=float(settings.int("replica.lag.time.max.ms")))
        self.image: MetadataImage = EMPTY_IMAGE
        # Keyed by plain tuples (a TopicPartition equals its tuple): the hot path looks up
        # with what it decoded, a name or the 16 bytes of a topic id, without building objects.
        self.by_name: dict[tuple[str, int], Partition] = {}
        self.by_id: dict[tuple[bytes, int], Partition] = {}
        self.leader_throttle = ReplicationThrottle(Direction.LEADER, node_id, settings)
        self.follower_throttle = ReplicationThrottle(Direction.FOLLOWER, node_id, settings)
        self.cut_off = cut_off  # whether no controller answers this broker
        self.refused_commands = 0
        self.isr_expands = 0
        self.isr_shrinks = 0
        self._brokers: Mapping[BrokerId, BrokerRegistration] = {}  # as `peers` has them
        self._controller_epoch = -1
        self._awaited_epoch: int | None = None  # see await_registration
        self._replication: Replication | None = None
        self._role_watchers: dict[str, Callable[[Partition], None]] = {}
        self._dirty: dict[Partition, None] = {}
        self._append_time_ms = -1  # unknown in this loop pass
        self._unopened: set[tuple[str, int]] = set()  # to be hosted here, but their log fails
        self._full_dirs: frozenset[str] = frozenset()  # nothing is fetched into these
        self._limited = RateLimitedLog(logger)
        self._mover = ReplicaMover(
            logs,
            settings,
            clock,
            scheduler,
            threads,
            on_moved=self._check_directory,
            on_failure=self.directory_failed,
        )
        self._slices = Slices(clock, scheduler)
        self._opening = Opening(logs, self._config_of, threads, self._slices, self._made)
        self._purgatory = Purgatory(clock, scheduler)
        self.produce_waiting: Deadlines = self._purgatory.add_kind()
        self.fetch_waiting: Deadlines = self._purgatory.add_kind()
        self.park = self._purgatory.park

    def attach(self, replication: Replication) -> None:
        self._replication = replication
        replication.update_metadata(self.image)
        for partition in self.by_name.values():
            self._fetch_if_room(partition)
            self._check_directory(partition)

    def watch_roles(self, topic: str, watcher: Callable[[Partition], None]) -> None:
        """It hears, now and later, when a partition of the topic leads or does not any more."""
        self._role_watchers[topic] = watcher
        for partition in list(self.by_name.values()):
            if partition.topic_partition.topic == topic:
                watcher(partition)

    def _tell_role(self, partition: Partition) -> None:
        watcher = self._role_watchers.get(partition.topic_partition.topic)
        if watcher is not None:
            watcher(partition)

    def start_timers(self) -> None:
        self._scheduler.call_later(CHECK_SECONDS, self._check)
        self._scheduler.call_later(self._isr_check_seconds(), self._check_isr)

    # --- what the metadata log says ---------------------------------------------------------

    def await_registration(self, broker_epoch: int) -> None:
        """Take no role before the metadata says that this broker is registered with this epoch.

        What is older than the registration speaks of the process before this one. It may have
        led alone; who took up that role again would commit what nobody else will ever see.
        Call it before the first `apply` (with a number that no broker epoch reaches, if the
        registration is still to come) and again when the controller has given the epoch.
        """
        self._awaited_epoch = broker_epoch
        self._take_roles_if_registered()

    def apply(self, delta: MetadataDelta, controller_epoch: int = 0) -> None:
        """Bring this broker in line with what the controller decided.

        Little is done when this returns, much is done in slices (`settled`); what comes later
        is done after it.
        """
        self.image = delta.after
        if self._awaited_epoch is None:
            commands = commands_of(delta, self._node_id, controller_epoch)
            self._slices.add(self._carry_out(commands))
            return
        self._controller_epoch = max(self._controller_epoch, controller_epoch)
        self._take_roles_if_registered()

    def _take_roles_if_registered(self) -> None:
        registration = self.image.brokers.get(self._node_id)
        if registration is None or registration.epoch < (self._awaited_epoch or 0):
            return
        self._awaited_epoch = None
        commands = commands_of_image(self.image, self._node_id, self._controller_epoch)
        self._slices.add(self._take_roles(commands))

    def _take_roles(self, commands: Iterable[Command | None]) -> Iterator[None]:
        yield from self._carry_out(commands)
        self.clear_strays()

    @property
    def settled(self) -> bool:
        """All that `apply` was told is carried out."""
        return self._slices.idle and self._opening.idle

    def is_opening(self, topic: str) -> bool:
        """Whether partitions of a topic that is to be hosted here are not open yet."""
        if self._opening.waits(topic):
            return True
        known = self.image.topics.get(topic)
        if known is None or self._slices.idle:
            return False
        return any(
            self._node_id in partition.replicas and (topic, index) not in self.by_name
            for index, partition in known.partitions.items()
        )

    def stop_commands(self) -> None:
        """The broker stops: what is not carried out by now is done at its next start."""
        self._opening.close()
        self._slices.close()

    def clear_strays(self) -> None:
        """Logs that are not of this broker: of moved replicas (deleted), or of no topic (kept).

        A topic is not gone before all its replicas are, so a log of no topic is what a crash
        left, or all that is left of a metadata log that somebody lost.
        """
        for topic_partition in [tp for tp in self.logs.logs if tp not in self.by_name]:
            topic = self.image.topics.get(topic_partition.topic)
            known = topic and topic.partitions.get(topic_partition.partition)
            if known and self._node_id in known.replicas:
                continue
            try:
                if topic is None:
                    self.logs.set_aside(topic_partition)
                else:
                    logger.info("%s was moved to other brokers: deleting", topic_partition)
                    self.logs.delete(topic_partition)
            except LogDirError as error:
                self.directory_failed(error)

    def _carry_out(self, commands: Iterable[Command | None]) -> Iterator[None]:
        for command in commands:
            if command is None:
                pass
            elif isinstance(command, UpdateMetadata):
                if self._may_carry_out(command):
                    yield from self._update_metadata(command)
            else:
                self._try(command, self.execute)
            yield None

    def _try(self, command: Command, action: "Callable[[Any], None]") -> None:
        """One partition's trouble must not keep the others from their roles."""
        try:
            action(command)
        except KafkaError as error:
            self._not_carried_out(command, error)
        except Exception:
            logger.exception("%s failed; this is a bug in Odradek", type(command).__name__)

    def _not_carried_out(self, command: Command, error: KafkaError) -> None:
        what = type(command).__name__
        if not isinstance(command, UpdateMetadata):
            what += f" of {command.topic_partition}"
        key = error.path if isinstance(error, LogDirError) else type(command).__name__
        self._limited.error(key, self._clock.monotonic_ms(), "%s: %s", what, error)
        if isinstance(error, LogDirError):
            self.directory_failed(error)
            if not error.offline and isinstance(command, LeaderAndIsr):
                self._scheduler.call_later(RETRY_SECONDS, self._retry, command)

    def _retry(self, command: LeaderAndIsr) -> None:
        """What the metadata says by now; the partition may have moved or be deleted."""
        name, index = command.topic_partition
        topic = self.image.topics.get(name)
        if topic is None or topic.id != command.topic_id:
            return
        registration = topic.partitions.get(index)
        if registration is not None and self._node_id in registration.replicas:
            epoch = max(command.controller_epoch, self._controller_epoch)
            again = replace(command, controller_epoch=epoch, registration=registration)
            self._slices.add(self._carry_out([again]))

    def execute(self, command: Command) -> None:
        """Carry out one command, unless a newer controller has spoken already."""
        if not self._may_carry_out(command):
            return
        match command:
            case StopReplica():
                self._stop_replica(command)
            case UpdateMetadata():
                for _ in self._update_metadata(command):
                    pass
            case LeaderAndIsr():
                self._leader_and_isr(command)

    def _may_carry_out(self, command: Command) -> bool:
        if command.controller_epoch < self._controller_epoch:
            self.refused_commands += 1
            logger.warning(
                "%s of controller epoch %d refused, have heard of %d",
                type(command).__name__,
                command.controller_epoch,
                self._controller_epoch,
            )
            return False
        self._controller_epoch = command.controller_epoch
        return True

    def _update_metadata(self, command: UpdateMetadata) -> Iterator[None]:
        image = command.image
        for topic in command.topics:
            self._reconfigure(image, topic)
            yield None
        if image.brokers is self._brokers:
            return
        self._brokers = image.brokers
        peers = self.peers
        peers.registered = {broker.id: broker.epoch for broker in image.brokers.values()}
        peers.eligible = frozenset(broker.id for broker in image.usable_brokers())
        peers.broker_epoch = peers.registered.get(self._node_id, -1)
        if self._replication is not None:
            self._replication.update_metadata(image)
        yield from self._look_at_isrs()

    def _leader_and_isr(self, command: LeaderAndIsr) -> None:
        if command.topic_partition not in self.by_name and self._is_for_later(command):
            self._opening.put(command)
        else:
            self._open_or_change(command)

    def _is_for_later(self, command: LeaderAndIsr) -> bool:
        """There is much to do, and this needs new files; or an earlier command for it waits."""
        topic_partition = command.topic_partition
        return topic_partition in self._opening or (
            self._slices.continued and topic_partition not in self.logs.logs
        )

    def _made(self, command: LeaderAndIsr, error: Exception | None) -> None:
        """A partition's files are there now, or could not be made."""
        if error is None:
            self._try(command, self._open_or_change)
            return
        self._unopened.add(command.topic_partition)

        def fail(_: LeaderAndIsr) -> None:
            raise error

        self._try(command, fail)

    def _open_or_change(self, command: LeaderAndIsr) -> None:
        registration = command.registration
        partition = self._hosted(command)
        if (registration.leader_epoch, registration.partition_epoch) < (
            partition.leader_epoch,
            partition.partition_epoch,
        ):
            return  # overtaken by the controller's answer to a proposal of ours
        if partition.log.log_dir.failure is not None:
            self._leave_role(partition)
            partition.take_no_role(registration)  # until the broker starts again
        elif registration.leader_epoch > partition.leader_epoch:
            self._take_role(partition, registration)
        else:
            partition.registration = registration
            changed = replica_state.PartitionChanged(
                registration.partition_epoch, registration.replicas, registration.isr
            )
            self.step(partition, changed)
        self._check_directory(partition)

    def _take_role(self, partition: Partition, registration: PartitionRegistration) -> None:
        """A new leader epoch: lead, or follow; whoever waits at this partition looks again."""
        replication = self._replication
        if replication is not None and partition.following is not None:
            replication.unfollow(partition)
        waiting = partition.all_fetch_waiters()
        if registration.leader == self._node_id:
            now_ms = self._clock.monotonic_ms()
            self._obey(partition, partition.lead(registration, self.peers, now_ms))
            self.mark_dirty(partition)
        else:
            self._dirty.pop(partition, None)
            backoff_max_ms = float(self._settings.int("replica.fetch.backoff.ms"))
            partition.follow(registration, backoff_max_ms)
            self._fetch_if_room(partition)
        for listener in waiting:
            listener.on_progress((partition,))
        self._tell_role(partition)

    def _fetch_if_room(self, partition: Partition) -> None:
        if (
            self._replication is not None
            and partition.following is not None
            and partition.log.log_dir.path not in self._full_dirs
        ):
            self._replication.follow(partition)

    def _check_directory(self, partition: Partition) -> None:
        """The controller has to know where the replica is, in case that the directory fails."""
        directory_id = partition.log.log_dir.directory_id
        if (
            self._replication is not None
            and partition.directory_known_as(self._node_id) != directory_id
        ):
            self._replication.assign_directory(partition, directory_id)

    def _hosted(self, command: LeaderAndIsr) -> Partition:
        name, index = command.topic_partition
        partition = self.by_name.get((name, index))
        if partition is None:
            self._unopened.add((name, index))
            log = self.logs.get_or_create(
                command.topic_partition,
                command.topic_id,
                self._config_of(name),
                is_new=command.is_new,
            )
            self._unopened.remove((name, index))
            partition = Partition(command.topic_partition, command.topic_id.bytes, log)
            self.by_name[name, index] = partition
            self.by_id[partition.topic_id, index] = partition
            self._mover.resume(partition)
        return partition

    def _config_of(self, topic: str) -> LogConfig:
        return self._settings.log_config(self.image.topic_config(topic))

    def move_replica(self, topic_partition: TopicPartition, path: str) -> None:
        """To another directory of this broker; back to its own gives a move up.

        KafkaError if there is no such directory, or one of the two is offline, or
        (NOT_LEADER_OR_FOLLOWER) the partition is not here; if it comes, it goes there.
        """
        log_dir = self.logs.dir_of(path)
        partition = self.by_name.get(topic_partition)
        if partition is None:
            error = self.why_missing(*topic_partition)
            if error is ErrorCode.not_leader_or_follower:
                self.logs.prefer(topic_partition, log_dir)
            raise KafkaError(error)
        partition.log.log_dir.check()
        try:
            self._mover.start(partition, log_dir)
        except LogDirError as failed:
            self.directory_failed(failed)
            raise

    def _stop_replica(self, command: StopReplica) -> None:
        """Take a partition away; whoever waits on it learns that it is gone."""
        topic_partition = command.topic_partition
        self._unopened.discard(topic_partition)
        self._opening.cancel(command)
        partition = self.by_name.get(topic_partition)
        if partition is None or partition.topic_id != command.topic_id.bytes:
            return
        del self.by_name[topic_partition]
        self.by_id.pop((partition.topic_id, topic_partition.partition), None)
        self._dirty.pop(partition, None)
        if self._replication is not None:
            self._replication.unfollow(partition)
        waiting = partition.all_fetch_waiters()
        partition.leading = partition.following = None
        partition.refuse_waiters(ErrorCode.not_leader_or_follower)
        for listener in waiting:
            listener.on_progress((partition,))
        self._tell_role(partition)
        try:
            self._mover.cancel(partition)
        except LogDirError as error:
            self.directory_failed(error)
        self.logs.delete(topic_partition)

    def _reconfigure(self, image: MetadataImage, topic: str) -> None:
        if topic not in image.topics:
            return
        config = self._settings.log_config(image.topic_config(topic))
        for index in image.topics[topic].partitions:
            partition = self.by_name.get((topic, index))
            if partition is None:
                continue
            partition.log.update_config(config)
            copy = self.logs.futures.logs.get(partition.topic_partition)
            if copy is not None:
                copy.update_config(config)
            if partition.leading is not None:
                self.step(partition, replica_state.MinIsrChanged(config.min_insync_replicas))

    def get(self, topic: str, partition: int) -> Partition:
        found = self.by_name.get((topic, partition))
        if found is None:
            raise KafkaError(self.why_missing(topic, partition))
        return found

    def why_missing(self, topic: str | bytes, partition: int) -> ErrorCode:
        """What to say of a partition that is not here; `topic` is a name or a topic id."""
        if isinstance(topic, str):
            known = self.image.topics.get(topic)
        else:
            known = self.image.topics_by_id.get(UUID(bytes=topic))
            if known is None:
                return ErrorCode.unknown_topic_id
        if known is None or partition not in known.partitions:
            return ErrorCode.unknown_topic_or_partition
        if (known.name, partition) in self._unopened:
            return ErrorCode.kafka_storage_error
        if (known.name, partition) in self._opening:
            self._opening.want((known.name, partition))  # the client will ask again
        # It exists elsewhere: the client has to look again where.
        return ErrorCode.not_leader_or_follower

    # --- the leader's state -----------------------------------------------------------------

    def step(self, partition: Partition, event: replica_state.Event) -> None:
        """Give the leader of a partition an event. Raises KafkaError for a fetch it refuses."""
        if partition.leading is not None:
            now_ms = self._clock.monotonic_ms()
            in_sync = len(partition.leading.isr)
            moved = self._obey(partition, replica_state.step(partition.leading, event, now_ms))
            self.isr_expands += len(partition.leading.isr) > in_sync
            self.isr_shrinks += len(partition.leading.isr) < in_sync
            if moved or partition.awaits_deletion:
                self.mark_dirty(partition)

    def _obey(self, partition: Partition, instructions: replica_state.Instructions) -> bool:
        """True if the high watermark moved."""
        moved = False
        for instruction in instructions:
            if isinstance(instruction, replica_state.AdvanceHighWatermark):
                partition.log.high_watermark = instruction.high_watermark
                moved = True
            elif self._replication is not None:
                self._replication.propose(partition, instruction)
        return moved

    def _isr_check_seconds(self) -> float:
        return self.peers.lag_time_max_ms / 2000.0

    def _check_isr(self) -> None:
        self._slices.add(self._look_at_isrs())
        self._scheduler.call_later(self._isr_check_seconds(), self._check_isr)

    def _look_at_isrs(self) -> Iterator[None]:
        """Who fell behind, and who may join, in all partitions that are led here."""
        event = replica_state.CheckIsr()
        for at, partition in enumerate(list(self.by_name.values())):
            if partition.leading is not None and partition.leading.followers:
                self.step(partition, event)
            if at % ISRS_PER_STEP == 0:
                yield None

    # --- what this broker itself writes: coordinators ----------------------------------------

    def append_own(self, partition: Partition, batch: bytes, now_ms: int) -> Offset:
        """Queue a batch whose contents are trusted; the offset of its last record."""
        info = partition.append_own(batch, now_ms)
        self.mark_dirty(partition)
        return info.last_offset

    def append_marker(
        self,
        partition: Partition,
        producer: tuple[ProducerId, int],
        marker: EndTxnMarker,
        now_ms: int,
        transaction_version: int = 0,
    ) -> Offset:
        """Queue the end of a producer's transaction; KafkaError if its epochs are too old."""
        info = partition.append_marker(*producer, marker, transaction_version, now_ms)
        self.mark_dirty(partition)
        return info.last_offset

    # --- the deferred write -------------------------------------------------------------------

    def append_time_ms(self) -> int:
        """Wall time for an append, looked up once per loop pass."""
        if self._append_time_ms < 0:
            self._append_time_ms = self._clock.now_ms()
            self._scheduler.call_soon(self._forget_append_time)
        return self._append_time_ms

    def _forget_append_time(self) -> None:
        self._append_time_ms = -1

    def mark_dirty(self, partition: Partition) -> None:
        """It has queued appends, or moved on: dealt with at the end of this loop pass."""
        if not self._dirty:
            self._scheduler.call_soon(self.end_of_pass)
        self._dirty[partition] = None

    def end_of_pass(self) -> None:
        dirty, self._dirty = self._dirty, {}
        now_ms = self._clock.monotonic_ms()
        progressed: dict[ProgressListener, list[Partition]] = {}
        for partition in dirty:
            try:
                self._write_and_settle(partition, now_ms)
            except LogDirError as error:
                self.directory_failed(error)
                if not error.offline:  # all is queued as before
                    self._scheduler.call_later(RETRY_SECONDS, self._write_again, partition)
            except Exception:
                # One partition's trouble must not keep those who wait for others waiting.
                logger.exception("%s; this is a bug in Odradek", partition.topic_partition)
            for listener in partition.take_awake():
                progressed.setdefault(listener, []).append(partition)
        if progressed:
            # After the acknowledgements that were given above have left.
            self._scheduler.call_soon(partial(self._tell_progress, progressed))

    def _write_again(self, partition: Partition) -> None:
        if self.by_name.get(partition.topic_partition) is partition:
            self.mark_dirty(partition)

    def _tell_progress(self, progressed: "dict[ProgressListener, list[Partition]]") -> None:
        for listener, partitions in progressed.items():
            try:
                listener.on_progress(partitions)
            except Exception:
                logger.exception("answering a fetch; this is a bug in Odradek")

    def _write_and_settle(self, partition: Partition, now_ms: float) -> None:
        partition.log.write_pending()
        leading = partition.leading
        if leading is not None:
            if partition.must_flush:
                self._flush_first(partition)
            elif partition.log.written_offset > leading.log_end_offset:
                written = replica_state.Written(partition.log.written_offset)
                self._obey(partition, replica_state.step(leading, written, now_ms))
        partition.settle()

    def _flush_first(self, partition: Partition) -> None:
        """`flush.messages` asks for an fsync: in a thread, and nobody is told before it is done.

        Appends that arrive meanwhile share the next one (group commit).
        """
        if partition.flushing:
            return
        partition.flushing = True
        written = partition.log.written_offset
        leading = partition.leading

        def done(error: BaseException | None) -> None:
            partition.flushing = False
            if isinstance(error, LogDirError):
                self.directory_failed(error)
                if not error.offline:
                    self._scheduler.call_later(RETRY_SECONDS, self._write_again, partition)
                return
            assert error is None, error
            if partition.leading is leading:
                self.step(partition, replica_state.Written(written))
            self.mark_dirty(partition)

        self._threads.run(partition.log.flush, done)

    # --- a leader that was left behind ----------------------------------------------------------

    def leads_in_vain(self, partition: Partition) -> bool:
        """No controller answers this broker, and an in-sync follower is silent: without a
        controller the ISR cannot shrink, so nothing more is committed here, and somebody else
        probably leads by now. Clients who heard only of timeouts would come back here for ever.
        """
        if not self.cut_off() or partition.leading is None:
            return False
        silent_ms = self._settings.int("broker.session.timeout.ms")
        return partition.leading.misses_follower(self._clock.monotonic_ms(), silent_ms)

    @property
    def left_behind(self) -> bool:
        """This broker leads in vain, so what it knows of the cluster is old.

        librdkafka asks the broker that it heard from last, which is this one as long as it
        answers: a client that is refused here must lose its connection to look elsewhere.
        """
        return self.cut_off() and any(map(self.leads_in_vain, self.by_name.values()))

    def _check(self) -> None:
        """Once a second: directories that failed without a write, leaders left behind."""
        for log_dir in self.logs.offline_dirs:
            self.leave_directory(log_dir.path)
        if self.cut_off():
            for partition in self.by_name.values():
                if self.leads_in_vain(partition):
                    partition.refuse_waiters(ErrorCode.not_leader_or_follower)
        self._scheduler.call_later(CHECK_SECONDS, self._check)

    # --- directories that fail ----------------------------------------------------------------

    def directory_failed(self, error: LogDirError) -> None:
        if error.offline:
            self.leave_directory(error.path)
        else:
            self._limited.warning(error.path, self._clock.monotonic_ms(), "%s", error)

    def fetch_unless_full(self, full_dirs: Collection[str]) -> None:
        """Nothing is fetched into these directories, and again into those that have room.

        The leaders note that their follower has stopped, and do not take it into an ISR.
        """
        before, self._full_dirs = self._full_dirs, frozenset(full_dirs)
        changed = before ^ self._full_dirs
        if not changed or self._replication is None:
            return
        for partition in self.by_name.values():
            if partition.following is None or partition.log.log_dir.path not in changed:
                continue
            if partition.log.log_dir.path in self._full_dirs:
                self._replication.unfollow(partition)
            else:
                self._replication.follow(partition)

    def leave_directory(self, path: str) -> None:
        """Its partitions are neither led nor followed here until the broker starts again.

        The controller hears of it with the next heartbeat and elects others.
        """
        self._mover.directory_failed(path)
        for partition in self.by_name.values():
            if partition.log.log_dir.path == path:
                self._leave_role(partition)

    def _leave_role(self, partition: Partition) -> None:
        """Its log cannot be used: whoever waits looks for another leader."""
        self._dirty.pop(partition, None)
        if partition.following is not None and self._replication is not None:
            self._replication.unfollow(partition)
        if partition.leading is not None or partition.following is not None:
            waiting = partition.all_fetch_waiters()
            partition.leading = partition.following = None
            partition.refuse_waiters(ErrorCode.kafka_storage_error)
            for listener in waiting:
                listener.on_progress((partition,))
            self._tell_role(partition)

    # --- stopping -----------------------------------------------------------------------------

    def release_fetches(self) -> None:
        """The broker stops: a fetch that waits for data is answered with what there is."""
        self.fetch_waiting.expire(float("inf"))
