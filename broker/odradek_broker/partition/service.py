"""All partitions of this broker, as the rest of the broker sees them.

    command_queue.py        carries out the decisions of the metadata log, in order and in slices
    hosting.py              partitions are opened, led, followed, reconfigured and taken away
    write_pass.py           leaders' state; one writev per partition at the end of a loop pass
    isolation.py            leaders that no controller answers
    failed_directories.py   partitions whose log directory failed or is full
    hosted.py               the table of partitions that all of them share
    load_history.py         the load of each replica in the last minute, hour and day

`replication/` attaches itself here (`attach`): it fetches for followers and sends proposals to the
controller.
"""

from collections.abc import Callable, Collection
from uuid import UUID

from odradek_broker.log.errors import LogDirError
from odradek_broker.log.manager import LogManager
from odradek_broker.log.producer_state import EndTxnMarker
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.partition import leader_events
from odradek_broker.partition.command_queue import CommandQueue
from odradek_broker.partition.commands import Command
from odradek_broker.partition.failed_directories import FailedDirectories
from odradek_broker.partition.hosted import HostedPartitions, Replication
from odradek_broker.partition.hosting import Hosting
from odradek_broker.partition.isolation import Isolation
from odradek_broker.partition.load_history import SAMPLE_SECONDS, LoadHistory
from odradek_broker.partition.moving import ReplicaMover
from odradek_broker.partition.partition import Partition
from odradek_broker.partition.throttle import Direction, ReplicationThrottle
from odradek_broker.partition.waiting import Deadlines, Purgatory
from odradek_broker.partition.write_pass import WritePass
from odradek_broker.runtime.clock import Clock, cpu_seconds
from odradek_broker.runtime.settings import Settings
from odradek_broker.runtime.slices import Slices
from odradek_broker.runtime.tasks import Scheduler, Threads
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId, Offset, ProducerId, TopicPartition

