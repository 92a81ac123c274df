"""The last offset of each key, for the cleaner: 24 bytes per key.

The cleaner fills it from the dirty part of a log and then looks up every record. It must
hold the keys of as much log as possible in a fixed budget (`log.cleaner.dedupe.buffer.size`,
shared by all cleaner threads), so it is one flat table without an object per key:

    slot n, from byte 24 n on:   first half of the hash 8 | second half 8 | offset + 1  8

A slot whose last 8 bytes are 0 is empty. The first half of the hash says where a search begins, the
second half is its step; the number of slots is prime, so a search with any step reaches every slot.

Example: 128 MB are 5,592,373 slots; at a load factor of 0.9 they take 5,033,135 different
keys, however long these are.

Only the hash is stored: two of a billion keys have the same hash with a probability of 10^-21, and
unlike with MD5 such keys cannot be constructed on purpose. adr/0004-cleaner-offset-map.md has
measurements, and the reason why it is not a dict.
"""

import mmap
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from math import isqrt
from struct import unpack

from odradek_protocol.ids import Offset

ENTRY_BYTES = 24
HASH_BYTES = 16
NOT_FOUND: Offset = -1

_WORDS = 3  # of 64 bits in a slot
_SLOTS_MIN = 3


class OffsetMap:
    """Invariants:
    size <= capacity < slots, so that every search ends at an empty slot
    latest_offset: all records up to here were taken into account; -1 if none was
    """

    def __init__(self, memory_bytes: int, load_factor: float) -> None:
        self.slots = _prime_at_most(memory_bytes // ENTRY_BYTES)
        self.capacity = min(int(self.slots * load_factor), self.slots - 1)
        if self.capacity < 1:
            raise ValueError(f"a load factor of {load_factor} leaves no room for a key")
        self.size = 0
        self.latest_offset: Offset = NOT_FOUND
        # Anonymous memory instead of a bytearray: the kernel provides zeroed pages when a slot is
        # first touched, so a half-empty map costs half, and `close` returns all of it.
        self._memory = mmap.mmap(-1, self.slots * ENTRY_BYTES)
        self._words = memoryview(self._memory).cast("Q")

    def close(self) -> None:
        self._words.release()
        self._memory.close()

    @property
    def utilization(self) -> float:
        return self.size / self.slots

    def put(self, keys: Sequence[bytes], offsets: Sequence[Offset]) -> int:
        """Note the offsets of these keys, which ascend; for each key the last one stays.

        Returns how many were stored: fewer than all if the map is full now.
        """
        words, slots, size, capacity = self._words, self.slots, self.size, self.capacity
        end = slots * _WORDS
        halves = _hash_halves(keys)
        taken = 0
        for first, second, offset in zip(halves, halves, offsets, strict=True):
            if size >= capacity:
                break
            at = first % slots * _WORDS
            if words[at + 2] and (words[at] != first or words[at + 1] != second):
                step = (second % (slots - 1) + 1) * _WORDS
                at = (at + step) % end
                while words[at + 2] and (words[at] != first or words[at + 1] != second):
                    at = (at + step) % end
            if not words[at + 2]:
                words[at] = first
                words[at + 1] = second
                size += 1
            words[at + 2] = offset + 1
            taken += 1
        self.size = size
        if taken:
            self.latest_offset = offsets[taken - 1]
        return taken

    def find(self, keys: Sequence[bytes]) -> list[Offset]:
        """For each key the offset noted last, or NOT_FOUND."""
        words, slots = self._words, self.slots
        end = slots * _WORDS
        halves = _hash_halves(keys)
        found = []
        for first, second in zip(halves, halves, strict=True):
            at = first % slots * _WORDS
            if words[at + 2] and (words[at] != first or words[at + 1] != second):
                step = (second % (slots - 1) + 1) * _WORDS
                at = (at + step) % end
                while words[at + 2] and (words[at] != first or words[at + 1] != second):
                    at = (at + step) % end
            found.append(words[at + 2] - 1)
        return found


def memory_for(keys: int, load_factor: float) -> int:
    """How many bytes a map needs so that this many different keys surely fit."""
    # Primes are dense: below 10^9 there is one among any 282 numbers in a row.
    return (int(keys / load_factor) + 300) * ENTRY_BYTES


def _hash_halves(keys: Sequence[bytes]) -> Iterator[int]:
    """The first and second half of each hash, one after the other, as 64-bit numbers."""
    hashes = b"".join([blake2b(key, digest_size=HASH_BYTES).digest() for key in keys])
    return iter(unpack(f"={2 * len(keys)}Q", hashes))


def _prime_at_most(number: int) -> int:
    if number < _SLOTS_MIN:
        raise ValueError(f"an offset map needs at least {_SLOTS_MIN * ENTRY_BYTES} bytes")
    number -= 1 - number % 2
    while any(number % divisor == 0 for divisor in range(3, isqrt(number) + 1, 2)):
        number -= 2
    return number
