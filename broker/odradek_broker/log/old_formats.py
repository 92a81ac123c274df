"""Refuses logs with records of format 0 or 1 (before Kafka 0.11), before a log is changed.

Recovery would take such records for damage and truncate them, so the broker does not start. It
looks at the first entry of each segment: a log that was upgraded has its old records at its
beginning, and one whose `message.format.version` was set back for a while has them anywhere. What
is in the middle of a segment is found where recovery stops there, and refused instead of truncated.
An entry of that time is

    offset 8 | size 4 | crc 4 | magic 1 | attributes 1 | …      e.g. 0 | 22 | 0x… | 1 | 0 | …

with the CRC-32 of everything after it. The CRC is checked, so that a segment of zero bytes, which a
crash can leave behind, does not count as format 0. Used by `start_loading.py` and `recovery.py`.
"""

import struct
import zlib

from odradek_broker.log.dir_identity import LogDirConfigError
from odradek_broker.log.file_names import LOG, SWAP
from odradek_broker.runtime.disk import Disk, File

SEGMENTS = (LOG, LOG + SWAP)  # the latter was being swapped in when the broker stopped
HEAD = struct.Struct(">qiIb")
CRC_END = 16  # the CRC covers what follows it
OLD_MAGICS = (0, 1)
SMALLEST = 14  # crc, magic, attributes, and the lengths of a null key and a null value

# The largest entry that Kafka 0.10 wrote by default is 1 MB; more memory is not spent on a check.
ENTRY_BYTES_MAX = 64 * 1024 * 1024


def require_current_format(disk: Disk, directory: str) -> None:
    """LogDirConfigError if a segment in this partition's directory begins with an old format."""
    for entry in disk.scan(directory):
        if entry.size and not entry.is_dir and entry.name.endswith(SEGMENTS):
            path = f"{directory}/{entry.name}"
            refuse_old_format(disk.open(path), path, 0)


def refuse_old_format(file: File, path: str, position: int) -> None:
    """LogDirConfigError if an entry of an old format is at this position of a segment."""
    magic = old_format(file, position)
    if magic is not None:
        where = f" at position {position}" if position else ""
        raise LogDirConfigError(
            f"log.dirs: {path} has records of format {magic}{where}, from before Kafka 0.11, which "
            "this broker does not read. No record was changed. To convert them, start Apache Kafka "
            "with this directory, and copy the topic to a cluster of this broker with `odradek "
            "migrate` or MirrorMaker 2: they write format 2"
        )


def old_format(file: File, position: int = 0) -> int | None:
    """0 or 1 if a whole entry of that format is at this position."""
    head = file.pread(HEAD.size, position)
    if len(head) < HEAD.size:
        return None
    _, size, crc, magic = HEAD.unpack(head)
    if magic not in OLD_MAGICS or not SMALLEST <= size <= ENTRY_BYTES_MAX:
        return None
    body = file.pread(12 + size - CRC_END, position + CRC_END)
    whole = len(body) == 12 + size - CRC_END
    return int(magic) if whole and zlib.crc32(body) == crc else None
