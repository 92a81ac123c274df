"""The invariants of a cluster, checked while it runs.

The checker sees what no broker sees: all logs at once, also those of brokers that are down, and
the metadata as soon as the first node has committed it.

    one leader        a leader epoch of a partition is led in one life of one broker
    epochs            leader and partition epochs of the committed metadata never go back
    leader in ISR     in the committed metadata (`MetadataImage.validate`, after each change)
    log matching      the same offset and epoch, in any two logs ever: the same value, and the
                      same everything before it
    committed         what is below a high watermark (of a leader, or in an answer to a follower) is
                      the same in all logs for ever, and never loses a record
    replicated        a record is committed only when min.insync.replicas logs hold it (or held
                      it: a disk may have lost it since)
    StrongIsr         every member of the controller's ISR has all that is committed
    leaders have all  a broker that becomes leader of the newest epoch has all that is committed
    acknowledged      acks=all: it was committed, at that offset, once
    no truncation     below a high watermark

Production code catches exceptions of subscribers, so a violation is remembered, and the run
stops after the event.
"""

from __future__ import annotations

from uuid import UUID

from broker_tests.sim.cluster_log import DataDisk, Entry, SimLog
from broker_tests.sim.world import World
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionRegistration
from odradek_protocol.ids import BrokerId, LeaderEpoch, Offset, TopicPartition


