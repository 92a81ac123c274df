"""The codecs: round trips, shapes that other clients send, damage, bombs."""

import random
import subprocess
import sys
from pathlib import Path

import cramjam
import pytest

from odradek_protocol.records import compression
from odradek_protocol.records.compression import (
    CODEC_NAMES,
    DECOMPRESSED_BYTES_MAX,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    DecompressionError,
    compress,
    decompress,
)

MB = 1024 * 1024
CODECS = [GZIP, SNAPPY, LZ4, ZSTD]


def name_of(codec: int) -> str:
    return CODEC_NAMES[codec]


@pytest.mark.parametrize("codec", [NONE, *CODECS], ids=name_of)
@pytest.mark.parametrize("size", [0, 1, 1000, 32 * 1024, 64 * 1024 + 1, 3 * MB])
def test_round_trip(codec: int, size: int) -> None:
    rng = random.Random(size)
    for data in (rng.randbytes(size), b"ab" * (size // 2)):
        packed = compress(codec, bytearray(data))
        assert decompress(codec, memoryview(packed)) == data
        assert decompress(codec, packed, limit=max(len(data), 1)) == data


def test_levels_reach_the_codec() -> None:
    words = [b"orders", b"payments", b"customers", b"shipped"]
    rng = random.Random(1)
    data = b" ".join(rng.choice(words) for _ in range(20_000))
    for codec, low, high in ((GZIP, 1, 9), (LZ4, 1, 12), (ZSTD, 1, 19)):
        assert len(compress(codec, data, high)) < len(compress(codec, data, low)), name_of(codec)


def test_lz4_frames_have_independent_blocks() -> None:
    """The Java client refuses linked ones."""
    flags = compress(LZ4, b"x" * 200_000)[4]
    assert flags >> 6 == 1, "version"
    assert flags & 0x20, "block independence"


def test_snappy_is_read_with_and_without_framing() -> None:
    data = b"snappy " * 1000
    assert decompress(SNAPPY, compress(SNAPPY, data)) == data
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data


@pytest.mark.parametrize("codec", CODECS, ids=name_of)
def test_damage_is_a_decompression_error(codec: int) -> None:
    packed = compress(codec, random.Random(1).randbytes(5000))
    bad = [b"", b"garbage, no codec wrote this", packed[: len(packed) // 2], packed[:-1]]
    if codec == SNAPPY:
        bad.append(compression.XERIAL_HEADER + b"\x7f\xff\xff\xff")
        bad.append(compression.XERIAL_HEADER + b"\xff\xff\xff\xff")
        bad.append(compression.XERIAL_HEADER + b"\0\0")
        bad.append(b"\xff\xff\xff\x07" + b"claims 16 MB")
    for data in bad:
        with pytest.raises(DecompressionError):
            decompress(codec, data)


def test_an_unknown_codec_is_a_decompression_error() -> None:
    with pytest.raises(DecompressionError):
        decompress(7, b"x")


def bomb(codec: int, size: int) -> bytes:
    """As little data as possible that decompresses to `size` zero bytes."""
    if codec == ZSTD:  # one frame, window 128 KiB, blocks of one repeated byte
        block = (128 * 1024 << 3 | 0b010).to_bytes(3, "little") + b"\0"
        last = (128 * 1024 << 3 | 0b011).to_bytes(3, "little") + b"\0"
        return b"\x28\xb5\x2f\xfd\0\x38" + block * (size // (128 * 1024) - 1) + last
    return compress(codec, bytes(size))


DEFUSE = """
import resource, sys
from pathlib import Path
from odradek_protocol.records.compression import DecompressedTooLargeError, decompress

def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

data = Path(sys.argv[2]).read_bytes()
before = peak_bytes()
try:
    decompress(int(sys.argv[1]), data)
except DecompressedTooLargeError:
    print(peak_bytes() - before)
"""


@pytest.mark.parametrize("codec", CODECS, ids=name_of)
def test_a_bomb_is_refused_and_costs_little_memory(codec: int, tmp_path: Path) -> None:
    """In a process of its own, whose peak memory is not that of the tests before."""
    file = tmp_path / "bomb"
    file.write_bytes(bomb(codec, 1024 * MB if codec == ZSTD else 128 * MB))
    command = [sys.executable, "-c", DEFUSE, str(codec), str(file)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert int(output) < DECOMPRESSED_BYTES_MAX + 16 * MB


def test_a_snappy_block_that_only_claims_to_be_large_is_refused_before_allocation() -> None:
    claim = b"\xff\xff\xff\x0f" + b"\0" * 100  # 33,554,431 bytes from 100
    with pytest.raises(DecompressionError, match="cannot hold"):
        decompress(SNAPPY, claim)