# How soon the failure of a log directory is noticed that nothing was written to.
CHECK_SECONDS = 1.0


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
        self.logs = logs
        self._clock = clock
        self._scheduler = scheduler
        self.load_history = LoadHistory(clock.monotonic_ms(), cpu_seconds())
        self._sampling = Slices(clock, scheduler)
        self._hosted = HostedPartitions(node_id)
        self.by_name = self._hosted.by_name
        self.by_id = self._hosted.by_id
        self.leader_throttle = ReplicationThrottle(Direction.LEADER, node_id, settings)
        self.follower_throttle = ReplicationThrottle(Direction.FOLLOWER, node_id, settings)
        self._writes = WritePass(self._hosted, clock, scheduler, threads, self.directory_failed)
        self._mover = ReplicaMover(
            logs,
            settings,
            clock,
            scheduler,
            threads,
            on_moved=self._hosted.report_directory,
            on_failure=self.directory_failed,
        )
        self._directories = FailedDirectories(self._hosted, self._writes, self._mover, clock)
        self._hosting = Hosting(
            self._hosted, settings, logs, clock, self._writes, self._directories, self._mover
        )
        self._commands = CommandQueue(self._hosting, clock, scheduler, threads)
        self.isolation = Isolation(self._hosted, settings, clock, cut_off)
        self.peers = self._hosting.peers
        self._purgatory = Purgatory(clock, scheduler)
        self.produce_waiting: Deadlines = self._purgatory.add_kind()
        self.fetch_waiting: Deadlines = self._purgatory.add_kind()
        self.park = self._purgatory.park

    @property
    def image(self) -> MetadataImage:
        return self._hosted.image

    def attach(self, replication: Replication) -> None:
        self._hosted.replication = replication
        replication.update_metadata(self.image)
        for partition in self.by_name.values():
            self._hosted.fetch_if_room(partition)
            self._hosted.report_directory(partition)

    def watch_roles(self, topic: str, watcher: Callable[[Partition], None]) -> None:
        """Calls `watcher` now and whenever a partition of the topic gains or loses its role."""
        self._hosted.watch_roles(topic, watcher)

    def start_timers(self) -> None:
        self._scheduler.call_later(CHECK_SECONDS, self._check)
        self._scheduler.call_later(self._isr_check_seconds(), self._check_isrs)
        self._scheduler.call_later(SAMPLE_SECONDS, self._sample_loads)

    def _sample_loads(self) -> None:
        loads = [partition.load for partition in self.by_name.values()]
        now_ms = self._clock.monotonic_ms()
        self._sampling.add(self.load_history.sample(loads, now_ms, cpu_seconds()))
        self._scheduler.call_later(SAMPLE_SECONDS, self._sample_loads)

    def _check(self) -> None:
        """Once a second: directories that failed without a write, and isolated leaders."""
        for log_dir in self.logs.offline_dirs:
            self._directories.leave(log_dir.path)
        self.isolation.refuse_waiters()
        self._scheduler.call_later(CHECK_SECONDS, self._check)

    def _isr_check_seconds(self) -> float:
        return self.peers.lag_time_max_ms / 2000.0

    def _check_isrs(self) -> None:
        self._commands.check_isrs()
        self._scheduler.call_later(self._isr_check_seconds(), self._check_isrs)

    # --- metadata -----------------------------------------------------------------------------

    def await_registration(self, broker_epoch: int) -> None:
        """Take no role before the metadata has this broker's registration with this epoch."""
        self._commands.await_registration(broker_epoch)

    def apply(self, delta: MetadataDelta, controller_epoch: int = 0) -> None:
        """Bring this broker in line with the controller's decisions."""
        self._commands.apply(delta, controller_epoch)

    def execute(self, command: Command) -> None:
        """Carry out one command, unless one of a newer controller came before it."""
        self._commands.execute(command)

    @property
    def settled(self) -> bool:
        """Every change that was given to `apply` is carried out."""
        return self._commands.settled

    @property
    def refused_commands(self) -> int:
        return self._commands.refused_commands

    def is_opening(self, topic: str) -> bool:
        """Whether partitions of a topic that is to be hosted here are not open yet."""
        return self._commands.is_opening(topic)

    def stop_commands(self) -> None:
        """The broker stops: pending commands are carried out at its next start."""
        self._sampling.close()
        self._commands.stop()

    # --- partitions ---------------------------------------------------------------------------

    def get(self, topic: str, partition: int) -> Partition:
        found = self.by_name.get((topic, partition))
        if found is None:
            raise KafkaError(self.why_missing(topic, partition))
        return found

    def why_missing(self, topic: str | bytes, partition: int) -> ErrorCode:
        """The error for a partition that is not hosted here; `topic` is a name or a topic id."""
        if isinstance(topic, str):
            known = self.image.topics.get(topic)
        else:
            known = self.image.topics_by_id.get(UUID(bytes=topic))
            if known is None:
                return ErrorCode.unknown_topic_id
        if known is None or partition not in known.partitions:
            return ErrorCode.unknown_topic_or_partition
        if (known.name, partition) in self._hosted.unopened:
            return ErrorCode.kafka_storage_error
        opening = self._commands.opening
        if (known.name, partition) in opening:
            opening.want((known.name, partition))  # the client will ask again
        # It exists elsewhere: the client has to refresh its metadata.
        return ErrorCode.not_leader_or_follower

    def move_replica(self, topic_partition: TopicPartition, path: str) -> None:
        """Move a replica to another directory of this broker; its own directory cancels a move.

        KafkaError if there is no such directory, or one of the two is offline, or
        (NOT_LEADER_OR_FOLLOWER) the partition is not hosted here yet: it will be opened there.
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

    def step(self, partition: Partition, event: leader_events.Event) -> None:
        """Give the leader of a partition an event. Raises KafkaError for a fetch it refuses."""
        self._writes.step(partition, event)

    @property
    def isr_expands(self) -> int:
        return self._writes.isr_expands

    @property
    def isr_shrinks(self) -> int:
        return self._writes.isr_shrinks

    def is_isolated_leader(self, partition: Partition) -> bool:
        return self.isolation.is_isolated_leader(partition)

    # --- writing ------------------------------------------------------------------------------

    def append_time_ms(self) -> int:
        """Wall time for an append, looked up once per loop pass."""
        return self._writes.append_time_ms()

    def mark_dirty(self, partition: Partition) -> None:
        """The partition has queued appends, or its state moved: handled at the end of this pass."""
        self._writes.mark_dirty(partition)

    def end_of_pass(self) -> None:
        self._writes.end_of_pass()

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

    # --- directories that fail ----------------------------------------------------------------

    def directory_failed(self, error: LogDirError) -> None:
        self._directories.failed(error)

    def leave_directory(self, path: str) -> None:
        """The partitions of this directory have no role until the broker starts again."""
        self._directories.leave(path)

    def fetch_unless_full(self, full_dirs: Collection[str]) -> None:
        """Stops fetching into these directories, and resumes it where there is room again."""
        self._directories.fetch_unless_full(full_dirs)

    # --- stopping -----------------------------------------------------------------------------

    def release_fetches(self) -> None:
        """The broker stops: a fetch that waits for data is answered with the data that exists."""
        self.fetch_waiting.expire(float("inf"))
