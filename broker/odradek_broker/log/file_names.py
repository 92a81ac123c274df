"""Names of the files of a partition directory, exactly Kafka's.

    00000000000000005000.log         the record batches of a segment with base offset 5000
    00000000000000005000.index       offset index
    00000000000000005000.timeindex   time index
    00000000000000005000.txnindex    aborted transactions, only if there are any
    00000000000000005000.snapshot    producer state before offset 5000
    leader-epoch-checkpoint, partition.metadata

Suffixes say what is being done with a file: `.cleaned` a replacement that is being written, `.swap`
a complete replacement that is being put in place, `.deleted` to be removed later.
"""

import re
import uuid

from odradek_protocol.ids import TopicPartition

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
INDEXES = (OFFSET_INDEX, TIME_INDEX, TXN_INDEX)
SEGMENT_FILES = (LOG, *INDEXES)

CLEANED = ".cleaned"
SWAP = ".swap"
DELETED = ".deleted"
TEMPORARY = ".tmp"

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

DELETE_DIR = "-delete"
STRAY_DIR = "-stray"
FUTURE_DIR = "-future"
_DIR_NAME = re.compile(r"(.+)-(\d+)")
_FUTURE_DIR_NAME = re.compile(r"(.+)-(\d+)\.[0-9a-f]{32}-future")
_DELETE_DIR_NAME = re.compile(r".+-\d+\.[0-9a-f]{32}-delete|.+\.[0-9a-f]{32}-delete")
# A directory name has at most 255 bytes; `.<32 hex digits>-delete` takes 40 of them.
_NAME_MAX = 255


def file_name(offset: int, kind: str, suffix: str = "") -> str:
    return f"{offset:020d}{kind}{suffix}"


def parse_file_name(name: str) -> tuple[int, str, str] | None:
    """(offset, kind, suffix) of a segment file or snapshot; None for any other name."""
    digits, dot, rest = name.partition(".")
    if not dot or len(digits) != 20 or not digits.isdigit():
        return None
    kind, dot, suffix = rest.partition(".")
    kind = "." + kind
    if kind not in SEGMENT_FILES and kind != SNAPSHOT:
        return None
    return int(digits), kind, dot + suffix


def parse_dir_name(name: str) -> TopicPartition | None:
    """`orders-3` → (orders, 3); None if this cannot be a partition directory."""
    match = _DIR_NAME.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match else None


def retired_dir_name(topic_partition: TopicPartition, suffix: str, unique: str = "") -> str:
    """`orders-3` → `orders-3.<32 hex digits>-delete`; a long topic name is cut to fit."""
    tail = f".{unique or uuid.uuid4().hex}{suffix}"
    return str(topic_partition)[: _NAME_MAX - len(tail)] + tail


def parse_future_dir_name(name: str) -> TopicPartition | None:
    """The partition of a future log; None if its topic name was shortened."""
    match = _FUTURE_DIR_NAME.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match else None


def dir_id(name: str) -> str:
    """The 32 hex digits of a directory that is to be deleted, or of a future log."""
    return name.rpartition("-")[0][-32:]


def is_delete_dir(name: str) -> bool:
    return _DELETE_DIR_NAME.fullmatch(name) is not None
