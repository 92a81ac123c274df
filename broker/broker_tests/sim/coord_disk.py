"""The data disk of a simulated broker with production logs: LogManager over a simulated disk.

Takes the place of `cluster_log.DataDisk`: the same life (crash, power loss, replaced), but what is
on it are segments, indexes and checkpoints, and what a start finds is recovered by log/recovery.py.
"""

from __future__ import annotations

from random import Random
from uuid import UUID

from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.log.checkpoints import HIGH_WATERMARK, RECOVERY_POINT
from odradek_broker.log.dir_identity import DirIdentity, write_identity
from odradek_broker.log.housekeeping import LogSettings
from odradek_broker.log.log import Log
from odradek_broker.log.manager import LogManager
from odradek_broker.runtime.clock import Clock
from odradek_protocol.ids import TopicPartition

PATH = "/data"


class ProductionDisk:
    def __init__(self, node_id: int, directory_id: UUID, cluster_id: str) -> None:
        self._node_id = node_id
        self._cluster_id = cluster_id
        self.clean_epoch = -1  # the broker epoch of a clean stop; gone at the next start
        self.manager: LogManager | None = None
        self.replace(directory_id)

    def open(self, clock: Clock) -> LogManager:
        settings = LogSettings(
            cluster_id=self._cluster_id, node_id=self._node_id, recovery_threads_per_dir=1
        )
        self.manager = LogManager([PATH], self._disk, clock, settings)
        return self.manager

    @property
    def logs(self) -> dict[TopicPartition, Log]:
        return self.manager.logs if self.manager is not None else {}

    def crash(self, rng: Random, *, power_loss: bool) -> None:
        """Records queued in the process are gone; with the power also what was not synced."""
        self.manager = None
        if power_loss:
            self._disk.crash(rng)
        else:
            self._disk._locks.clear()

    def replace(self, directory_id: UUID) -> None:
        self.directory_id = directory_id
        self.clean_epoch = -1
        self.manager = None
        self._disk = SimDisk()
        self._disk.make_dir(PATH)
        identity = DirIdentity(self._cluster_id, self._node_id, directory_id)
        write_identity(self._disk, PATH, identity)
        self._disk.sync_all(PATH)
        self._disk.commit_names()

    def flush(self) -> None:
        for log in self.logs.values():
            log.write_pending()
            log.flush()
        self._checkpoint(high_watermarks=False)

    def checkpoint(self) -> None:
        self._checkpoint(high_watermarks=True)

    def _checkpoint(self, *, high_watermarks: bool) -> None:
        if self.manager is None:
            return
        for log_dir in self.manager.dirs:
            if high_watermarks:
                log_dir.checkpoints.write(HIGH_WATERMARK)
            else:
                log_dir.checkpoints.write(RECOVERY_POINT)
