"""The five codecs of record batches, with a limit on what decompression may produce.

`log/validation.py`, the cleaner and the CLI call this. Ids are those of a batch's attributes:
0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd. Every decompression writes into a buffer of known
size, which grows to at most `limit` bytes: that is all the memory a decompression bomb can take.
Example: a 1 KB zstd frame of 1 GB of zeros is a DecompressedTooLargeError.

Two codecs need care to be read by the Java client:

    snappy  is written in xerial framing: 82 "SNAPPY" 00, version 1, compatible 1, then per block
            of 32 KiB a 4-byte length and raw snappy data; a single raw block is read too
    lz4     frames must have independent blocks, which is not the library's default
"""

import zlib
from struct import Struct, error
from typing import Final

import cramjam

from odradek_protocol.errors import DecodeError
from odradek_protocol.varint import Buffer

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

# A batch has at most 1 MB by default (max.message.bytes) and is seldom compressed to a tenth.
DECOMPRESSED_BYTES_MAX = 32 * 1024 * 1024
FIRST_GUESS_BYTES_MIN = 16 * 1024

DEFAULT_LEVELS = {GZIP: -1, SNAPPY: 0, LZ4: 9, ZSTD: 3}

XERIAL_MAGIC = b"\x82SNAPPY\0"
XERIAL_HEADER = XERIAL_MAGIC + b"\0\0\0\x01\0\0\0\x01"
XERIAL_BLOCK_BYTES = 32 * 1024

_int32 = Struct(">i")


class DecompressionError(DecodeError):
    """Compressed data that is damaged, or of another codec."""


class DecompressedTooLargeError(DecompressionError):
    """The decompressed data is larger than the limit."""


def decompress(codec: int, data: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """The plain bytes of `data`; raises DecompressionError, DecompressedTooLargeError."""
    if codec == NONE:
        return data
    try:
        if codec == SNAPPY:
            if data[: len(XERIAL_MAGIC)] == XERIAL_MAGIC:
                return _decompress_xerial(data, limit)
            return _decompress_snappy_block(data, limit)
        return _decompress_stream(codec, data, limit)
    except (cramjam.DecompressionError, error) as e:
        raise DecompressionError(f"{CODEC_NAMES[codec]}: {e}") from None


def _decompress_stream(codec: int, data: Buffer, limit: int) -> bytearray:
    """gzip, lz4 and zstd do not reliably state the result's length: try, and grow the buffer."""
    into = {
        GZIP: cramjam.gzip.decompress_into,
        LZ4: cramjam.lz4.decompress_into,
        ZSTD: cramjam.zstd.decompress_into,
    }.get(codec)
    if into is None:
        raise DecompressionError(f"unknown codec {codec}")
    if len(data) == 0:
        raise DecompressionError("no compressed data")
    size = min(limit, max(FIRST_GUESS_BYTES_MIN, 4 * len(data)))
    while True:
        out = bytearray(size)
        try:
            written = into(data, out)
        except cramjam.DecompressionError as e:
            if "failed to write whole buffer" not in str(e):
                raise
            if size == limit:
                raise DecompressedTooLargeError(f"more than {limit} bytes") from None
            size = min(limit, 4 * size)
        else:
            del out[written:]
            return out


def _decompress_snappy_block(data: Buffer, limit: int) -> bytearray:
    size = cramjam.snappy.decompress_raw_len(data)
    if size > limit:
        raise DecompressedTooLargeError(f"{size} bytes, more than {limit}")
    # The format cannot expand 3 bytes to more than 64: do not allocate because of a
    # claimed length alone.
    if size > 32 * len(data):
        raise DecompressionError(f"snappy: {len(data)} bytes cannot hold {size}")
    out = bytearray(size)
    written = cramjam.snappy.decompress_raw_into(data, out)
    del out[written:]
    return out


def _decompress_xerial(data: Buffer, limit: int) -> bytearray:
    view = memoryview(data)
    at = len(XERIAL_HEADER)
    out = bytearray()
    while at < len(view):
        (length,) = _int32.unpack_from(view, at)
        at += 4
        if not 0 <= length <= len(view) - at:
            raise DecompressionError(f"snappy: block of {length} bytes in {len(view) - at} bytes")
        out += _decompress_snappy_block(view[at : at + length], limit - len(out))
        at += length
    return out


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` compressed; levels are those of the codec, by default Kafka's."""
    if codec == NONE:
        return bytes(data)
    if level is None:
        level = DEFAULT_LEVELS[codec]
    if codec == GZIP:
        compressor = zlib.compressobj(level, wbits=31)
        return compressor.compress(data) + compressor.flush()
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, level=level))
    if codec == SNAPPY:
        return _compress_xerial(data)
    frame = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    frame.compress(bytes(data))
    return bytes(frame.finish())


def _compress_xerial(data: Buffer) -> bytes:
    out = bytearray(XERIAL_HEADER)
    view = memoryview(data)
    for at in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[at : at + XERIAL_BLOCK_BYTES]))
        out += _int32.pack(len(block)) + block
    return bytes(out)
