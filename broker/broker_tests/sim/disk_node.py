"""A simulated broker with one or two log directories that may fail or fill up.

As `cluster_node.py`; what production does about its directories outside of partition/ and
controller/ (storage.py, controller_client/lifecycle.py) is written anew here: a broker whose last
directory failed asks to be fenced, ends itself, and is started again by its supervisor as soon as
a directory can be used; one with little room steps aside when `SteppingAside` says so.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from broker_tests.sim.cluster_log import Entry
from broker_tests.sim.cluster_node import ClusterNode
from broker_tests.sim.cluster_replication import SimReplication
from broker_tests.sim.disk_dirs import Directories, Directory
from broker_tests.sim.disk_faults import DiskFaults
from broker_tests.sim.raft_node import new_uuid
from broker_tests.sim.world import Address
from odradek_broker.controller.stepping_aside import Level, SteppingAside
from odradek_broker.log.errors import LogDirError, NoRoomError
from odradek_broker.partition import follower_state, leader_events
from odradek_broker.partition.follower_state import FollowerState
from odradek_broker.partition.partition import Partition
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import BrokerId, TopicPartition
from odradek_protocol.messages.struct import Struct

LOOK_MS = 50  # at the directories; production: at once after a failed write, else each second
FENCE_MS_MAX = 300  # then a broker without a directory ends without having been fenced
SUPERVISOR_MS = 200


class Stopped(NamedTuple):
    """A fetch session forgets a partition (`forgotten_topics`)."""

    name: TopicPartition
    replica_id: int


class DiskReplication(SimReplication):
    def __init__(self, node: ClusterNode) -> None:
        super().__init__(node)
        self._paused: set[TopicPartition] = set()

    def follow(self, partition: Partition) -> None:
        self._paused.discard(partition.topic_partition)
        super().follow(partition)

    def unfollow(self, partition: Partition) -> None:
        self._paused.add(partition.topic_partition)
        if partition.following is not None:
            stopped = Stopped(partition.topic_partition, self._node.node_id)
            self._tell(partition.following.leader, stopped)

    def _tell(self, leader: int, stopped: Stopped) -> None:
        """Behind the fetches before it: they share a connection."""
        network, node_id = self._world.network, self._node.node_id
        if network.delays_ms(node_id, leader):
            delays_ms = [network.weather.latency_max_ms + 1]
            self._world.send(node_id, leader, stopped, delays_ms)

    def _fetch(self, partition: Partition, following: FollowerState) -> None:
        if partition.topic_partition not in self._paused:
            super()._fetch(partition, following)

    def serve_stopped(self, stopped: Stopped) -> None:
        partition = self._node.partition(stopped.name)
        if partition is not None:
            event = leader_events.FollowerStopped(BrokerId(stopped.replica_id))
            self._node.partitions.step(partition, event)

    def _step(
        self,
        partition: Partition,
        following: FollowerState,
        event: follower_state.Event,
        entries: tuple[Entry, ...] = (),
    ) -> bool:
        try:
            return super()._step(partition, following, event, entries)
        except (LogDirError, NoRoomError) as error:
            self._failed(partition, following, event, error)
            return False

    def _failed(
        self,
        partition: Partition,
        following: FollowerState,
        event: follower_state.Event,
        error: LogDirError | NoRoomError,
    ) -> None:
        """As replication/answers.py."""
        code = ErrorCode.throttling_quota_exceeded  # passes: asked again after a pause
        if isinstance(error, LogDirError):
            code = error.code
            self._node.partitions.directory_failed(error)
        if partition.following is following and isinstance(event, follower_state.FetchAnswered):
            now_ms = self._node.clock.monotonic_ms()
            for what in (
                follower_state.FetchUnanswered(event.position, failed=False),
                follower_state.ApplyFailed(code, str(error)),
            ):
                follower_state.step(following, what, partition.log, now_ms)

    def _flushed(
        self, partition: Partition, following: FollowerState, error: BaseException | None
    ) -> None:
        if isinstance(error, LogDirError):
            self._node.partitions.directory_failed(error)
        super()._flushed(partition, following, error)


class DiskNode(ClusterNode):
    data: Directories  # type: ignore[assignment]

    def __init__(self, *args: Any, faults: DiskFaults, dirs: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._faults = faults
        ids = [new_uuid(self._broker_rng) for _ in range(dirs)]
        self.data = Directories(
            self.node_id,
            self.cluster,
            [Directory(f"data-{number}", one) for number, one in enumerate(ids)],
        )
        self.cluster.disks[self.node_id] = self.data  # type: ignore[assignment]
        self._ending_ms: int | None = None
        self._aside = self._fenced = False

    # ------------------------------------------------------------ life

    def start(self) -> None:
        self.data.start()
        self._ending_ms = None
        self._aside = self._fenced = False
        self._stepping = SteppingAside(BrokerId(self.node_id), self._broker_rng)
        if not any(one.can_start for one in self.data.dirs):
            self._stops_cleanly = True  # it has not run, so it loses nothing
            self._end("no directory can be used")
            return
        super().start()
        self.world.after_on(self.node_id, LOOK_MS, self._look_at_directories)

    def _end(self, why: str) -> None:
        self.world.record(f"{self.node_id} ends: {why}")
        self.world.crash(self.node_id)
        self.world.after(SUPERVISOR_MS, self.world.start, self.node_id)

    def _make_replication(self) -> DiskReplication:
        return DiskReplication(self)

    def wipe(self, rng: Random) -> None:
        self.lose()
        for one in self.data.dirs:
            self.data.replace(one, new_uuid(rng))

    def _checkpoint(self) -> None:
        try:
            super()._checkpoint()
        except LogDirError as error:
            self.partitions.directory_failed(error)
            self.world.after_on(self.node_id, LOOK_MS, self._checkpoint)

    # ------------------------------------------------------------ directories

    def _directory_ids(self) -> list[UUID]:
        return [one.directory_id for one in self.data.online]

    def _offline_directory_ids(self) -> list[UUID]:
        return [one.directory_id for one in self.data.offline_dirs]

    @property
    def wants_fence(self) -> bool:
        return not self._ready or self._aside

    def _look_at_directories(self) -> None:
        self.world.after_on(self.node_id, LOOK_MS, self._look_at_directories)
        for one in self.data.online:
            try:
                one.touch()
            except LogDirError as error:
                self.partitions.directory_failed(error)
        if not self.data.online:
            self._without_directories()
        elif self._ready:
            self._look_at_room()

    def _without_directories(self) -> None:
        """The last one failed: be fenced, so that others lead at once; then end."""
        now_ms = self.world.now_ms
        if self._ending_ms is None:
            self._ending_ms = now_ms
            self._aside, self._fenced = True, False
        elif self._fenced or now_ms - self._ending_ms > FENCE_MS_MAX:
            self._end("the last directory failed")

    def _look_at_room(self) -> None:
        online, partitions = self.data.online, self.partitions
        partitions.fetch_unless_full(
            [one.path for one in online if one.level is Level.FULL and one.keeps_reserve]
        )
        levels = [one.level if one.keeps_reserve else Level.ENOUGH for one in online]
        now_ms = self.clock.monotonic_ms()
        low = [one.directory_id for one in online if one.level is not Level.ENOUGH]
        full = [one.directory_id for one in online if one.level is Level.FULL]
        image = partitions.image
        self._aside = self._stepping.decide(levels, image, self._min_isr, now_ms, low, full)

    def _min_isr(self, topic: str) -> int:
        config = self.settings.log_config(self.partitions.image.topic_config(topic))
        return config.min_insync_replicas

    def _heartbeat_answered(self, response: Struct | None) -> None:
        super()._heartbeat_answered(response)
        if response is not None and not response.error_code and self._aside:
            self._fenced = bool(response.is_fenced)

    # ------------------------------------------------------------ for the faults

    @property
    def directories(self) -> list[Directory]:
        return self.data.dirs

    def restart(self) -> None:
        if self.world.hosts[self.node_id].up and self.data.offline_dirs:
            self.world.record(f"operator restarts {self.node_id}")
            self.world.crash(self.node_id)
            self.world.after(self._broker_rng.randint(10, 100), self.world.start, self.node_id)

    def replace(self, one: Directory) -> None:
        self.world.record(f"{self.node_id} gets another disk for {one.path}")
        self.world.crash(self.node_id)
        self.lose()
        self.data.replace(one, new_uuid(self._broker_rng))
        self.world.after(self._broker_rng.randint(10, 100), self.world.start, self.node_id)

    def handle(self, source: Address, message: object) -> None:
        delay_ms = self._faults.delay_ms(source.node_id, message)
        if delay_ms is None:
            self._read(source, message)
        elif delay_ms >= 0:
            self.world.after_on(self.node_id, delay_ms, self._read, source, message)

    def _read(self, source: Address, message: object) -> None:
        if not isinstance(message, Stopped):
            super().handle(source, message)
        elif self._hosting:
            assert isinstance(self.replication, DiskReplication)
            self.replication.serve_stopped(message)

    def failed(self, target: int, message: object, refused: bool) -> None:
        if not isinstance(message, Stopped):
            super().failed(target, message, refused)
