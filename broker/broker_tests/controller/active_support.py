"""An active controller whose decisions are committed at once, and brokers that send requests to it.

world = World(3)                                brokers 1, 2, 3: registered and unfenced
world.topic("t", [(1, 2, 3)], {"min.insync.replicas": "2"})
world.fence(1)
assert world.show("t") == "leader 2 epoch 1 isr 2,3"
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import TypeVar
from uuid import UUID

from broker_tests.controller.support import create, new_topic
from odradek_broker.controller.active import ActiveController, PeriodicTask, Term
from odradek_broker.controller.result import ControllerResult
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.features import SUPPORTED_FEATURES
from odradek_broker.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionRegistration
from odradek_broker.metadata.records import MetadataRecord
from odradek_broker.runtime.settings import Settings
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import BrokerId
from odradek_protocol.messages.struct import Struct

T = TypeVar("T")
CLUSTER_ID = "cluster"


def directory(broker: int, disk: int = 0) -> UUID:
    return UUID(int=1000 * broker + disk + 1_000_000)


def set_config(resource: str, name: str, value: str, kind: int = 2) -> Struct:
    """IncrementalAlterConfigs; kind 2 is a topic, 4 a broker (or "", all)."""
    change = Struct(name=name, config_operation=0, value=value)
    resource_ = Struct(resource_type=kind, resource_name=resource, configs=[change])
    return Struct(resources=[resource_], validate_only=False)


class World:
    def __init__(
        self,
        count: int = 3,
        settings: Mapping[str, str] | None = None,
        racks: Mapping[int, str] | None = None,
    ) -> None:
        self.settings = Settings(settings)
        self.rng = Random(1)
        self.now_ms = 0.0
        self.racks = racks or {}
        self.incarnations = 0
        self.active = self._activate(EMPTY_IMAGE)
        for broker in range(1, count + 1):
            self.start(broker)

    def _activate(self, image: MetadataImage) -> ActiveController:
        active = ActiveController(
            Term(1, image, self.now_ms),
            self.settings,
            self.rng,
            CLUSTER_ID,
            wall_ms=lambda: int(self.now_ms),
        )
        self.active = active
        self.append(active.first_records())
        return active

    def fail_over(self) -> None:
        """Another controller takes over, from what is committed."""
        self._activate(self.image)

    # -- the log ---------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        return self.active.latest

    @property
    def next_offset(self) -> int:
        return self.image.offset + 1

    def append(self, records: Sequence[MetadataRecord]) -> None:
        if not records:
            return
        last_offset = self.image.offset + len(records)
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        delta.finish(last_offset)
        self.active.replay(records, last_offset)
        self.active.committed(delta)
        self.image.validate()

    def decide(self, result: ControllerResult[T]) -> T:
        self.append(result.all_records())
        return result.response

    # -- brokers -----------------------------------------------------------------------------

    def register(
        self,
        broker: int,
        disks: Sequence[int] = (0,),
        *,
        previous_epoch: int = -1,
        incarnation: int | None = None,
        cluster_id: str = CLUSTER_ID,
    ) -> int:
        self.incarnations += 1
        request = Struct(
            broker_id=BrokerId(broker),
            cluster_id=cluster_id,
            incarnation_id=UUID(int=incarnation or self.incarnations),
            listeners=[Struct(name="PLAINTEXT", host=f"b{broker}", port=9092, security_protocol=0)],
            features=[
                Struct(
                    name=feature.name,
                    min_supported_version=feature.min_supported_version,
                    max_supported_version=feature.max_supported_version,
                )
                for feature in SUPPORTED_FEATURES
            ],
            rack=self.racks.get(broker),
            log_dirs=[directory(broker, disk) for disk in disks],
            previous_broker_epoch=previous_epoch,
        )
        result = self.active.register_broker(request, self.next_offset, self.now_ms)
        epoch: int = self.decide(result).broker_epoch
        return epoch

    def heartbeat(
        self,
        broker: int,
        *,
        offset: int | None = None,
        want_fence: bool = False,
        want_shut_down: bool = False,
        offline: Sequence[UUID] = (),
    ) -> Struct:
        request = Struct(
            broker_id=BrokerId(broker),
            broker_epoch=self.image.brokers[BrokerId(broker)].epoch,
            current_metadata_offset=self.image.offset if offset is None else offset,
            want_fence=want_fence,
            want_shut_down=want_shut_down,
            offline_log_dirs=list(offline),
        )
        return self.decide(self.active.heartbeat(request, self.next_offset, self.now_ms))

    def start(self, broker: int, disks: Sequence[int] = (0,), *, clean: bool = False) -> None:
        """Registers a new incarnation and lets it catch up. With another disk it could be another
        machine with the same node id, so the old session has to end first."""
        existing = self.image.brokers.get(BrokerId(broker))
        disk_ids = {directory(broker, disk) for disk in disks}
        if existing and not existing.fenced and disk_ids.isdisjoint(existing.log_dirs):
            self.fence(broker)
        previous_epoch = existing.epoch if clean and existing else -1
        self.register(broker, disks, previous_epoch=previous_epoch)
        assert not self.heartbeat(broker).is_fenced

    def stop(self, broker: int) -> None:
        """A controlled shutdown: heartbeats that ask for it until the broker may stop."""
        for _ in range(10):
            answer = self.heartbeat(broker, want_shut_down=True)
            if answer.should_shut_down:
                return
            for other in self.live():
                if other != broker:
                    self.heartbeat(other)
        raise AssertionError("never allowed to stop")

    def fence(self, *dead: int) -> None:
        """Their sessions end; all other brokers send heartbeats."""
        half_ms = self.active.sessions.timeout_ms / 2 + 1
        for _ in range(2):
            self.now_ms += half_ms
            for broker in self.live():
                if broker not in dead:
                    self.heartbeat(broker)
        self.tick()

    def tick(self, ms: float = 0) -> None:
        self.now_ms += ms
        for task in PeriodicTask:
            self.decide(self.active.decide_periodic(task, self.now_ms))

    def live(self) -> list[int]:
        return sorted(b.id for b in self.image.brokers.values() if not b.fenced)

    # -- topics --------------------------------------------------------------------------------

    def topic(
        self,
        name: str,
        assignments: Sequence[Sequence[int]],
        configs: Mapping[str, str | None] | None = None,
    ) -> None:
        request = create(new_topic(name, assignments=dict(enumerate(assignments)), configs=configs))
        answer = self.decide(self.active.create_topics(request)).topics[0]
        assert answer.error_code is ErrorCode.none, answer.error_message

    def partition(self, name: str = "t", index: int = 0) -> PartitionRegistration:
        return self.image.topics[name].partitions[index]

    def show(self, name: str = "t", index: int = 0) -> str:
        partition = self.partition(name, index)
        words = [
            f"leader {partition.leader} epoch {partition.leader_epoch}",
            f"isr {','.join(map(str, partition.isr))}",
        ]
        for word, replicas in (
            ("elr", partition.eligible_leader_replicas),
            ("last", partition.last_known_elr),
            ("adding", partition.adding_replicas),
            ("removing", partition.removing_replicas),
        ):
            if replicas:
                words.append(f"{word} {','.join(map(str, replicas))}")
        if partition.leader_recovery_state:
            words.append("recovering")
        return " ".join(words)

    def alter_isr(self, isr: Sequence[int], name: str = "t", index: int = 0) -> Struct:
        """The leader proposes an ISR; the answer for the partition."""
        partition = self.partition(name, index)
        request = self.proposal(partition, isr, name, index)
        answer = self.decide(self.active.alter_partition(request))
        found: Struct = answer.topics[0].partitions[0]
        return found

    def proposal(
        self, partition: PartitionRegistration, isr: Sequence[int], name: str, index: int
    ) -> Struct:
        leader = self.image.brokers[partition.leader]
        return Struct(
            broker_id=leader.id,
            broker_epoch=leader.epoch,
            topics=[
                Struct(
                    topic_id=self.image.topics[name].id,
                    partitions=[
                        Struct(
                            partition_index=index,
                            leader_epoch=partition.leader_epoch,
                            partition_epoch=partition.partition_epoch,
                            leader_recovery_state=0,
                            new_isr=[],
                            new_isr_with_epochs=[
                                Struct(
                                    broker_id=BrokerId(replica),
                                    broker_epoch=self.image.brokers[BrokerId(replica)].epoch
                                    if replica in self.image.brokers
                                    else -1,
                                )
                                for replica in isr
                            ],
                        )
                    ],
                )
            ],
        )

    def reassign(
        self, replicas: Sequence[int] | None, name: str = "t", index: int = 0
    ) -> tuple[ErrorCode, str | None]:
        request = Struct(
            allow_replication_factor_change=True,
            topics=[
                Struct(name=name, partitions=[Struct(partition_index=index, replicas=replicas)])
            ],
        )
        response = self.decide(self.active.alter_partition_reassignments(request))
        answer = response.responses[0].partitions[0]
        return answer.error_code, answer.error_message

    def elect(self, kind: int, name: str = "t", index: int = 0) -> ErrorCode:
        request = Struct(
            election_type=kind, topic_partitions=[Struct(topic=name, partitions=[index])]
        )
        response = self.decide(self.active.elect_leaders(request))
        code: ErrorCode = response.replica_election_results[0].partition_result[0].error_code
        return code
