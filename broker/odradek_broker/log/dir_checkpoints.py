"""The checkpoints of one log directory: which offsets they hold, and when they are written.

A checkpoint is taken in the event loop's thread (`prepare`) and may be written in any other one,
since that takes an fsync. A job that a newer checkpoint of the same name has overtaken writes
nothing:

    a = prepare(RECOVERY_POINT)     orders-0 at 10
    b = prepare(RECOVERY_POINT)     orders-0 at 20
    b(), then a()                   the file says 20

Used by `Housekeeping` every few seconds, and by the log layer where an old checkpoint would be
wrong after a crash. The file format is in `checkpoints.py`.
"""

import logging
import threading
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING

from odradek_broker.log.checkpoints import (
    CLEANER_OFFSET,
    HIGH_WATERMARK,
    LOG_START_OFFSET,
    RECOVERY_POINT,
    encode_offsets,
    parse_offsets,
)
from odradek_protocol.ids import Offset, TopicPartition

if TYPE_CHECKING:
    from odradek_broker.log.log import Log
    from odradek_broker.log.log_dir import LogDir

logger = logging.getLogger(__name__)

Write = Callable[[], None]


class DirCheckpoints:
    def __init__(self, log_dir: "LogDir") -> None:
        self._log_dir = log_dir
        self._writing = threading.Lock()
        self._prepared: dict[str, int] = {}  # per name: the number of the newest one prepared …
        self._written: dict[str, int] = {}  # … and of the newest one written
        self._digests: dict[str, bytes] = {}

    def read(self, name: str) -> dict[TopicPartition, Offset]:
        """The content of the file; empty if it is missing or damaged."""
        disk, path = self._log_dir.disk, self._path(name)
        if not disk.exists(path):
            return {}
        offsets = parse_offsets(disk.read(path))
        if offsets is None:
            logger.warning("ignoring %s: the file is damaged", path)
        return offsets or {}

    def write(self, *names: str) -> None:
        """Take these checkpoints and write them now. LogDirError if the disk fails."""
        for name in names:
            write = self.prepare(name)
            write()

    def prepare(self, name: str) -> Write:
        """Take a checkpoint; call what is returned, in any thread, to write it."""
        number = self._prepared[name] = self._prepared.get(name, 0) + 1
        if name == HIGH_WATERMARK:
            return self._prepare_high_watermarks(number)
        offsets = self._offsets(name)
        if name == RECOVERY_POINT:
            for log, offset in offsets.items():
                log.before_checkpoint(offset)

        def write() -> None:
            with self._writing:
                if self._log_dir.failure is not None or number < self._written.get(name, 0):
                    return
                self._replace_file(name, offsets)
                self._written[name] = number
                if name == RECOVERY_POINT:
                    for log, offset in offsets.items():
                        log.after_checkpoint(offset)

        return write

    def _prepare_high_watermarks(self, number: int) -> Write:
        """High watermarks are collected when they are written, in that thread.

        Collecting 50,000 of them takes the event loop 20 ms. The list of logs is copied here,
        because it changes on the loop; a high watermark that moved meanwhile is as good.
        """
        logs = list(self._log_dir.logs)

        def write() -> None:
            with self._writing:
                if self._log_dir.failure is not None or number < self._written.get(
                    HIGH_WATERMARK, 0
                ):
                    return
                self._replace_file(HIGH_WATERMARK, {log: log.high_watermark for log in logs})
                self._written[HIGH_WATERMARK] = number

        return write

    def _offsets(self, name: str) -> "dict[Log, Offset]":
        logs = self._log_dir.logs
        if name == RECOVERY_POINT:
            return {log: max(log.recovery_point, 0) for log in logs}
        if name == LOG_START_OFFSET:
            # Only where the name of the first segment does not say it.
            return {
                log: log.log_start_offset
                for log in logs
                if log.log_start_offset > log.segments[0].base_offset
            }
        assert name == CLEANER_OFFSET, name
        # Also logs that are not compacted any more: they have gaps (see `loading.py`).
        return {log: log.cleaned_offset for log in logs if log.cleaned_offset >= 0}

    def _replace_file(self, name: str, offsets: "dict[Log, Offset]") -> None:
        data = encode_offsets({log.topic_partition: offset for log, offset in offsets.items()})
        digest = blake2b(data, digest_size=16).digest()
        if digest == self._digests.get(name):
            return  # an idle broker writes nothing
        try:
            self._log_dir.disk.write(self._path(name), data)
        except OSError as error:
            raise self._log_dir.fail(error) from error
        self._digests[name] = digest

    def _path(self, name: str) -> str:
        return f"{self._log_dir.path}/{name}"