class ClusterChecker:
    def __init__(self, world: World, min_isr: int, durable: bool) -> None:
        self._world = world
        self.durable = durable  # nothing is acknowledged before it is synced
        self.min_isr = min_isr
        self.violation: str | None = None
        self.image: MetadataImage = EMPTY_IMAGE  # the newest that anybody has committed
        self.disks: dict[int, DataDisk] = {}
        self.committed: dict[TopicPartition, list[Entry]] = {}
        # Brokers whose disk lost something, until the controller has registered them anew.
        self.lost: dict[int, UUID | None] = {}
        self.acknowledged = 0
        self.reads = 0
        self.elections = 0
        self.appends_refused = 0
        self._led: dict[tuple[TopicPartition, LeaderEpoch], tuple[int, int]] = {}
        self._known: dict[tuple[TopicPartition, Offset, LeaderEpoch], Entry] = {}
        self._holders: dict[tuple[TopicPartition, Offset, LeaderEpoch], set[int]] = {}
        self._values: dict[TopicPartition, set[int]] = {}

    def fail(self, what: str) -> None:
        if self.violation is None:
            self.violation = f"at {self._world.now_ms} ms: {what}"
            self._world.record(f"VIOLATION {what}")

    # ------------------------------------------------------------ logs

    def appended(self, log: SimLog, offset: Offset, entry: Entry) -> None:
        key = (log.topic_partition, offset, entry.epoch)
        known = self._known.setdefault(key, entry)
        self._holders.setdefault(key, set()).add(log.node_id)
        if known != entry:
            self.fail(f"log matching: broker {log.node_id} has {entry} at {key}, not {known}")

    def truncated(self, log: SimLog, offset: Offset) -> None:
        self._world.record(f"{log.node_id} truncates {log.topic_partition} to {offset}")
        if offset < log.high_watermark:
            self.fail(
                f"broker {log.node_id} truncates {log.topic_partition} to {offset}, below its "
                f"high watermark {log.high_watermark}"
            )
        committed = len(self.committed.get(log.topic_partition, ()))
        if offset < min(committed, log.log_end_offset) and self._in_isr(log):
            self.fail(
                f"StrongIsr: broker {log.node_id} is in the ISR of {log.topic_partition} and "
                f"truncates to {offset} of {committed} committed"
            )

    def _in_isr(self, log: SimLog) -> bool:
        partition = self._partition(log.topic_partition)
        return (
            partition is not None and log.node_id in partition.isr and log.node_id not in self.lost
        )

    def high_watermark_moved(self, log: SimLog, high_watermark: Offset) -> None:
        name = log.topic_partition
        if high_watermark < log.high_watermark:
            self.fail(f"the high watermark of {name} on {log.node_id} goes back")
        if high_watermark > log.log_end_offset:
            self.fail(f"the high watermark of {name} on {log.node_id} is past the end")
        self._world.record(f"{log.node_id} {name} committed to {high_watermark}")
        committed = self.committed.setdefault(name, [])
        both = min(high_watermark, len(committed))
        if log.entries[:both] != committed[:both]:
            self.fail(f"broker {log.node_id} has other records of {name} below {both} committed")
        if high_watermark > len(committed):
            self._commit(log, committed, high_watermark)

    def _commit(self, log: SimLog, committed: list[Entry], high_watermark: Offset) -> None:
        name = log.topic_partition
        new = log.entries[len(committed) : high_watermark]
        values = self._values.setdefault(name, set())
        for entry in new:
            if entry.value in values:
                self.fail(f"{entry} is in {name} twice")
            values.add(entry.value)
        committed += new
        holders = self._holders[name, high_watermark - 1, new[-1].epoch]
        if len(holders) < self.min_isr:
            self.fail(f"{name} is committed to {high_watermark} on {sorted(holders)} only")
        self.check_strong_isr(name)

    # ------------------------------------------------------------ metadata

    def metadata(self, delta: MetadataDelta) -> None:
        """The first node on which it is committed."""
        self.image = delta.after
        try:
            self.image.validate()
        except AssertionError as error:
            self.fail(f"metadata at {self.image.offset}: {error!r}")
        for node_id, incarnation in list(self.lost.items()):
            broker = self.image.brokers.get(BrokerId(node_id))
            if broker is not None and broker.incarnation_id != incarnation:
                del self.lost[node_id]
        for change in delta.changed_partitions():
            before, after = change.before, change.after
            name = TopicPartition(change.topic.name, change.partition)
            self._world.record(
                f"metadata {name} leader {after.leader}@{after.leader_epoch} isr {after.isr} "
                f"elr {after.eligible_leader_replicas} last {after.last_known_elr} "
                f"epoch {after.partition_epoch}"
            )
            if before is not None:
                self._check_epochs(name, before, after)
            self.check_strong_isr(name)

    def _check_epochs(
        self, name: TopicPartition, before: PartitionRegistration, after: PartitionRegistration
    ) -> None:
        self.elections += after.leader_epoch != before.leader_epoch
        if after.partition_epoch <= before.partition_epoch:
            self.fail(f"the partition epoch of {name} goes back to {after.partition_epoch}")
        if after.leader_epoch < before.leader_epoch:
            self.fail(f"the leader epoch of {name} goes back to {after.leader_epoch}")
        if before.leader != after.leader and before.leader_epoch == after.leader_epoch:
            self.fail(f"{name} has another leader in leader epoch {after.leader_epoch}")

    def _partition(self, name: TopicPartition) -> PartitionRegistration | None:
        topic = self.image.topics.get(name.topic)
        return topic.partitions.get(name.partition) if topic else None

    def check_strong_isr(self, name: TopicPartition) -> None:
        partition = self._partition(name)
        committed = self.committed.get(name)
        if partition is None or not committed:
            return
        for replica in partition.isr:
            if replica not in self.lost and not self._has_all(replica, name, committed):
                self.fail(
                    f"StrongIsr: broker {replica} is in the ISR {partition.isr} of {name} "
                    f"(epoch {partition.partition_epoch}) and lacks some of the "
                    f"{len(committed)} committed"
                )

    def _has_all(self, node_id: int, name: TopicPartition, committed: list[Entry]) -> bool:
        log = self.disks[node_id].logs.get(name)
        return log is not None and log.entries[: len(committed)] == committed

    # ------------------------------------------------------------ brokers and clients

    def leads(self, node_id: int, life: int, log: SimLog, epoch: LeaderEpoch) -> None:
        name = log.topic_partition
        key = (name, epoch)
        known = self._led.get(key)
        if known is None:
            self._led[key] = (node_id, life)
            self._world.record(f"{node_id}.{life} leads {name} in {epoch}")
            committed = self.committed.get(name, [])
            partition = self._partition(name)
            newest = partition is not None and partition.leader_epoch == epoch
            if newest and log.entries[: len(committed)] != committed:
                self.fail(
                    f"broker {node_id} leads {name} in epoch {epoch} without some of the "
                    f"{len(committed)} committed"
                )
        elif known != (node_id, life):
            self.fail(f"{node_id}.{life} leads {name} in {epoch}, as {known} did")

    def acked(self, name: TopicPartition, offset: Offset, value: int) -> None:
        """A client got the acknowledgement of acks=all."""
        self.acknowledged += 1
        committed = self.committed.get(name, [])
        if offset >= len(committed) or committed[offset].value != value:
            self.fail(f"{value} was acknowledged at {offset} of {name}, and is not committed there")

    def read(self, name: TopicPartition, offset: Offset, entries: list[Entry]) -> None:
        """A client has read these."""
        self.reads += len(entries)
        if self.committed.get(name, [])[offset : offset + len(entries)] != entries:
            self.fail(f"a consumer of {name} read at {offset} what is not committed: {entries}")
