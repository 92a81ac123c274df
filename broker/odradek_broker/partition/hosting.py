"""The partitions of this broker: opens, leads, follows, reconfigures and removes them.

Called by `command_queue.py`, one partition at a time, in the order of the metadata log.
"""

import logging

from odradek_broker.log.errors import LogDirError
from odradek_broker.log.manager import LogManager
from odradek_broker.metadata.image import MetadataImage, PartitionRegistration
from odradek_broker.model.log_config import LogConfig
from odradek_broker.partition import leader_events
from odradek_broker.partition.commands import LeaderAndIsr, StopReplica
from odradek_broker.partition.failed_directories import FailedDirectories
from odradek_broker.partition.hosted import HostedPartitions
from odradek_broker.partition.leader_state import Peers
from odradek_broker.partition.moving import ReplicaMover
from odradek_broker.partition.partition import Partition
from odradek_broker.partition.write_pass import WritePass
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.settings import Settings
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import BrokerId

logger = logging.getLogger(__name__)


class Hosting:
    def __init__(
        self,
        hosted: HostedPartitions,
        settings: Settings,
        logs: LogManager,
        clock: Clock,
        writes: WritePass,
        directories: FailedDirectories,
        mover: ReplicaMover,
    ) -> None:
        self.hosted = hosted
        self.logs = logs
        self.writes = writes
        self.directories = directories
        self.mover = mover
        self._settings = settings
        self._clock = clock
        lag_time_max_ms = float(settings.int("replica.lag.time.max.ms"))
        self.peers = Peers(hosted.node_id, lag_time_max_ms=lag_time_max_ms)

    @property
    def node_id(self) -> BrokerId:
        return self.hosted.node_id

    def config_of(self, topic: str) -> LogConfig:
        return self._settings.log_config(self.hosted.image.topic_config(topic))

    def open_or_change(self, command: LeaderAndIsr) -> None:
        registration = command.registration
        partition = self.get_or_open(command)
        if (registration.leader_epoch, registration.partition_epoch) < (
            partition.leader_epoch,
            partition.partition_epoch,
        ):
            return  # older than the controller's answer to our own proposal
        if partition.log.log_dir.failure is not None:
            self.directories.leave_role(partition)
            partition.take_no_role(registration)  # until the broker starts again
        elif registration.leader_epoch > partition.leader_epoch:
            self.take_role(partition, registration)
        else:
            partition.registration = registration
            changed = leader_events.PartitionChanged(
                registration.partition_epoch, registration.replicas, registration.isr
            )
            self.writes.step(partition, changed)
        self.hosted.report_directory(partition)

    def take_role(self, partition: Partition, registration: PartitionRegistration) -> None:
        """A new leader epoch: lead or follow. Waiting requests look at the partition again."""
        replication = self.hosted.replication
        if replication is not None and partition.following is not None:
            replication.unfollow(partition)
        waiting = partition.all_fetch_waiters()
        if registration.leader == self.node_id:
            now_ms = self._clock.monotonic_ms()
            self.writes.obey(partition, partition.lead(registration, self.peers, now_ms))
            self.writes.mark_dirty(partition)
        else:
            self.writes.forget(partition)
            backoff_max_ms = float(self._settings.int("replica.fetch.backoff.ms"))
            partition.follow(registration, backoff_max_ms)
            self.hosted.fetch_if_room(partition)
        for listener in waiting:
            listener.on_progress((partition,))
        self.hosted.role_changed(partition)

    def get_or_open(self, command: LeaderAndIsr) -> Partition:
        name, index = command.topic_partition
        partition = self.hosted.by_name.get((name, index))
        if partition is None:
            self.hosted.unopened.add((name, index))
            log = self.logs.get_or_create(
                command.topic_partition,
                command.topic_id,
                self.config_of(name),
                is_new=command.is_new,
            )
            self.hosted.unopened.remove((name, index))
            partition = Partition(command.topic_partition, command.topic_id.bytes, log)
            partition.load.since_ms = self._clock.monotonic_ms()
            self.hosted.add(partition)
            self.mover.resume(partition)
        return partition

    def stop_replica(self, command: StopReplica) -> None:
        """Take a partition away; requests that wait for it are refused."""
        topic_partition = command.topic_partition
        self.hosted.unopened.discard(topic_partition)
        partition = self.hosted.by_name.get(topic_partition)
        if partition is None or partition.topic_id != command.topic_id.bytes:
            return
        self.hosted.remove(partition)
        self.writes.forget(partition)
        if self.hosted.replication is not None:
            self.hosted.replication.unfollow(partition)
        self.hosted.end_role(partition, ErrorCode.not_leader_or_follower)
        try:
            self.mover.cancel(partition)
        except LogDirError as error:
            self.directories.failed(error)
        self.logs.delete(topic_partition)

    def reconfigure(self, image: MetadataImage, topic: str) -> None:
        if topic not in image.topics:
            return
        config = self._settings.log_config(image.topic_config(topic))
        for index in image.topics[topic].partitions:
            partition = self.hosted.by_name.get((topic, index))
            if partition is None:
                continue
            partition.log.update_config(config)
            copy = self.logs.futures.logs.get(partition.topic_partition)
            if copy is not None:
                copy.update_config(config)
            if partition.leading is not None:
                self.writes.step(partition, leader_events.MinIsrChanged(config.min_insync_replicas))

    def clear_strays(self) -> None:
        """Removes logs that do not belong here: deletes those of replicas that moved to other
        brokers, and sets those of unknown topics aside.

        A topic is deleted only after all its replicas, so a log of an unknown topic was left by
        a crash, or by a metadata log that was lost.
        """
        for topic_partition in [tp for tp in self.logs.logs if tp not in self.hosted.by_name]:
            topic = self.hosted.image.topics.get(topic_partition.topic)
            known = topic and topic.partitions.get(topic_partition.partition)
            if known and self.node_id in known.replicas:
                continue
            try:
                if topic is None:
                    self.logs.set_aside(topic_partition)
                else:
                    logger.info("%s was moved to other brokers: deleting", topic_partition)
                    self.logs.delete(topic_partition)
            except LogDirError as error:
                self.directories.failed(error)
