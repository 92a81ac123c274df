"""Damages frames as broken clients and port scanners do. All randomness is the given rng."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

Damage = Callable[[bytes, int, random.Random], bytes]

HEADER_BYTES = 8  # api key, version, correlation id: only bytes after these are damaged


def cut_short(frame: bytes, body_at: int, rng: random.Random) -> bytes:
    return frame[: rng.randrange(min(body_at, len(frame) - 1), len(frame))]


def cut_in_header(frame: bytes, body_at: int, rng: random.Random) -> bytes:
    return frame[: rng.randrange(0, body_at)]


def trailing_bytes(frame: bytes, _: int, rng: random.Random) -> bytes:
    return frame + rng.randbytes(rng.choice((1, 2, 7)))


def version_too_high(frame: bytes, _: int, rng: random.Random) -> bytes:
    return frame[:2] + struct.pack(">h", rng.choice((100, 1000, 32767))) + frame[4:]


def version_below_zero(frame: bytes, _: int, rng: random.Random) -> bytes:
    return frame[:2] + struct.pack(">h", -rng.choice((1, 2, 32768))) + frame[4:]


def unknown_api(frame: bytes, _: int, rng: random.Random) -> bytes:
    return struct.pack(">h", rng.choice((4, 5, 7, 93, 500, -1, 32767))) + frame[2:]


def negative_length(frame: bytes, body_at: int, rng: random.Random) -> bytes:
    """Two or four bytes of ones somewhere in the body: a null, or a length far below zero."""
    if len(frame) - body_at < 2:
        return trailing_bytes(frame, body_at, rng)
    at = rng.randrange(body_at, len(frame) - 1)
    ones = rng.choice((b"\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00"))
    return (frame[:at] + ones + frame[at + len(ones) :])[: max(len(frame), at + 1)]


def huge_length(frame: bytes, body_at: int, rng: random.Random) -> bytes:
    if len(frame) == body_at:
        return trailing_bytes(frame, body_at, rng)
    at = rng.randrange(body_at, len(frame))
    return frame[:at] + b"\x7f\x7f\x7f\x7e" + frame[at + 4 :]


DAMAGES: tuple[Damage, ...] = (
    cut_short,
    cut_in_header,
    trailing_bytes,
    version_too_high,
    version_below_zero,
    unknown_api,
    negative_length,
    huge_length,
)
