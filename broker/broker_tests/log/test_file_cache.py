"""The number of open files is bounded, however many partitions there are."""

import os
import resource
from pathlib import Path
from typing import Any

import psutil

from broker_tests.log.support import SETTINGS, TOPIC_ID, append, values
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.log.file_cache import FileCache
from odradek_broker.log.housekeeping import LogSettings
from odradek_broker.log.manager import LogManager
from odradek_broker.model.log_config import LogConfig
from odradek_broker.runtime.clock import SystemClock
from odradek_broker.runtime.disk import File, RealDisk
from odradek_protocol.ids import TopicPartition


def open_files() -> int:
    return psutil.Process().num_fds()


def test_many_partitions_few_files(tmp_path: Path) -> None:
    settings = LogSettings(cluster_id="c", node_id=SETTINGS.node_id, open_files_max=10)
    before = open_files()
    manager = LogManager([str(tmp_path)], RealDisk(), SystemClock(), settings)
    logs = [
        manager.get_or_create(TopicPartition("t", number), TOPIC_ID, LogConfig())
        for number in range(50)
    ]
    ranges: list[Any] = []
    for turn in range(3):
        for log in logs:
            append(log, f"{log.topic_partition} {turn}")
        assert open_files() - before <= 10 + 1 + len(ranges)  # and the lock
        ranges.append(logs[turn].read(0, 1000, 1 << 62)[0])
    for log in logs:
        assert values(log) == [f"{log.topic_partition} {turn}" for turn in range(3)]
    for number, found in enumerate(ranges):  # evicted long ago, but still in use
        assert found is not None
        data = os.pread(found.file.fileno(), found.length, found.position)
        assert f"t-{number} 0".encode() in data
    del ranges, found
    manager.close()


class Owner:
    def __init__(self) -> None:
        self.used = False
        self.file: File | None = None

    def release_file(self) -> None:
        self.file = None


def test_a_recently_used_file_stays_open() -> None:
    disk = SimDisk()
    disk.make_dir("/d")
    cache = FileCache(disk, 3)
    owners = [Owner() for _ in range(4)]
    for number, owner in enumerate(owners[:3]):
        owner.file = cache.open(owner, f"/d/{number}", create=True)
    owners[0].used = owners[2].used = True
    owners[3].file = cache.open(owners[3], "/d/3", create=True)
    assert [owner.file is not None for owner in owners] == [True, False, True, True]


def test_files_are_given_back_when_sockets_took_too_many(tmp_path: Path) -> None:
    """A limit of descriptors that is below the size of the cache."""
    settings = LogSettings(cluster_id="c", node_id=1)
    manager = LogManager([str(tmp_path)], RealDisk(), SystemClock(), settings)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    logs = [
        manager.get_or_create(TopicPartition("t", number), TOPIC_ID, LogConfig())
        for number in range(30)
    ]
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files() + 5, hard))
    try:
        for number in range(30, 60):
            logs.append(manager.get_or_create(TopicPartition("t", number), TOPIC_ID, LogConfig()))
        for log in logs:
            append(log, "x")
            assert values(log) == ["x"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not manager.offline_dirs
    manager.close()
