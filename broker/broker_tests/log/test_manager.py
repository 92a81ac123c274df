"""Several directories: identity, locks, fewest partitions, failures, deletion, checkpoints."""

import errno
from pathlib import Path
from uuid import UUID

import pytest

from broker_tests.log.support import NOW_MS, SETTINGS, TOPIC_ID, append, batch, open_manager, values
from broker_tests.manual_clock import ManualClock
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.log.checkpoints import RECOVERY_POINT
from odradek_broker.log.dir_identity import (
    LogDirConfigError,
    read_identity,
    uuid_from_text,
    uuid_to_text,
)
from odradek_broker.log.errors import LogDirError
from odradek_broker.log.housekeeping import LogSettings
from odradek_broker.log.manager import LogManager
from odradek_broker.model.log_config import LogConfig
from odradek_broker.runtime.clock import SystemClock
from odradek_broker.runtime.disk import RealDisk
from odradek_protocol.ids import TopicPartition

CONFIG = LogConfig()


def tp(number: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, number)


def run(manager: LogManager, now_ms: int) -> None:
    for job in manager.tick(now_ms):
        job()


def test_a_new_partition_goes_where_there_are_the_fewest() -> None:
    disk = SimDisk()
    manager = open_manager(disk, "/a", "/b", "/c")
    for number in range(9):
        manager.get_or_create(tp(number), TOPIC_ID, CONFIG)
    assert [len(log_dir.logs) for log_dir in manager.dirs] == [3, 3, 3]
    for log in list(manager.dirs[1].logs):
        manager.delete(log.topic_partition)
    for number in range(10, 13):
        assert manager.get_or_create(tp(number), TOPIC_ID, CONFIG).dir.startswith("/b/")
    assert manager.get_or_create(tp(11), TOPIC_ID, CONFIG) is manager.logs[tp(11)]


def test_identity_is_kept_and_a_strangers_directory_refused() -> None:
    disk = SimDisk()
    manager = open_manager(disk, "/a", "/b")
    ids = manager.directory_ids
    assert len(set(ids)) == 2
    text = disk.read("/a/meta.properties").decode()
    assert f"directory.id={uuid_to_text(ids[0])}\nnode.id=1\nversion=1\n" in text
    manager.close()
    assert open_manager(disk, "/a", "/b").directory_ids == ids
    disk._locks.clear()
    for settings, word in (
        (LogSettings(cluster_id="other", node_id=1), "cluster"),
        (LogSettings(cluster_id="cluster", node_id=2), "node.id"),
    ):
        with pytest.raises(LogDirConfigError, match=word):
            LogManager(["/a", "/b"], disk, ManualClock(), settings)


def test_without_a_cluster_id_the_directories_tell_or_a_new_one_is_made() -> None:
    disk = SimDisk()
    settings = LogSettings(node_id=1)
    first = LogManager(["/a"], disk, ManualClock(), settings)
    assert len(uuid_from_text(first.cluster_id).bytes) == 16
    first.close()
    second = LogManager(["/new", "/a"], disk, ManualClock(), settings)
    assert second.cluster_id == first.cluster_id


def test_kafkas_identity_file_is_read() -> None:
    disk = SimDisk()
    disk.make_dir("/k")
    text = "#\n#Sun Nov 16 12:00:00 UTC 2025\nnode.id=3\ndirectory.id=eVcmQ2aJTHGUZoqlVlePpw\n"
    disk.write("/k/meta.properties", (text + "version=1\ncluster.id=abc\n").encode())
    identity = read_identity(disk, "/k")
    assert identity is not None
    assert (identity.cluster_id, identity.node_id) == ("abc", 3)
    assert uuid_to_text(identity.directory_id) == "eVcmQ2aJTHGUZoqlVlePpw"
    disk.write("/k/meta.properties", b"version=0\nbroker.id=1\n")
    with pytest.raises(LogDirConfigError, match="version"):
        read_identity(disk, "/k")


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    first = LogManager([str(tmp_path / "d")], RealDisk(), SystemClock(), SETTINGS)
    with pytest.raises(LogDirConfigError, match="locked"):
        LogManager([str(tmp_path / "d")], RealDisk(), SystemClock(), SETTINGS)
    first.close()
    LogManager([str(tmp_path / "d")], RealDisk(), SystemClock(), SETTINGS).close()


