"""New partitions, when there are many: their files are made in threads, some at a time.

A file system takes from 0.1 to 10 ms to make the directory and the files of a log; ten thousand of
them would keep the event loop for seconds. `PartitionService` opens a few itself and leaves the
others here (`put`). Until a partition is open, it is answered for with NOT_LEADER_OR_FOLLOWER, as
if the metadata had not come yet, and is opened next (`want`).

    waiting     (topic, partition) → the newest command for it; older ones do not matter any more
    in hand     those of them whose files a thread is making

Commands for a partition that waits come here, too, so none overtakes another.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from odradek_broker.log.log import Log
from odradek_broker.log.manager import LogManager
from odradek_broker.model.log_config import LogConfig
from odradek_broker.partition.commands import LeaderAndIsr, StopReplica
from odradek_broker.runtime.slices import Slices
from odradek_broker.runtime.tasks import Threads
from odradek_protocol.ids import TopicPartition

# Opened by one job of a thread: few, so that a requested partition does not wait long.
AT_A_TIME = 32

Key = tuple[str, int]
Made = tuple[Key, Log | Exception | None]


class Opening:
    def __init__(
        self,
        logs: LogManager,
        config_of: Callable[[str], LogConfig],
        threads: Threads,
        slices: Slices,
        on_made: Callable[[LeaderAndIsr, Exception | None], None],
    ) -> None:
        """`on_made` opens a partition whose log is there now, or could not be made."""
        self._logs = logs
        self._config_of = config_of
        self._threads = threads
        self._slices = slices
        self._on_made = on_made
        self._waiting: dict[Key, LeaderAndIsr] = {}
        self._topics: Counter[str] = Counter()  # partitions that wait, for each topic
        self._wanted: deque[Key] = deque()
        self._in_hand: set[Key] = set()
        self._busy = False  # a thread makes some, or they are being opened
        self._closed = False

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._busy

    def __contains__(self, key: Key) -> bool:
        return key in self._waiting

    def waits(self, topic: str) -> bool:
        """Whether a partition of the topic is not open yet."""
        return topic in self._topics

    def put(self, command: LeaderAndIsr) -> None:
        """Open this partition later; the command replaces one that waits for the same."""
        key: Key = command.topic_partition
        before = self._waiting.get(key)
        if before is None:
            self._topics[key[0]] += 1
        elif before.topic_id == command.topic_id and before.is_new:
            command = replace(command, is_new=True)
        self._waiting[key] = command
        if not self._busy:
            self._make_some()

    def cancel(self, command: StopReplica) -> None:
        """The partition left this broker before it was opened."""
        waiting = self._waiting.get(command.topic_partition)
        if waiting is not None and waiting.topic_id == command.topic_id:
            self._forget(command.topic_partition)

    def want(self, key: Key) -> None:
        """A client requested it: open it next, unless a thread has it already."""
        if key not in self._in_hand and len(self._wanted) < AT_A_TIME:
            self._wanted.append(key)

    def close(self) -> None:
        self._closed = True
        self._waiting.clear()
        self._topics.clear()

    def _forget(self, key: Key) -> LeaderAndIsr | None:
        command = self._waiting.pop(key, None)
        if command is not None:
            self._topics[key[0]] -= 1
            if not self._topics[key[0]]:
                del self._topics[key[0]]
        return command

    # --- in a thread ----------------------------------------------------------------------------

    def _next(self) -> list[Key]:
        found = dict.fromkeys(key for key in self._wanted if key in self._waiting)
        self._wanted.clear()
        for key in self._waiting:
            if len(found) >= AT_A_TIME:
                break
            found[key] = None
        return list(found)

    def _make_some(self) -> None:
        self._busy = True
        jobs: list[tuple[Key, Callable[[], Log] | None]] = []
        for key in self._next():
            command = self._waiting[key]
            config = self._config_of(key[0])
            job = self._logs.creation(
                command.topic_partition, command.topic_id, config, is_new=command.is_new
            )
            jobs.append((key, job))
        self._in_hand = {key for key, _ in jobs}
        made: list[Made] = []

        def make() -> None:
            for key, job in jobs:
                try:
                    made.append((key, job and job()))
                except Exception as error:
                    made.append((key, error))

        def done(error: BaseException | None) -> None:
            assert error is None, error
            if self._closed:
                self._busy = False
            else:
                self._slices.add(self._adopt(made))

        self._threads.run(make, done)

    def _adopt(self, made: list[Made]) -> Iterator[None]:
        for key, found in made:
            if isinstance(found, Log):
                self._logs.adopt(found)
            self._in_hand.discard(key)
            command = self._forget(key)
            if command is not None:
                self._on_made(command, found if isinstance(found, Exception) else None)
            elif isinstance(found, Log):
                self._logs.delete(TopicPartition(*key))  # it left while its files were made
            yield None
        self._logs.creations_done()
        self._busy = False
        if self._waiting:
            self._make_some()
