"""A simulated broker with production logs, and the production `CoordinatorService` on them.

As `cluster_node.py`, but segments instead of lists, and an event loop (`coord_loop.py`) in which
the coordinator's tasks run. So loading, timers and answers are the production code.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, cast

from broker_tests.sim.cluster_controller import CLUSTER_ID
from broker_tests.sim.cluster_node import ClusterNode
from broker_tests.sim.cluster_replication import Fetch, SimReplication
from broker_tests.sim.coord_disk import ProductionDisk
from broker_tests.sim.coord_loop import SimLoop, sim_loop
from odradek_broker.handlers import fetch_records
from odradek_broker.model.log_config import LogConfig
from odradek_broker.partition import follower_state, leader_events
from odradek_broker.partition.follower_state import FollowerState
from odradek_broker.partition.partition import Partition
from odradek_broker.partition.service import PartitionService
from odradek_broker.replication.applying import carry_out
from odradek_broker.replication.batches import whole_batches
from odradek_broker.runtime.disk import File
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId, TopicPartition

FETCH_BYTES = 2_000


class CoordReplication(SimReplication):
    """Fetches bytes of batches instead of entries."""

    idle_pause_ms_max = 10

    def _read(self, fetch: Fetch) -> tuple[follower_state.FetchAnswered, Any]:
        partition, position = self._node.partition(fetch.name), fetch.position
        if partition is None:
            raise KafkaError(self._node.partitions.why_missing(*fetch.name))
        partition.led_here(position.leader_epoch)
        log = partition.log
        diverging = fetch_records.divergence(partition, position)  # type: ignore[arg-type]
        records, records_start, records_end = b"", None, None
        if diverging is None:
            if not log.log_start_offset <= position.fetch_offset <= log.log_end_offset:
                raise KafkaError(ErrorCode.offset_out_of_range)
            event = leader_events.FollowerFetched(
                BrokerId(fetch.replica_id),
                fetch.broker_epoch,
                position.fetch_offset,
                position.log_start_offset,
                log.written_offset,
            )
            self._node.partitions.step(partition, event)
            found, _ = log.read(position.fetch_offset, FETCH_BYTES, log.written_offset)
            if found is not None:
                data = cast(File, found.file).pread(found.length, found.position)
                whole, records_start, records_end = whole_batches(
                    memoryview(data), position.last_fetched_epoch, position.leader_epoch
                )
                records = bytes(whole)
        answer = follower_state.FetchAnswered(
            position,
            high_watermark=log.high_watermark,
            log_start_offset=log.log_start_offset,
            diverging=diverging,
            records_end=records_end,
            records_start=records_start,
        )
        return answer, records

    def _step(
        self,
        partition: Partition,
        following: FollowerState,
        event: follower_state.Event,
        entries: Any = b"",
    ) -> bool:
        node = self._node
        now_ms = node.clock.monotonic_ms()
        instructions = follower_state.step(following, event, partition.log, now_ms)
        look_up = carry_out(
            partition, instructions, memoryview(entries or b""), node.partitions, 1_000
        )
        if instructions:
            node.partitions.mark_dirty(partition)
        if look_up is not None:
            self._look_up(partition, following, look_up.position)
        following.validate()
        return bool(instructions)


class CoordNode(ClusterNode):
    """`serve(node)` starts the coordinators of one life, when its partitions are hosted."""

    def __init__(self, *args: Any, serve: Callable[[CoordNode], None], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._serve = serve
        self.disk_of_data = ProductionDisk(self.node_id, self.data.directory_id, CLUSTER_ID)
        self.data = self.disk_of_data  # type: ignore[assignment]
        self.loop: SimLoop

    def _make_partitions(self) -> None:
        rng = Random(self._broker_rng.getrandbits(64))
        self.loop = sim_loop(self.world, self.node_id, rng)
        manager = self.disk_of_data.open(self.clock)
        self.partitions = PartitionService(
            BrokerId(self.node_id),
            self.settings,
            manager,
            self.clock,
            self.scheduler,
            self.threads,
        )
        self.replication = CoordReplication(self)

    def _host_partitions(self) -> None:
        image = self.metadata.image

        def config_of(name: TopicPartition) -> LogConfig:
            return self.settings.log_config(image.topic_config(name.topic))

        assert self.disk_of_data.manager is not None
        self.disk_of_data.manager.load(config_of=config_of)
        super()._host_partitions()
        self._serve(self)

    def _look_at_roles(self) -> None:
        for partition in self.partitions.by_name.values():
            partition.validate()
