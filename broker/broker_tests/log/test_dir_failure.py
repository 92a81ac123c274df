"""Which errors take a log directory offline, and the state after one that does not."""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from broker_tests.log.support import (
    NOW_MS,
    TOPIC_ID,
    TP,
    append,
    batch,
    commit,
    open_manager,
    values,
)
from broker_tests.sim.memory_disk import SimDisk, SimFile
from odradek_broker.log.checkpoints import HIGH_WATERMARK
from odradek_broker.log.dir_failure import FailureKind, kind_of
from odradek_broker.log.errors import LogDirError
from odradek_broker.log.log_dir import LogDir
from odradek_broker.log.manager import LogManager
from odradek_broker.model.log_config import LogConfig
from odradek_broker.runtime.disk import DirProbe, DiskUsage
from odradek_protocol.ids import TopicPartition


class ScarceDisk(SimDisk):
    """No file can be opened while `errno` is set."""

    errno = 0

    def open(self, path: str, *, create: bool = False) -> SimFile:
        if self.errno:
            raise OSError(self.errno, os.strerror(self.errno), path)
        return super().open(path, create=create)


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, FailureKind.OUT_OF_SPACE),
        (errno.EDQUOT, FailureKind.OUT_OF_SPACE),
        (errno.EIO, FailureKind.DEVICE),
        (errno.EROFS, FailureKind.DEVICE),
        (errno.ENOENT, FailureKind.DEVICE),
    ],
)
def test_kinds_of_errors(number: int, kind: FailureKind) -> None:
    assert kind_of(OSError(number, "")) is kind


def opened(disk: SimDisk, config: LogConfig | None = None) -> LogManager:
    manager = open_manager(disk)
    manager.get_or_create(TP, TOPIC_ID, config or LogConfig())
    return manager


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_without_a_descriptor_a_write_waits(number: int) -> None:
    disk = ScarceDisk()
    manager = opened(disk)
    log = manager.logs[TP]
    append(log, "a")
    log.active.release_file()
    log.append_as_leader(batch("b"), 0, NOW_MS)
    disk.errno = number
    for _ in range(2):
        with pytest.raises(LogDirError) as caught:
            log.write_pending()
        assert not caught.value.offline
    log.validate()
    assert log.written_offset == 1
    disk.errno = 0
    commit(log)
    append(log, "c")
    log.validate()
    assert values(log) == ["a", "b", "c"]
    assert not manager.offline_dirs


def test_without_a_descriptor_a_segment_goes_on() -> None:
    disk = ScarceDisk()
    manager = opened(disk, LogConfig(segment_bytes=200))
    log = manager.logs[TP]
    append(log, "a" * 60)
    disk.errno = errno.EMFILE
    for _ in range(2):
        with pytest.raises(LogDirError) as caught:
            log.append_as_leader(batch("b" * 60), 0, NOW_MS)
        assert not caught.value.offline
        log.validate()
    disk.errno = 0
    append(log, "b" * 60)
    log.validate()
    assert len(log.segments) == 2
    assert values(log) == ["a" * 60, "b" * 60]


def test_without_a_descriptor_a_checkpoint_is_written_later() -> None:
    disk = ScarceDisk()
    manager = opened(disk)
    append(manager.logs[TP], "a")
    log_dir = manager.dirs[0]
    disk.errno = errno.EMFILE
    with pytest.raises(LogDirError) as caught:
        log_dir.checkpoints.write(HIGH_WATERMARK)
    assert not caught.value.offline
    with pytest.raises(LogDirError):
        manager.logs[TP].flush()
    assert log_dir.failure is None
    disk.errno = 0
    log_dir.checkpoints.write(HIGH_WATERMARK)
    manager.logs[TP].flush()
    assert log_dir.checkpoints.read(HIGH_WATERMARK) == {TP: 1}


def test_a_failure_is_reported_once() -> None:
    disk = SimDisk()
    manager = opened(disk)
    told: list[LogDir] = []
    manager.dirs[0].on_failure = told.append
    log = manager.logs[TP]
    disk.fail("/data", errno.ENOSPC)
    log.append_as_leader(batch("b"), 0, NOW_MS)
    with pytest.raises(LogDirError):
        log.write_pending()
    with pytest.raises(LogDirError):
        log.append_as_leader(batch("b"), 0, NOW_MS)
    assert told == manager.dirs
    assert manager.failure_kind is FailureKind.OUT_OF_SPACE
    assert manager.failures().startswith("/data: [Errno 28]")


def test_no_directory_is_left_for_a_new_log() -> None:
    disk = SimDisk()
    manager = opened(disk)
    manager.dirs[0].fail(OSError(errno.EIO, os.strerror(errno.EIO)))
    with pytest.raises(Exception, match=r"no log directory can be used: /data: \[Errno 5\]"):
        manager.get_or_create(TopicPartition("new", 0), TOPIC_ID, LogConfig())


@dataclass
class ProbedDisk(SimDisk):
    probed: DirProbe = field(default_factory=lambda: DirProbe((1, 2), False, DiskUsage(10, 5)))

    def __post_init__(self) -> None:
        super().__init__()

    def probe(self, path: str) -> DirProbe:
        return self.probed


def _replaced(disk: ProbedDisk) -> None:
    disk.probed = disk.probed._replace(inode=(1, 3))


def _read_only(disk: ProbedDisk) -> None:
    disk.probed = disk.probed._replace(read_only=True)


def _emptied(disk: ProbedDisk) -> None:
    disk.remove("/data/meta.properties")


@pytest.mark.parametrize(
    ("change", "number"),
    [(_replaced, errno.ENOENT), (_read_only, errno.EROFS), (_emptied, errno.ENOENT)],
)
def test_a_probe(change: Callable[[ProbedDisk], None], number: int) -> None:
    disk = ProbedDisk()
    log_dir = opened(disk).dirs[0]
    assert log_dir.probe() == DiskUsage(10, 5)
    change(disk)
    assert log_dir.probe() is None
    assert log_dir.failure is not None
    assert log_dir.failure.errno == number
    assert log_dir.failure_kind is FailureKind.DEVICE