def test_a_directory_named_twice_is_refused() -> None:
    with pytest.raises(LogDirConfigError, match="twice"):
        open_manager(SimDisk(), "/a", "/a/")


def test_a_directory_that_cannot_be_used_at_start_is_offline_alone(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    good = str(tmp_path / "good")
    manager = LogManager([str(blocked / "x"), good], RealDisk(), SystemClock(), SETTINGS)
    assert [log_dir.path for log_dir in manager.offline_dirs] == [str(blocked / "x")]
    log = manager.get_or_create(tp(0), TOPIC_ID, CONFIG)
    append(log, "works")
    with pytest.raises(LogDirError):
        manager.get_or_create(tp(1), TOPIC_ID, CONFIG, is_new=False)
    manager.close()
    with pytest.raises(LogDirConfigError, match="no directory can be used"):
        LogManager([str(blocked / "x")], RealDisk(), SystemClock(), SETTINGS)


def test_a_failed_directory_takes_only_its_own_logs_offline() -> None:
    disk = SimDisk()
    manager = open_manager(disk, "/a", "/b")
    logs = [manager.get_or_create(tp(number), TOPIC_ID, CONFIG) for number in range(4)]
    on_a = [log for log in logs if log.dir.startswith("/a")]
    on_b = [log for log in logs if log.dir.startswith("/b")]
    disk.fail("/a", errno.EIO)
    on_a[0].append_as_leader(batch("x"), 0, NOW_MS)
    with pytest.raises(LogDirError):
        on_a[0].write_pending()
    with pytest.raises(LogDirError):
        on_a[1].append_as_leader(batch("x"), 0, NOW_MS)
    for log in on_b:
        append(log, "fine")
        assert values(log) == ["fine"]
    assert len(manager.offline_dirs) == 1
    assert len(manager.directory_ids) == 1
    assert manager.get_or_create(tp(9), TOPIC_ID, CONFIG).dir.startswith("/b")
    described = manager.describe_dirs()
    assert [(one.path, one.failure is None, len(one.logs)) for one in described] == [
        ("/a", False, 2),
        ("/b", True, 3),
    ]
    run(manager, NOW_MS + 10**9)
    manager.close()
    disk.heal()
    disk._locks.clear()
    again = open_manager(disk, "/a", "/b")
    assert not again.clean_shutdown
    again.load()
    assert len(again.logs) == 5


def test_fsync_failure_in_a_thread_takes_the_directory_offline() -> None:
    disk = SimDisk()
    manager = open_manager(disk)
    log = manager.get_or_create(tp(0), TOPIC_ID, CONFIG)
    append(log, "x")
    disk.fail("/data/t-0/", errno.EIO)
    with pytest.raises(LogDirError):
        log.flush()
    assert log.recovery_point == 0
    assert manager.offline_dirs


def test_a_deleted_log_is_renamed_at_once_and_removed_later() -> None:
    disk = SimDisk()
    clock = ManualClock(NOW_MS)
    manager = open_manager(disk, clock=clock)
    log = manager.get_or_create(tp(0), TOPIC_ID, LogConfig(file_delete_delay_ms=1000))
    append(log, "x")
    manager.delete(tp(0))
    assert manager.get(tp(0)) is None
    names = [entry.name for entry in disk.scan("/data") if entry.is_dir]
    assert len(names) == 1
    assert names[0].startswith("t-0.")
    assert names[0].endswith("-delete")
    log.flush()  # one that was under way in a thread must not take the directory offline
    fresh = manager.get_or_create(tp(0), UUID(int=8), CONFIG)
    assert values(fresh) == []
    run(manager, NOW_MS + 999)
    assert len([entry for entry in disk.scan("/data") if entry.is_dir]) == 2
    run(manager, NOW_MS + 1000)
    assert [entry.name for entry in disk.scan("/data") if entry.is_dir] == ["t-0"]
    assert not manager.offline_dirs


def test_a_deletion_that_a_crash_interrupted_goes_on() -> None:
    disk = SimDisk()
    manager = open_manager(disk)
    append(manager.get_or_create(tp(0), TOPIC_ID, CONFIG), "x")
    manager.delete(tp(0))
    disk._locks.clear()
    again = open_manager(disk)
    again.load()
    assert not again.logs
    run(again, NOW_MS)
    assert not [entry for entry in disk.scan("/data") if entry.is_dir]


def test_files_of_a_topic_that_was_created_anew_are_not_taken_for_the_new_one() -> None:
    disk = SimDisk()
    manager = open_manager(disk)
    append(manager.get_or_create(tp(0), UUID(int=1), CONFIG), "old")
    manager.close()
    again = open_manager(disk)
    again.load()
    log = again.get_or_create(tp(0), UUID(int=2), CONFIG)
    assert values(log) == []
    assert log.topic_id == UUID(int=2)
    assert disk.read(f"{log.dir}/partition.metadata") == (
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg"
    )


def test_a_log_on_disk_is_loaded_on_first_use() -> None:
    disk = SimDisk()
    manager = open_manager(disk)
    append(manager.get_or_create(tp(0), TOPIC_ID, CONFIG), "kept")
    manager.close()
    again = open_manager(disk)
    assert values(again.get_or_create(tp(0), TOPIC_ID, CONFIG)) == ["kept"]


def test_the_metadata_log_is_left_to_the_controller() -> None:
    disk = SimDisk()
    disk.make_dir("/data/__cluster_metadata-0")
    manager = open_manager(disk)
    manager.load()
    assert not manager.logs


def test_a_partition_in_two_directories_is_refused() -> None:
    disk = SimDisk()
    disk.make_dir("/a/t-0")
    disk.make_dir("/b/t-0")
    with pytest.raises(LogDirConfigError, match="t-0 is in both"):
        open_manager(disk, "/a", "/b")


def test_checkpoints_are_kafkas_and_written_in_time() -> None:
    disk = SimDisk()
    manager = open_manager(disk)
    log = manager.get_or_create(tp(0, "orders"), TOPIC_ID, LogConfig(flush_messages=1))
    for _ in range(3):
        append(log, "x")
    log.advance_log_start_offset(2)
    run(manager, NOW_MS)
    run(manager, NOW_MS + 1000)
    run(manager, NOW_MS + 5000)
    assert disk.read("/data/replication-offset-checkpoint") == b"0\n1\norders 0 3\n"
    run(manager, NOW_MS + 60_000)
    assert disk.read("/data/recovery-point-offset-checkpoint") == b"0\n1\norders 0 3\n"
    assert disk.read("/data/log-start-offset-checkpoint") == b"0\n1\norders 0 2\n"
    disk._locks.clear()
    again = open_manager(disk)
    again.load()
    found = again.logs[tp(0, "orders")]
    assert (found.log_start_offset, found.high_watermark, found.recovery_point) == (2, 3, 3)


def test_a_truncation_below_the_checkpoint_rewrites_it_at_once() -> None:
    """Otherwise recovery would trust new, unsynced bytes in the place of old, synced ones."""
    disk = SimDisk()
    manager = open_manager(disk)
    log = manager.get_or_create(tp(0), TOPIC_ID, CONFIG)
    for value in "abc":
        append(log, value)
    log.flush()
    stale = log.log_dir.checkpoints.prepare(RECOVERY_POINT)
    log.log_dir.checkpoints.write(RECOVERY_POINT)
    log.truncate_to(1)
    assert disk.read("/data/recovery-point-offset-checkpoint") == b"0\n1\nt 0 1\n"
    stale()  # a job that was queued before, run late
    assert disk.read("/data/recovery-point-offset-checkpoint") == b"0\n1\nt 0 1\n"


def test_a_checkpoint_on_its_way_to_the_disk_does_not_outlive_a_truncation() -> None:
    disk = SimDisk()
    manager = open_manager(disk)
    log = manager.get_or_create(tp(0), TOPIC_ID, LogConfig(segment_bytes=100))
    for value in "abc":
        append(log, value * 20)
    log.flush()
    on_its_way = log.log_dir.checkpoints.prepare(RECOVERY_POINT)
    log.truncate_to(1)
    on_its_way()
    assert disk.read("/data/recovery-point-offset-checkpoint") == b"0\n1\nt 0 1\n"
    append(log, "d" * 20)
    log.flush()
    log.log_dir.checkpoints.write(RECOVERY_POINT)
    assert disk.read("/data/recovery-point-offset-checkpoint") == b"0\n1\nt 0 2\n"


def test_a_damaged_checkpoint_costs_time_not_data() -> None:
    disk = SimDisk()
    manager = open_manager(disk)
    append(manager.get_or_create(tp(0), TOPIC_ID, CONFIG), "x")
    manager.close()
    for name in ("recovery-point", "log-start", "replication", "cleaner"):
        disk.write(f"/data/{name}-offset-checkpoint", b"0\n5\ngarbage")
    again = open_manager(disk)
    again.load()
    assert values(again.logs[tp(0)]) == ["x"]


def test_sealed_segments_are_flushed_and_retention_applied_by_the_tick() -> None:
    disk = SimDisk()
    manager = open_manager(disk)
    config = LogConfig(segment_bytes=310, retention_bytes=400, file_delete_delay_ms=100)
    log = manager.get_or_create(tp(0), TOPIC_ID, config)
    for number in range(8):
        append(log, f"{number}" + "x" * 80)
    run(manager, NOW_MS)
    run(manager, NOW_MS + 1000)
    assert log.segments[0].synced
    assert log.recovery_point == 8
    run(manager, NOW_MS + 2000)
    assert disk.read("/data/recovery-point-offset-checkpoint") == b"0\n1\nt 0 8\n"
    run(manager, NOW_MS + 300_000)
    assert log.log_start_offset == 4
    run(manager, NOW_MS + 300_100)
    assert not [entry for entry in disk.scan(log.dir) if "deleted" in entry.name]


def test_progress_is_logged_while_loading() -> None:
    disk = SimDisk()
    manager = open_manager(disk)
    for number in range(3):
        append(manager.get_or_create(tp(number), TOPIC_ID, CONFIG), "x")
    disk._locks.clear()
    said: list[str] = []
    again = open_manager(disk)
    again.load(said.append)
    assert said[-1] == "3 of 3 logs loaded, 0 MB recovered"
    assert len(said) == 3


def test_a_start_that_is_interrupted_leaves_the_directories_as_they_were() -> None:
    """1. a clean stop; 2. a start that ends before the logs are loaded, for whatever reason;
    3. the next start finds the clean-shutdown mark, with its epoch, and the records."""
    disk = SimDisk()
    manager = open_manager(disk, "/a", "/b")
    for number in range(4):
        append(manager.get_or_create(tp(number), TOPIC_ID, CONFIG), "one")
    manager.close(broker_epoch=7)
    files = {path: disk.read(f"{path}/.kafka_cleanshutdown") for path in ("/a", "/b")}
    for _ in range(2):
        open_manager(disk, "/a", "/b").close(broker_epoch=9)
        assert {path: disk.read(f"{path}/.kafka_cleanshutdown") for path in files} == files
    after = open_manager(disk, "/a", "/b")
    assert after.previous_broker_epoch == 7
    after.load(lambda _: None, lambda _: CONFIG)
    assert {name: log.written_offset for name, log in after.logs.items()} == {
        tp(number): 1 for number in range(4)
    }


def test_a_start_after_a_crash_that_is_interrupted_is_still_after_a_crash() -> None:
    disk = SimDisk()
    manager = open_manager(disk, "/a")
    append(manager.get_or_create(tp(0), TOPIC_ID, CONFIG), "one")
    disk._locks.clear()  # kill -9
    open_manager(disk, "/a").close(broker_epoch=9)
    assert not disk.exists("/a/.kafka_cleanshutdown")
