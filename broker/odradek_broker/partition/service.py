"""All partitions of this broker, the deferred write at the end of each loop pass, the timers.

Handlers append and read through this. The end of a pass is where everything that waits is
told: one writev per partition that got data, then produce requests (acks), then fetches that
waited for data, each once however many of their partitions moved.
"""

import logging

from odradek_broker.log.errors import LogDirError
from odradek_broker.log.manager import LogManager
from odradek_broker.metadata.delta import MetadataDelta, PartitionChange
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.model.errors import ErrorCode, KafkaError
from odradek_broker.model.ids import BrokerId, TopicPartition
from odradek_broker.partition.partition import Partition
from odradek_broker.partition.waiting import Deadlines, FetchTicket, Ticket
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.settings import Settings
from odradek_broker.runtime.tasks import Cancellable, Scheduler, Threads

logger = logging.getLogger(__name__)


class PartitionService:
    def __init__(
        self,
        node_id: BrokerId,
        settings: Settings,
        logs: LogManager,
        clock: Clock,
        scheduler: Scheduler,
        threads: Threads,
    ) -> None:
        self._node_id = node_id
        self._settings = settings
        self.logs = logs
        self._clock = clock
        self._scheduler = scheduler
        self._threads = threads
        # Keyed by plain tuples (a TopicPartition equals its tuple): the hot path looks up
        # with what it decoded, a name or the 16 bytes of a topic id, without building objects.
        self.by_name: dict[tuple[str, int], Partition] = {}
        self.by_id: dict[tuple[bytes, int], Partition] = {}
        self._dirty: dict[Partition, None] = {}
        self.produce_waiting = Deadlines()
        self.fetch_waiting = Deadlines()
        self._timer: Cancellable | None = None
        self._timer_at_ms = float("inf")

    # --- which partitions are here -------------------------------------------------------

    def apply(self, delta: MetadataDelta) -> None:
        """Brings this broker in line with what the controller decided."""
        for topic in delta.deleted_topics.values():
            for index in topic.partitions:
                self._delete(TopicPartition(topic.name, index))
        # Broker settings are the defaults under every topic's own.
        all_topics = delta.broker_config_changed(self._node_id)
        for name in delta.after.topics if all_topics else delta.changed_topic_configs():
            self._reconfigure(delta.after, name)
        for change in delta.changed_partitions():
            if self._node_id in change.after.replicas:
                self._host(delta.after, change)

    def set_aside_strays(self) -> None:
        """After the first `apply`: logs on disk that belong to no partition of this broker."""
        for topic_partition in [tp for tp in self.logs.logs if tp not in self.by_name]:
            self.logs.set_aside(topic_partition)

    def _host(self, image: MetadataImage, change: PartitionChange) -> None:
        name, index = change.topic.name, change.partition
        partition = self.by_name.get((name, index))
        if partition is None:
            config = self._settings.log_config(image.topic_config(name))
            log = self.logs.get_or_create(TopicPartition(name, index), change.topic.id, config)
            partition = Partition(TopicPartition(name, index), change.topic.id.bytes, log)
            self.by_name[name, index] = partition
            self.by_id[partition.topic_id, index] = partition
        partition.update(change.after)

    def _delete(self, topic_partition: TopicPartition) -> None:
        """Takes a partition away; whoever waits on it learns that it is gone."""
        partition = self.by_name.pop(topic_partition, None)
        if partition is None:
            return
        self.by_id.pop((partition.topic_id, topic_partition.partition), None)
        self._dirty.pop(partition, None)
        partition.refuse_waiters(ErrorCode.not_leader_or_follower)
        for ticket in tuple(partition.fetch_waiters):
            ticket.on_progress()
        self.logs.delete(topic_partition)

    def _reconfigure(self, image: MetadataImage, topic: str) -> None:
        config = self._settings.log_config(image.topic_config(topic))
        for index in image.topics[topic].partitions:
            partition = self.by_name.get((topic, index))
            if partition is not None:
                partition.log.update_config(config)

    def get(self, topic: str, partition: int) -> Partition:
        found = self.by_name.get((topic, partition))
        if found is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition)
        return found

    # --- the deferred write --------------------------------------------------------------

    def mark_dirty(self, partition: Partition) -> None:
        """`partition` has queued appends; they are written at the end of this loop pass."""
        if not self._dirty:
            self._scheduler.call_soon(self.end_of_pass)
        self._dirty[partition] = None

    def end_of_pass(self) -> None:
        dirty, self._dirty = self._dirty, {}
        progressed: dict[FetchTicket, None] = {}
        for partition in dirty:
            log = partition.log
            try:
                log.write_pending()
            except LogDirError as error:
                self._disk_failed(partition, error)
                continue
            if log.written_offset - log.recovery_point >= log.config.flush_messages:
                self._flush_first(partition)
            elif partition.settle(log.written_offset) and partition.fetch_waiters:
                progressed.update(dict.fromkeys(partition.fetch_waiters))
        for ticket in progressed:
            ticket.on_progress()

    def _flush_first(self, partition: Partition) -> None:
        """`flush.messages` asks for an fsync: in a thread, and nobody is told before it is done.

        Appends that arrive meanwhile share the next one (group commit).
        """
        if partition.flushing:
            return
        partition.flushing = True
        written = partition.log.written_offset

        def done(error: BaseException | None) -> None:
            partition.flushing = False
            if isinstance(error, LogDirError):
                self._disk_failed(partition, error)
                return
            assert error is None, error
            if partition.settle(written):
                for ticket in tuple(partition.fetch_waiters):
                    ticket.on_progress()
            if partition.log.written_offset > written:
                self.mark_dirty(partition)

        self._threads.run(partition.log.flush, done)

    def _disk_failed(self, partition: Partition, error: LogDirError) -> None:
        logger.error("%s: %s", partition.topic_partition, error)
        partition.refuse_waiters(ErrorCode.kafka_storage_error)

    # --- waiting -------------------------------------------------------------------------

    def park(self, ticket: Ticket, deadlines: Deadlines) -> None:
        deadlines.add(ticket)
        if ticket.deadline_ms < self._timer_at_ms:
            self._set_timer(ticket.deadline_ms)

    def _set_timer(self, at_ms: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = at_ms
        delay_ms = max(0.0, at_ms - self._clock.monotonic_ms())
        self._timer = self._scheduler.call_later(delay_ms / 1000.0, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_at_ms = float("inf")
        now_ms = self._clock.monotonic_ms()
        upcoming = []
        for deadlines in (self.produce_waiting, self.fetch_waiting):
            deadlines.expire(now_ms)
            next_ms = deadlines.next_deadline_ms()
            if next_ms is not None:
                upcoming.append(next_ms)
        # A handler may have parked a new ticket from within expire().
        if upcoming and min(upcoming) < self._timer_at_ms:
            self._set_timer(min(upcoming))

    def release_fetches(self) -> None:
        """The broker stops: a fetch that waits for data is answered with what there is."""
        self.fetch_waiting.expire(float("inf"))
