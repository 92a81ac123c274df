"""The reports of a broker about its disks before its start and when it exits."""

import errno
import os

import pytest

from odradek_broker.log.dir_failure import FailureKind
from odradek_broker.log.errors import LogDirError
from odradek_broker.runtime.disk import DiskUsage, RealDisk
from odradek_broker.runtime.settings import Settings
from odradek_broker.storage import (
    StorageFailedError,
    metadata_log_failed,
    storage_failed,
    waits_for_room,
)

GB = 1 << 30
MB = 1 << 20


class Disks(RealDisk):
    """Free bytes by path, of a terabyte each; others cannot be looked at."""

    def __init__(self, **free: int) -> None:
        super().__init__()
        self._free = {f"/{name}": size for name, size in free.items()}

    def usage(self, path: str) -> DiskUsage:
        if path not in self._free:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return DiskUsage(1024 * GB, self._free[path])


def settings(*dirs: str, **others: str) -> Settings:
    overrides = [f"log.dirs={','.join(dirs)}", *(f"{n}={v}" for n, v in others.items())]
    return Settings.load(None, {}, overrides)


@pytest.mark.parametrize(
    ("dirs", "free", "reason"),
    [
        (["/a"], {"a": GB}, None),
        (["/a"], {"a": 33 * MB}, None),
        (
            ["/a"],
            {"a": 20 * MB},
            "/a has 21.0 MB free, but a start needs 33.6 MB: waiting for room",
        ),
        (["/new"], {}, None),
        (["/a", "/b"], {"a": GB, "b": 0}, None),
        (["/a", "/b"], {"a": 0, "b": GB}, "/a has 0.0 MB free"),  # the metadata log is in /a
        (["/a", "/b"], {"a": 0, "b": 0}, "/a has 0.0 MB free, but a start needs 33.6 MB; /b has"),
    ],
)
def test_a_start_waits_for_room(dirs: list[str], free: dict[str, int], reason: str | None) -> None:
    found = waits_for_room(settings(*dirs), Disks(**free))
    if reason is None:
        assert found is None
    else:
        assert found is not None
        assert found.startswith(reason)


def test_without_a_reserve_any_room_will_do() -> None:
    chosen = settings("/a", **{"odradek.log.dir.reserve.bytes": "0"})
    assert waits_for_room(chosen, Disks(a=1)) is None
    assert waits_for_room(chosen, Disks(a=0)) is not None


@pytest.mark.parametrize(
    ("kind", "code", "advice"),
    [(FailureKind.OUT_OF_SPACE, 75, "waits for room"), (FailureKind.DEVICE, 74, "replace")],
)
def test_the_last_line(kind: FailureKind, code: int, advice: str) -> None:
    error = storage_failed("/a: [Errno 5] Input/output error", kind)
    assert error.exit_code == code
    assert "/a: [Errno 5] Input/output error" in str(error)
    assert advice in str(error)


def test_the_metadata_log() -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for error in (full, LogDirError("/a", full)):
        end = metadata_log_failed("/a", error)
        assert isinstance(end, StorageFailedError)
        assert end.exit_code == 75
        assert "metadata log in /a: [Errno 28]" in str(end)
    other = ValueError("not the disk")
    assert metadata_log_failed("/a", other) is other
    scarce = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    assert metadata_log_failed("/a", scarce) is scarce
