"""Record batches of format v2: the header, without touching the records.

The broker handles a batch as opaque bytes from socket to disk to socket. It needs only the 61-byte
header, which this module reads and patches in place:

    offset  size  field
         0     8  base_offset             \\  outside the CRC, so the broker
         8     4  batch_length             | may overwrite base_offset and
        12     4  partition_leader_epoch   | partition_leader_epoch in place
        16     1  magic (2)               /
        17     4  crc (CRC32C of everything from byte 21 on)
        21     2  attributes (0-2 codec, 3 timestamp type, 4 transactional, 5 control,
                  6 delete horizon set)
        23     4  last_offset_delta
        27     8  base_timestamp
        35     8  max_timestamp
        43     8  producer_id
        51     2  producer_epoch
        53     4  base_sequence
        57     4  record_count
        61        records, compressed as one block if a codec is set

`batch_length` counts the bytes after itself, so a batch takes 12 + batch_length bytes.
Example: one record with a 1-byte value makes a batch of 69 bytes, batch_length 57.
"""

from struct import Struct
from typing import Final

from crc32c import crc32c
from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_i32_be,
    write_i64_be,
)

from odradek_protocol.byte_range import ByteRange
from odradek_protocol.varint import Buffer

HEADER_BYTES: Final = 61
LOG_OVERHEAD: Final = 12  # base_offset + batch_length: enough to know where the next batch starts
CRC_AT: Final = 17
CRC_FROM: Final = 21  # the CRC covers the bytes from here to the end of the batch
MAGIC_AT: Final = 16

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

HEADER: Final = Struct(">qiiBIhiqqqhii")
assert HEADER.size == HEADER_BYTES
OFFSET: Final = Struct(">q")
EPOCH_AT: Final = 12
CRC: Final = Struct(">I")


class BatchHeader:
    # A plain class and not a NamedTuple: the hot path reads about 20 fields per batch, and compiled
    # code reads attributes of a class ten times faster. Its constructor takes Kafka's 13 header
    # fields one by one: an object in between would be built for every batch.
    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_length",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "record_count",
    )

    def __init__(
        self,
        base_offset: int,
        batch_length: int,
        partition_leader_epoch: int,
        magic: int,
        crc: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        record_count: int,
    ) -> None:
        self.base_offset = base_offset
        self.batch_length = batch_length
        self.partition_leader_epoch = partition_leader_epoch
        self.magic = magic
        self.crc = crc
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.record_count = record_count

    @property
    def fields(self) -> tuple[int, ...]:
        """In their order in the batch, as HEADER packs them."""
        return (
            self.base_offset,
            self.batch_length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        )

    def replace(self, **changes: int) -> "BatchHeader":
        changed = BatchHeader(*self.fields)
        for name, value in changes.items():
            setattr(changed, name, value)
        return changed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BatchHeader) and self.fields == other.fields

    def __repr__(self) -> str:
        return f"BatchHeader{self.fields}"

    @property
    def size(self) -> int:
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)


def read_header(buffer: bytes | bytearray | memoryview, at: int = 0) -> BatchHeader:
    """The header that starts at byte `at`; IndexError if there are fewer than 61 bytes."""
    if not isinstance(buffer, bytes):
        buffer = bytes(buffer[at : at + HEADER_BYTES])
        at = 0
    return BatchHeader(
        read_i64_be(buffer, at),
        read_i32_be(buffer, at + 8),
        read_i32_be(buffer, at + EPOCH_AT),
        buffer[at + MAGIC_AT],
        int(read_i32_be(buffer, at + CRC_AT)) & 0xFFFFFFFF,
        read_i16_be(buffer, at + CRC_FROM),
        read_i32_be(buffer, at + 23),
        read_i64_be(buffer, at + 27),
        read_i64_be(buffer, at + 35),
        read_i64_be(buffer, at + 43),
        read_i16_be(buffer, at + 51),
        read_i32_be(buffer, at + 53),
        read_i32_be(buffer, at + 57),
    )


def queue_stamped(out: list[Buffer], batch: ByteRange, base_offset: int, leader_epoch: int) -> None:
    """Add a batch to `out` with this base offset and leader epoch."""
    head = BytesWriter()
    write_i64_be(head, base_offset)
    write_i32_be(head, len(batch) - LOG_OVERHEAD)
    write_i32_be(head, leader_epoch)
    rest = batch.from_byte(MAGIC_AT)
    if isinstance(rest, bytes):  # small: header and records become one buffer
        head.write(rest)
        out.append(head.getvalue())
    else:
        out.append(head.getvalue())
        out.append(rest)


def crc_matches(batch: memoryview, crc: int) -> bool:
    return crc32c(batch[CRC_FROM:]) == crc
