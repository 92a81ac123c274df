"""The checkpoint files of a log directory: an offset per partition, as text.

    0                    version
    2                    number of entries
    orders 0 1520        topic, partition, offset
    orders 1 1498

Four of them, each with Kafka's name and meaning. They are replaced as a whole (temporary file,
fsync, rename); a damaged one counts as empty, which costs time at the next start, never data.
"""

from collections.abc import Iterable, Mapping

from odradek_protocol.ids import Offset, TopicPartition

RECOVERY_POINT = "recovery-point-offset-checkpoint"  # all below was fsynced
LOG_START_OFFSET = "log-start-offset-checkpoint"  # after DeleteRecords or retention
HIGH_WATERMARK = "replication-offset-checkpoint"
CLEANER_OFFSET = "cleaner-offset-checkpoint"  # all below was compacted once

VERSION = 0


def encode_offsets(offsets: Mapping[TopicPartition, Offset]) -> bytes:
    lines = [f"{topic} {partition} {offset}\n" for (topic, partition), offset in offsets.items()]
    return f"{VERSION}\n{len(lines)}\n{''.join(lines)}".encode()


def parse_offsets(data: bytes) -> dict[TopicPartition, Offset] | None:
    """None if the file is damaged."""
    lines = data.decode("utf-8", "replace").splitlines()
    if not lines:
        return {}  # Kafka creates the file empty
    try:
        if int(lines[0]) != VERSION or int(lines[1]) != len(lines) - 2:
            return None
        return dict(_parse_lines(lines[2:]))
    except (ValueError, IndexError):
        return None


def _parse_lines(lines: Iterable[str]) -> Iterable[tuple[TopicPartition, Offset]]:
    for line in lines:
        topic, partition, offset = line.split(" ")
        yield TopicPartition(topic, int(partition)), int(offset)
