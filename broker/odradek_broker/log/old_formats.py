"""Refuses logs with records of format 0 or 1 (before Kafka 0.11), before a log is changed.

Recovery takes such records for damage and would truncate them, so the broker does not start. The
oldest segment decides: a log that was upgraded has its old records there. An entry of that time is

    offset 8 | size 4 | crc 4 | magic 1 | attributes 1 | …      e.g. 0 | 22 | 0x… | 1 | 0 | …

with the CRC-32 of everything after it. The CRC is checked, so that a segment of zero bytes, which a
crash can leave behind, does not count as format 0. Used by `start_loading.py`.
"""

import struct
import zlib

from odradek_broker.log.dir_identity import LogDirConfigError
from odradek_broker.runtime.disk import Disk

LOG_SUFFIX = ".log"
HEAD = struct.Struct(">qiIb")
CRC_END = 16  # the CRC covers what follows it
OLD_MAGICS = (0, 1)
SMALLEST = 14  # crc, magic, attributes, and the lengths of a null key and a null value

# The largest entry that Kafka 0.10 wrote by default is 1 MB; more memory is not spent on a check.
ENTRY_BYTES_MAX = 64 * 1024 * 1024


def require_current_format(disk: Disk, directory: str) -> None:
    """LogDirConfigError if the oldest segment in this partition's directory has an old format."""
    segments = [
        entry.name
        for entry in disk.scan(directory)
        if not entry.is_dir and entry.name.endswith(LOG_SUFFIX)
    ]
    if not segments:
        return
    path = f"{directory}/{min(segments)}"
    magic = old_format(disk, path)
    if magic is not None:
        raise LogDirConfigError(
            f"log.dirs: {path} has records of format {magic}, from before Kafka 0.11, which "
            "this broker does not read. No log was changed. To convert them, start Apache Kafka "
            "with this directory and copy the topic to this cluster with MirrorMaker 2, or with a "
            "consumer and a producer: they write format 2"
        )


def old_format(disk: Disk, path: str) -> int | None:
    """0 or 1 if the file begins with a whole entry of that format."""
    file = disk.open(path)
    head = file.pread(HEAD.size, 0)
    if len(head) < HEAD.size:
        return None
    _, size, crc, magic = HEAD.unpack(head)
    if magic not in OLD_MAGICS or not SMALLEST <= size <= ENTRY_BYTES_MAX:
        return None
    body = file.pread(12 + size - CRC_END, CRC_END)
    whole = len(body) == 12 + size - CRC_END
    return int(magic) if whole and zlib.crc32(body) == crc else None
