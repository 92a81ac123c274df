"""All logs of a broker, in the directories of `log.dirs`."""

from collections.abc import Sequence
from uuid import UUID

from odradek_broker.log.file_cache import FileCache
from odradek_broker.log.leader_epochs import LeaderEpochs
from odradek_broker.log.log import Log
from odradek_broker.log.log_dir import LogDir
from odradek_broker.log.producer_state import ProducerState
from odradek_broker.log.segment import LogSegment
from odradek_broker.model.ids import TopicPartition
from odradek_broker.model.log_config import LogConfig
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.disk import Disk


class LogManager:
    def __init__(
        self, dirs: Sequence[str], disk: Disk, clock: Clock, *, open_files_max: int = 4096
    ) -> None:
        self._disk = disk
        self._clock = clock
        files = FileCache(disk, open_files_max)
        self.dirs = [LogDir(path, disk, files) for path in dirs]
        for log_dir in self.dirs:
            disk.make_dir(log_dir.path)
        self.logs: dict[TopicPartition, Log] = {}

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self.logs.get(topic_partition)

    def get_or_create(
        self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig
    ) -> Log:
        log = self.logs.get(topic_partition)
        if log is not None:
            return log
        log_dir = self.dirs[0]
        path = f"{log_dir.path}/{topic_partition}"
        self._disk.make_dir(path)
        segment = LogSegment(log_dir.files, path, 0, created_ms=self._clock.now_ms())
        segment.file()
        log = Log(
            log_dir,
            topic_partition,
            config,
            [segment],
            log_start_offset=0,
            log_end_offset=0,
            recovery_point=0,
            epochs=LeaderEpochs(),
            producers=ProducerState(),
            topic_id=topic_id,
        )
        self.logs[topic_partition] = log
        return log
