"""The disk port: special cases of the real disk, and what the simulated one loses in a crash."""

import errno
import os
from pathlib import Path
from random import Random

import pytest

from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.runtime.disk import IOV_MAX, Disk, RealDisk


@pytest.fixture(params=["real", "simulated"])
def disk_and_dir(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    disk: Disk = RealDisk() if request.param == "real" else SimDisk()
    directory = f"{tmp_path}/d"
    disk.make_dir(directory)
    return disk, directory


def test_both_disks_do_the_same(disk_and_dir: tuple[Disk, str]) -> None:
    disk, directory = disk_and_dir
    path = f"{directory}/file"
    with pytest.raises(FileNotFoundError):
        disk.open(path)
    file = disk.open(path, create=True)
    file.pwritev([b"hello ", bytearray(b"wor"), memoryview(b"ld")], 0)
    file.pwritev([b"W"], 6)
    assert file.pread(100, 0) == b"hello World"
    assert file.pread(3, 9) == b"ld"
    assert file.pread(3, 50) == b""
    file.truncate(5)
    file.fsync()
    assert disk.read(path) == b"hello"
    disk.write(f"{directory}/whole", b"data")
    disk.write(f"{directory}/whole", b"new", sync=False)
    disk.rename(path, f"{directory}/renamed")
    assert file.pread(5, 0) == b"hello"  # an open file does not mind
    disk.make_dir(f"{directory}/sub/sub")
    assert sorted(disk.scan(directory)) == [
        ("renamed", 5, False),
        ("sub", 0, True),
        ("whole", 3, False),
    ]
    disk.sync_dir(directory)
    disk.remove(f"{directory}/renamed")
    disk.remove(f"{directory}/renamed")
    assert file.pread(5, 0) == b"hello"
    assert not disk.exists(f"{directory}/renamed")
    disk.rename(f"{directory}/sub", f"{directory}/moved")
    assert disk.exists(f"{directory}/moved/sub")
    disk.remove_tree(f"{directory}/moved")
    assert not disk.exists(f"{directory}/moved")
    assert disk.usage(directory).total_bytes >= disk.usage(directory).usable_bytes > 0
    lock = disk.lock(f"{directory}/.lock")
    assert lock is not None
    assert disk.lock(f"{directory}/.lock") is None
    lock.release()
    assert disk.lock(f"{directory}/.lock") is not None


def test_more_buffers_than_one_writev_takes(disk_and_dir: tuple[Disk, str]) -> None:
    disk, directory = disk_and_dir
    file = disk.open(f"{directory}/many", create=True)
    buffers = [b"%06d" % number for number in range(3 * IOV_MAX + 5)]
    file.pwritev(buffers, 0)
    assert file.pread(1 << 20, 0) == b"".join(buffers)


def test_a_partial_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel takes seven bytes at a time."""
    disk = RealDisk()
    file = disk.open(f"{tmp_path}/slow", create=True)
    real = os.pwritev

    def seven_at_most(fd: int, buffers: list[bytes], offset: int) -> int:
        return real(fd, [b"".join(buffers)[:7]], offset)

    monkeypatch.setattr(os, "pwritev", seven_at_most)
    file.pwritev([b"abcde", b"", b"fghijklmnopq", b"rstuvwxyz"], 0)
    assert file.pread(100, 0) == b"abcdefghijklmnopqrstuvwxyz"
    monkeypatch.setattr(os, "pwritev", lambda *_: 0)
    with pytest.raises(OSError, match="No space"):
        file.pwritev([b"x"], 0)


def test_a_file_closes_with_its_last_reference(tmp_path: Path) -> None:
    disk = RealDisk()
    file = disk.open(f"{tmp_path}/f", create=True)
    fd = file.fileno()
    other = file
    del file
    os.fstat(fd)
    del other
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)


def test_a_crash_keeps_synced_bytes_and_a_part_of_the_rest() -> None:
    found = set()
    for seed in range(200):
        disk = SimDisk()
        disk.make_dir("/d")
        file = disk.open("/d/f", create=True)
        file.pwritev([b"synced"], 0)
        file.fsync()
        file.pwritev([b"MORE"], 6)
        disk.crash(Random(seed))
        data = disk.read("/d/f")
        assert data.startswith(b"synced")
        found.add(data)
    assert {b"synced", b"syncedMORE"} < found
    assert any(b"\0" in data for data in found)
    assert any(6 < len(data) < 10 for data in found)


def test_a_crash_keeps_a_prefix_of_the_name_changes() -> None:
    found = set()
    for seed in range(200):
        disk = SimDisk()
        disk.make_dir("/d")
        disk.open("/d/a", create=True).fsync()
        disk.rename("/d/a", "/d/b")
        disk.open("/d/c", create=True)
        disk.crash(Random(seed))
        found.add(tuple(sorted(entry.name for entry in disk.scan("/d"))))
    assert found == {("a",), ("b",), ("b", "c")}


def test_faults_and_a_full_disk() -> None:
    disk = SimDisk(capacity_bytes=10)
    disk.make_dir("/d")
    file = disk.open("/d/f", create=True)
    with pytest.raises(OSError, match="No space") as caught:
        file.pwritev([b"0123456789abc"], 0)
    assert caught.value.errno == errno.ENOSPC
    assert disk.read("/d/f") == b"0123456789"
    disk.fail("/d", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.fsync()
    disk.heal()
    file.fsync()
