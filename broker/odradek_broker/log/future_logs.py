"""Copies of logs that move from one log directory to another: `orders-3.<id>-future`.

The future log is in the new directory while the replica's log is in the old one. It is a log like
any other (checkpoints, retention, flushing), but is not read by clients. When it is complete, two
renames put it in the replica's place:

    1  /a/orders-3              → /a/orders-3.<id>-delete     the same id: the swap is decided
    2  /b/orders-3.<id>-future  → /b/orders-3

A broker that dies in between finds the pair at its next start and makes the second rename. Any
other future log is continued from its end, as long as the replica's own log exists.
"""

import logging
from collections.abc import Mapping
from typing import NamedTuple
from uuid import uuid4

from odradek_broker.log.file_names import (
    DELETE_DIR,
    FUTURE_DIR,
    dir_id,
    parse_future_dir_name,
    retired_dir_name,
)
from odradek_broker.log.log import Log
from odradek_broker.log.log_dir import LogDir
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.disk import Disk
from odradek_protocol.ids import TopicPartition

logger = logging.getLogger(__name__)


class FoundFuture(NamedTuple):
    """The directory of a future log that was found at start."""

    topic_partition: TopicPartition
    log_dir: LogDir
    path: str


class FutureLogs:
    """Invariant: each partition in `logs` has its log in another directory."""

    def __init__(self, disk: Disk, clock: Clock) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        self._disk = disk
        self._clock = clock

    def settle(
        self,
        found: list[tuple[LogDir, str]],
        deleted_ids: set[str],
        current: dict[TopicPartition, LogDir],
        *,
        all_online: bool,
    ) -> list[FoundFuture]:
        """At start: complete interrupted swaps, remove useless copies; returns those to load.

        `current` gets the logs of completed swaps. `deleted_ids` are the ids in the names of all
        `-delete` directories.
        """
        to_load: dict[TopicPartition, FoundFuture] = {}
        for log_dir, name in found:
            path = f"{log_dir.path}/{name}"
            topic_partition = parse_future_dir_name(name)
            try:
                if topic_partition is None or topic_partition in to_load:
                    self._remove(log_dir, path, "its name does not say which partition it is of")
                elif topic_partition not in current and dir_id(name) in deleted_ids:
                    logger.info("%s replaces the log that it was copied from", path)
                    self._disk.rename(path, f"{log_dir.path}/{topic_partition}")
                    self._disk.sync_dir(log_dir.path)
                    current[topic_partition] = log_dir
                elif current.get(topic_partition) not in (None, log_dir):
                    to_load[topic_partition] = FoundFuture(topic_partition, log_dir, path)
                elif topic_partition in current or all_online:
                    self._remove(log_dir, path, "the log that it is a copy of does not exist")
            except OSError as error:
                log_dir.fail(error)
        return list(to_load.values())

    def _remove(self, log_dir: LogDir, path: str, why: str) -> None:
        logger.warning("removing %s: %s", path, why)
        renamed = path.removesuffix(FUTURE_DIR) + DELETE_DIR
        self._disk.rename(path, renamed)
        log_dir.remove_later(renamed, self._clock.now_ms())

    def drop(self, topic_partition: TopicPartition) -> None:
        """Remove the copy: the replica does not move, or is deleted. LogDirError if that fails."""
        copy = self.logs.pop(topic_partition, None)
        if copy is None:
            return
        copy.removed = True
        log_dir = copy.log_dir
        log_dir.logs.discard(copy)
        if log_dir.failure is not None:
            return
        # With a new id: with the id of the future log a start would complete the swap.
        path = f"{log_dir.path}/{retired_dir_name(topic_partition, DELETE_DIR)}"
        try:
            self._disk.rename(copy.dir, path)
        except OSError as error:
            raise log_dir.fail(error) from error
        log_dir.remove_later(path, self._clock.now_ms() + copy.config.file_delete_delay_ms)

    def swap(self, current: Log) -> Log:
        """Put the copy in the replica's place. LogDirError if one of the directories fails.

        The caller has checked that the copy is complete, and holds its flush lock.
        """
        topic_partition = current.topic_partition
        copy = self.logs[topic_partition]
        old_dir, new_dir = current.log_dir, copy.log_dir
        retired = (
            f"{old_dir.path}/{retired_dir_name(topic_partition, DELETE_DIR, dir_id(copy.dir))}"
        )
        home = f"{new_dir.path}/{topic_partition}"
        current.removed = True  # a flush may be running in a thread
        try:
            self._disk.rename(current.dir, retired)
            self._disk.sync_dir(old_dir.path)
        except OSError as error:
            raise old_dir.fail(error) from error
        try:
            self._disk.rename(copy.dir, home)
            self._disk.sync_dir(new_dir.path)
        except OSError as error:
            self._undo(current, retired)
            raise new_dir.fail(error) from error
        del self.logs[topic_partition]
        old_dir.logs.discard(current)
        old_dir.remove_later(retired, self._clock.now_ms() + current.config.file_delete_delay_ms)
        copy.relocate(home)
        try:
            copy.inherit(current)
        except OSError as error:
            raise new_dir.fail(error) from error
        return copy

    def _undo(self, current: Log, retired: str) -> None:
        """The copy cannot be used: the replica keeps its log."""
        try:
            self._disk.rename(retired, current.dir)
            current.removed = False
        except OSError as error:
            current.log_dir.fail(error)


def future_dir_name(topic_partition: TopicPartition) -> str:
    return retired_dir_name(topic_partition, FUTURE_DIR, uuid4().hex)


def lag_of(copy: Log, current: Mapping[TopicPartition, Log]) -> int:
    """Offsets that the copy does not have yet."""
    source = current.get(copy.topic_partition)
    return max(0, source.log_end_offset - copy.log_end_offset) if source else 0
