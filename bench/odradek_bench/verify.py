"""The records of a case must equal those sent, by count and checksum: a fast wrong answer fails.

Payloads are drawn once from a seed (1,000 values of random bytes, which do not compress) and sent
in turn: record i carries payload i mod 1,000. The checksum is the sum of the CRC32C of all values,
so the order between partitions does not matter, and a lost, doubled or changed record shows.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import crc32c

POOL = 1_000  # payloads in a pool; larger than a batch, small enough to stay in the CPU's cache
CHECKSUM_MODULUS = 2**64


class WrongAnswerError(Exception):
    """The broker acknowledged or delivered other records than those sent."""


class StalledError(Exception):
    """No progress for so long that the case was given up; on a busy machine that may happen."""


@dataclass(frozen=True)
class Tally:
    """How many records, and the sum of their checksums: independent of their order."""

    count: int = 0
    checksum: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.count + other.count, (self.checksum + other.checksum) % CHECKSUM_MODULUS)


def payloads(seed: int, size: int, count: int = POOL) -> list[bytes]:
    rng = random.Random(f"{seed}/{size}")
    return [rng.randbytes(size) for _ in range(count)]


def tally(values: Iterable[bytes]) -> Tally:
    sums = [crc32c.crc32c(value) for value in values]
    return Tally(len(sums), sum(sums) % CHECKSUM_MODULUS)


def expected(pool: Sequence[bytes], count: int) -> Tally:
    """The tally of `count` records that carry the pool's payloads in turn."""
    rounds, rest = divmod(count, len(pool))
    whole, part = tally(pool), tally(pool[:rest])
    return Tally(count, (whole.checksum * rounds + part.checksum) % CHECKSUM_MODULUS)


def check(sent: Tally, found: Tally, what: str) -> None:
    if sent.count != found.count:
        raise WrongAnswerError(f"{what}: {sent.count} records sent, {found.count} found")
    if sent.checksum != found.checksum:
        raise WrongAnswerError(f"{what}: {sent.count} records, but their checksum differs")


def check_offsets(base_offsets_sum: int, requests: int, what: str) -> None:
    """Acknowledged single records of a new partition have the offsets 0 … requests - 1."""
    if base_offsets_sum != requests * (requests - 1) // 2:
        raise WrongAnswerError(f"{what}: the acknowledged offsets are not 0 … {requests - 1}")
