"""The targets of `make fuzz` without atheris: every seed is read, and damage never breaks one."""

from __future__ import annotations

from random import Random

import pytest

from broker_tests.fuzz.targets import TARGETS

DAMAGED = 120  # inputs per target; `make fuzz` is the real thing
SEED = 20261118


def damaged(data: bytes, rng: Random) -> bytes:
    """A flipped bit, a torn tail, a hole, or a number made extreme."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(out) or 1)
        kind = rng.randrange(4)
        if kind == 0 and out:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del out[at:]
        elif kind == 2:
            out[at:at] = rng.randbytes(rng.randint(1, 8))
        else:
            out[at : at + 4] = rng.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", bytes(4)))
    return bytes(out)


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_takes_its_seeds_and_damage_to_them(name: str) -> None:
    target, rng = TARGETS[name], Random(f"{SEED} {name}")
    read = sum(target.accepts(seed) for seed in target.seeds)
    assert read > 0, "no seed is valid, so the fuzzer would not get past the first check"
    for _ in range(DAMAGED):
        target.accepts(damaged(rng.choice(target.seeds), rng))
