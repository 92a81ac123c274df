"""Walk the record batches of a segment file without decoding records.

`scan_headers` serves lookups: it reads a few kilobytes at a time and follows the lengths from
batch to batch (example: batches of 70, 80 and 70 bytes are at the positions 0, 70 and 150).
`scan_batches` reads whole batches and checks their CRC; recovery and the cleaner use it.
"""

from collections.abc import Iterator

from odradek_broker.log.errors import CorruptLogError
from odradek_broker.runtime.disk import File
from odradek_protocol.records.record_batch import (
    HEADER_BYTES,
    LOG_OVERHEAD,
    BatchHeader,
    crc_matches,
    read_header,
)

# Twice the default index interval: one read usually reaches from an index entry to the batch that
# is looked up.
HEADER_CHUNK_BYTES = 8192
# Large sequential reads keep recovery at the speed of the disk and of the CRC.
SCAN_CHUNK_BYTES = 1 << 20

MAGIC = 2


def header_problem(header: BatchHeader, remaining: int) -> str | None:
    """Why these 61 bytes cannot start a batch with `remaining` bytes left in the file."""
    if header.magic != MAGIC:
        return f"magic {header.magic}"
    if header.batch_length < HEADER_BYTES - LOG_OVERHEAD:
        return f"batch length {header.batch_length}"
    if header.size > remaining:
        return f"batch of {header.size} bytes with {remaining} left"
    if header.base_offset < 0 or header.last_offset_delta < 0 or header.record_count < 0:
        return "negative offset or count"
    return None


def scan_headers(file: File, path: str, start: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch in [start, end); CorruptLogError where the chain breaks."""
    position = start
    chunk = b""
    chunk_at = start
    while position < end:
        if position + HEADER_BYTES > chunk_at + len(chunk):
            chunk = file.pread(min(HEADER_CHUNK_BYTES, end - position), position)
            chunk_at = position
            if len(chunk) < HEADER_BYTES:
                raise CorruptLogError(path, position, f"only {len(chunk)} bytes left")
        header = read_header(chunk, position - chunk_at)
        problem = header_problem(header, end - position)
        if problem:
            raise CorruptLogError(path, position, problem)
        yield position, header
        position += header.size


def scan_batches(
    file: File, path: str, start: int, end: int, chunk_bytes: int = SCAN_CHUNK_BYTES
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """(position, header, bytes) of each batch in [start, end), CRC checked.

    CorruptLogError at the first batch that is cut off or damaged.
    """
    position = start
    chunk = memoryview(b"")
    chunk_at = start
    while position < end:
        at = position - chunk_at
        if at + HEADER_BYTES > len(chunk):
            chunk = memoryview(file.pread(min(chunk_bytes, end - position), position))
            chunk_at, at = position, 0
            if len(chunk) < HEADER_BYTES:
                raise CorruptLogError(path, position, f"only {len(chunk)} bytes left")
        header = read_header(chunk, at)
        problem = header_problem(header, end - position)
        if problem:
            raise CorruptLogError(path, position, problem)
        size = header.size
        if at + size > len(chunk):
            wanted = min(max(size, chunk_bytes), end - position)
            chunk = memoryview(file.pread(wanted, position))
            chunk_at, at = position, 0
            if len(chunk) < size:
                raise CorruptLogError(path, position, f"only {len(chunk)} bytes left")
        batch = chunk[at : at + size]
        if not crc_matches(batch, header.crc):
            raise CorruptLogError(path, position, "CRC does not match")
        yield position, header, batch
        position += size
