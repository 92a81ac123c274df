"""The cleaner's map: a dict of bounded size."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_broker.log.offset_map import ENTRY_BYTES, NOT_FOUND, OffsetMap, memory_for


def test_the_last_offset_of_a_key_counts() -> None:
    offset_map = OffsetMap(10_000, 0.9)
    assert offset_map.put([b"a", b"b", b"a"], [10, 11, 12]) == 3
    assert offset_map.put([b"b"], [20]) == 1
    assert offset_map.find([b"a", b"b", b"c", b""]) == [12, 20, NOT_FOUND, NOT_FOUND]
    assert offset_map.size == 2
    assert offset_map.latest_offset == 20
    offset_map.close()


def test_offset_zero_and_an_empty_key_are_as_good_as_others() -> None:
    offset_map = OffsetMap(10_000, 0.9)
    offset_map.put([b""], [0])
    assert offset_map.find([b"", b"x"]) == [0, NOT_FOUND]
    offset_map.close()


def test_128_mb_take_five_million_keys() -> None:
    """The numbers of the module's docstring; unused memory costs nothing."""
    offset_map = OffsetMap(128 * 1024**2, 0.9)
    assert offset_map.slots == 5_592_373
    assert offset_map.capacity == 5_033_135
    offset_map.close()


def test_a_full_map_says_how_far_it_got() -> None:
    offset_map = OffsetMap(11 * ENTRY_BYTES, 0.5)
    assert (offset_map.slots, offset_map.capacity) == (11, 5)
    keys = [b"%d" % number for number in range(8)]
    assert offset_map.put(keys[:4], range(4)) == 4
    assert offset_map.put(keys, range(10, 18)) == 5  # four known keys and a new one
    assert offset_map.latest_offset == 14
    assert offset_map.find(keys) == [10, 11, 12, 13, 14, -1, -1, -1]
    assert offset_map.put(keys, range(20, 28)) == 0
    assert offset_map.latest_offset == 14
    assert offset_map.utilization == pytest.approx(5 / 11)
    offset_map.close()


@given(keys=st.integers(1, 3000), load_factor=st.floats(0.1, 1.0))
def test_enough_memory_is_enough(keys: int, load_factor: float) -> None:
    offset_map = OffsetMap(memory_for(keys, load_factor), load_factor)
    assert offset_map.capacity >= keys
    offset_map.close()


def test_too_little_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 72 bytes"):
        OffsetMap(71, 0.9)
    with pytest.raises(ValueError, match="no room for a key"):
        OffsetMap(72, 0.1)


@given(
    slots=st.integers(3, 40),
    groups=st.lists(st.lists(st.binary(max_size=2), max_size=12), max_size=8),
)
def test_like_a_dict_until_it_is_full(slots: int, groups: list[list[bytes]]) -> None:
    """Small tables, so that most searches collide and many meet a full table."""
    offset_map = OffsetMap(slots * ENTRY_BYTES, 0.9)
    model: dict[bytes, int] = {}
    offset = 0
    for keys in groups:
        offsets = list(range(offset, offset + len(keys)))
        taken = offset_map.put(keys, offsets)
        for key, at in zip(keys[:taken], offsets[:taken], strict=True):
            model[key] = at
        offset += len(keys)
        assert offset_map.size == len(model) <= offset_map.capacity
        asked = [*model, b"never written"]
        assert offset_map.find(asked) == [*model.values(), NOT_FOUND]
        if taken < len(keys):
            assert len(model) == offset_map.capacity
            break
    offset_map.close()


def test_like_a_dict_when_it_is_nearly_full() -> None:
    rng = random.Random(3)
    offset_map = OffsetMap(20_000 * ENTRY_BYTES, 0.9)
    keys = [rng.randbytes(rng.randint(1, 30)) for _ in range(17_000)]
    keys += rng.choices(keys, k=5_000)
    model = dict(zip(keys, range(len(keys)), strict=True))
    assert offset_map.put(keys, range(len(keys))) == len(keys)
    assert offset_map.find(list(model)) == list(model.values())
    assert offset_map.find([b"absent %d" % n for n in range(1000)]) == [NOT_FOUND] * 1000
    offset_map.close()
