"""The log of a coordinator's shard, in memory."""

from odradek_broker.coordinator.loading import batches_of
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.records.record_batch import OFFSET


class ShardLog:
    """Batches in memory, with the offsets that a partition would assign."""

    batch_bytes_max = 10_000

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end = 0
        self.error: KafkaError | None = None

    def append(self, batch: bytes) -> int:
        if self.error:
            raise self.error
        ((header, _),) = batches_of(batch)
        self.batches.append(OFFSET.pack(self.end) + batch[OFFSET.size :])
        self.end += header.record_count
        return self.end - 1
