"""Ten thousand partitions must fit into a small broker: bytes per log, measured on a few."""

import gc
import tracemalloc

from broker_tests.log.support import NOW_MS, TOPIC_ID, batch, commit, open_manager
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.model.log_config import LogConfig
from odradek_protocol.ids import TopicPartition

LOGS = 200
EMPTY_BYTES_MAX = 3_000  # of the log and the simulated disk's own entries for its two files
USED_BYTES_MAX = 15_000


class NullDisk(SimDisk):
    """Keeps no history of names, which only crash tests need."""

    def _changing_names(self, path: str) -> None:
        self.check(path)


def test_memory_per_log() -> None:
    manager = open_manager(NullDisk())
    config = LogConfig()
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(LOGS):
            manager.get_or_create(TopicPartition("t", number), TOPIC_ID, config)
        gc.collect()
        empty = tracemalloc.get_traced_memory()[0] / LOGS
        files = 0
        for log in manager.logs.values():
            for sequence in range(20):
                data = batch("x" * 100, producer=(7, 0, sequence))
                files += len(data)
                log.append_as_leader(data, 0, NOW_MS)
            commit(log)
        gc.collect()
        used = (tracemalloc.get_traced_memory()[0] - files) / LOGS
    finally:
        tracemalloc.stop()
    assert empty < EMPTY_BYTES_MAX
    assert used < USED_BYTES_MAX
