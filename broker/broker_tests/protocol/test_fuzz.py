"""A million hostile frames: each decodes or is a DecodeError, and memory stays flat.

Frames start as valid requests of every API and version and are then damaged: bits flipped,
counts made huge, cut, spliced with others, or random from the start. Record batches get the
same treatment. The seed is fixed, so a failure repeats; ODRADEK_FUZZ_SEED gives another one.
"""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress

import psutil
import pytest
from crc32c import crc32c

from broker_tests.protocol.kio_values import kio_bytes, load, random_instance
from odradek_broker.log.validation import validate_for_append, validate_for_replica
from odradek_broker.model.log_config import LogConfig
from odradek_protocol.byte_range import whole
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.errors import DecodeError
from odradek_protocol.messages import api
from odradek_protocol.messages.fetch import decode_fetch
from odradek_protocol.messages.kio_table import APIS
from odradek_protocol.messages.produce import decode_produce
from odradek_protocol.messages.schema import Kind
from odradek_protocol.records.record_batch import CRC_FROM, HEADER, read_header
from odradek_protocol.records.records import Record, build_batch, read_records

SEED = int(os.environ.get("ODRADEK_FUZZ_SEED", "20261116"))
REQUEST_FRAMES = 1_000_000
RESPONSE_FRAMES = 100_000
BATCHES = 60_000  # per check
FRAMES_PER_VERSION = 6
HEADER_BYTES = 14  # of a request with the client id "fuzz" (15 if flexible)
GROWTH_BYTES_MAX = 64 * 1024 * 1024

HUGE = [
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\0\0\0",
    b"\xff\xff\xff\xff\x0f",
    b"\x7f\xff",
]


def resident_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


def damaged(frame: bytes | bytearray, rng: random.Random, start: int = 0) -> bytearray:
    """The frame with one or two damages after byte `start`."""
    bits = rng.getrandbits
    out = bytearray(frame)
    for _ in range(1 + bits(1)):
        if len(out) <= start:
            break
        at = start + bits(20) % (len(out) - start)
        kind = bits(3)
        if kind < 3:
            out[at] = bits(8)
        elif kind == 3:
            huge = HUGE[bits(8) % len(HUGE)]
            out[at : at + len(huge)] = huge
        elif kind == 4:
            del out[at:]
        elif kind == 5:
            out[at:at] = bits(64).to_bytes(8, "big")
        elif kind == 6:
            del out[at : at + 1 + bits(3)]
        else:
            out[at:] = bits(256).to_bytes(32, "big")
    return out


def repair(batch: bytearray) -> None:
    """Makes length and CRC valid, so that the broker looks at the rest of the damaged batch."""
    if len(batch) > HEADER.size:
        header = read_header(batch)
        header = header.replace(base_offset=0, batch_length=len(batch) - 12, magic=2)
        HEADER.pack_into(batch, 0, *header.fields)
        batch[17:21] = crc32c(memoryview(batch)[CRC_FROM:]).to_bytes(4, "big")


def frames_of(kind: Kind, rng: random.Random) -> Iterator[tuple[int, int, bytes]]:
    """(API key, version, valid frame); a response comes without its header."""
    for api_key, (name, *_) in APIS.items():
        for version in api.supported_versions(api_key):
            cls = load(name, version, kind)
            for _ in range(FRAMES_PER_VERSION):
                body = kio_bytes(random_instance(cls, rng))
                if kind == "request":
                    body = api.request_header(api_key, version, 1, "fuzz") + body
                yield api_key, version, body


def decode_frame(frame: bytes) -> None:
    """As network/ and the handlers treat a frame."""
    header = api.parse_request_header(frame)
    version = header.api_version
    if version not in api.supported_versions(header.api_key):
        return
    if header.api_key == 0:
        decode_produce(version, frame, header.body_at)
    elif header.api_key == 1:
        decode_fetch(version, frame, header.body_at)
    else:
        api.decode_request(header.api_key, version, frame, header.body_at)


@pytest.mark.timeout(300)
def test_a_million_damaged_requests() -> None:
    rng = random.Random(SEED)
    corpus = list(frames_of("request", rng))
    for _, _, frame in corpus:
        decode_frame(frame)  # also loads every schema, before memory is measured
    before = resident_bytes()
    decoded = 0
    for number in range(REQUEST_FRAMES):
        frame = corpus[number % len(corpus)][2]
        if number % 16 == 0:
            data = rng.randbytes(rng.getrandbits(6))
        elif number % 16 == 1:
            data = frame[:HEADER_BYTES] + rng.randbytes(rng.getrandbits(6))
        elif number % 16 == 2:
            data = bytes(damaged(frame, rng))
        else:
            data = bytes(damaged(frame, rng, HEADER_BYTES))
        try:
            decode_frame(data)
            decoded += 1
        except DecodeError:
            pass
    assert 0 < decoded < REQUEST_FRAMES
    assert resident_bytes() - before < GROWTH_BYTES_MAX


def test_damaged_responses() -> None:
    """A follower reads these from another broker."""
    rng = random.Random(SEED)
    corpus = list(frames_of("response", rng))
    for number in range(RESPONSE_FRAMES):
        api_key, version, body = corpus[number % len(corpus)]
        with suppress(DecodeError):
            api.decode_response(api_key, version, damaged(body, rng))


@pytest.mark.parametrize(
    "check",
    [
        lambda batch: validate_for_append(whole(batch), LogConfig(), 1_000),
        lambda batch: validate_for_append(whole(batch), LogConfig(cleanup_compact=True), 1_000),
        lambda batch: validate_for_append(whole(batch), LogConfig(compression_type="zstd"), 1_000),
        validate_for_replica,
        lambda batch: list(read_records(batch)) if len(batch) > HEADER.size else None,
    ],
    ids=["append", "compacted", "recompress", "replica", "read"],
)
def test_damaged_batches(check: Callable[[bytearray], object]) -> None:
    """Half of them with their length and CRC put right, so that the contents are looked at."""
    rng = random.Random(SEED)
    records = [Record(i, i, b"key", b"value" * i, [(b"h", b"x")]) for i in range(6)]
    corpus = [build_batch(records, codec=codec) for codec in range(5)]
    before = resident_bytes()
    for number in range(BATCHES):
        batch = damaged(corpus[number % 5], rng)
        if number % 2:
            repair(batch)
        with suppress(DecodeError, KafkaError):
            check(batch)
    assert resident_bytes() - before < GROWTH_BYTES_MAX
