"""Primitive types that the codecs share, mostly the hand-written ones of Produce and Fetch.

Example: the compact string "ab" is 03 61 62 (length + 1, then the bytes), null is 00.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from librt.strings import BytesWriter, read_i16_be, write_i16_be

from odradek_protocol.errors import DecodeError
from odradek_protocol.varint import Buffer, read_uvarint, uvarint

# Items of all arrays in one request: enough for every partition of a large cluster. Each item
# becomes an object of about 300 bytes, so a hostile frame can take about 40 MB.
ITEMS_MAX: Final = 100_000
# The same in an answer, from a broker that its client chose: the metadata of a partition with three
# replicas has seven items, so this is enough for 280,000 of them.
ANSWER_ITEMS_MAX: Final = 2_000_000
# Bytes of a string, as in Kafka; a compact string could be longer: a group id of 100 MB.
STRING_BYTES_MAX: Final = 0x7FFF
# Tagged fields of one structure. Messages define four at most; millions of unknown ones would
# keep the event loop busy.
TAGGED_FIELDS_MAX: Final = 100

int16: Final = Struct(">h").unpack_from
int32: Final = Struct(">i").unpack_from
int64: Final = Struct(">q").unpack_from
pack_int16: Final = Struct(">h").pack
pack_int32: Final = Struct(">i").pack


class NodeEndpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


def text(buf: Buffer, at: int, length: int) -> str:
    if length < 0 or length > STRING_BYTES_MAX or at + length > len(buf):
        raise DecodeError(f"string of {length} bytes in {len(buf) - at} bytes")
    if isinstance(buf, bytes):
        return buf[at : at + length].decode()
    return str(buf[at : at + length], "utf-8")


def legacy_text(buf: bytes, at: int) -> tuple[str, int]:
    length: int = read_i16_be(buf, at)
    return text(buf, at + 2, length), at + 2 + length


def compact_text(buf: Buffer, at: int) -> tuple[str, int]:
    length, at = read_uvarint(buf, at)
    return text(buf, at, length - 1), at + length - 1


def topic_id(buf: Buffer, at: int) -> tuple[bytes, int]:
    # If the frame ends here, the next read fails.
    return buf[at : at + 16] if isinstance(buf, bytes) else bytes(buf[at : at + 16]), at + 16


def tagged_fields(buf: Buffer, at: int) -> tuple[list[tuple[int, int, int]], int]:
    """[(tag, start, end)] of the section that starts at byte `at`, and the position after it."""
    count, at = read_uvarint(buf, at)
    if count > TAGGED_FIELDS_MAX:
        raise DecodeError(f"{count} tagged fields")
    fields = []
    for _ in range(count):
        tag, at = read_uvarint(buf, at)
        size, at = read_uvarint(buf, at)
        fields.append((tag, at, at + size))
        at += size
    if at > len(buf):
        raise DecodeError("tagged fields longer than the frame")
    return fields, at


def skip_tagged_fields(buf: Buffer, at: int) -> int:
    """The position after a section of tagged fields, all of them ignored."""
    return tagged_fields(buf, at)[1]


def bad_count(count: int) -> DecodeError:
    return DecodeError(f"an array of {count} items")


def compact_string(value: str | None) -> bytes:
    if value is None:
        return b"\0"
    data = value.encode()
    return uvarint(len(data) + 1) + data


def legacy_string(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    data = value.encode()
    return pack_int16(len(data)) + data


def write_legacy_string(out: BytesWriter, value: str) -> None:
    data = value.encode()
    write_i16_be(out, len(data))
    out.write(data)


def node_endpoints_section(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """The tagged fields at the end of a Produce or Fetch response: tag 0, if there are any."""
    if not endpoints:
        return b"\0"
    data = bytearray(uvarint(len(endpoints) + 1))
    for node_id, host, port, rack in endpoints:
        data += pack_int32(node_id) + compact_string(host) + pack_int32(port)
        data += compact_string(rack) + b"\0"
    return b"\x01\x00" + uvarint(len(data)) + data
