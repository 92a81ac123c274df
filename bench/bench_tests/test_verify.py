"""Each kind of wrong answer is planted here and must be found."""

import struct

import pytest

from odradek_bench import raw, verify
from odradek_bench.cases.java_tools import check_values
from odradek_bench.verify import WrongAnswerError

POOL = verify.payloads(seed=1, size=100, count=10)


def sent(count: int) -> list[bytes]:
    return [POOL[i % len(POOL)] for i in range(count)]


def test_payloads_come_from_the_seed() -> None:
    assert verify.payloads(1, 100, 10) == POOL
    assert verify.payloads(2, 100, 10) != POOL


def test_records_in_any_order_pass() -> None:
    verify.check(verify.expected(POOL, 37), verify.tally(reversed(sent(37))), "topic")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda values: values[:-1], "37 records sent, 36 found"),
        (lambda values: [*values, values[0]], "37 records sent, 38 found"),
        (lambda values: [values[1], *values[1:]], "checksum differs"),  # one lost, one doubled
        (lambda values: [values[0][:-1] + b"\0", *values[1:]], "checksum differs"),
    ],
)
def test_a_planted_wrong_answer_is_found(wrong, says) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(WrongAnswerError, match=says):
        verify.check(verify.expected(POOL, 37), verify.tally(wrong(sent(37))), "topic")


def test_acknowledged_offsets_are_all_different() -> None:
    verify.check_offsets(sum(range(100)), 100, "topic-0")
    with pytest.raises(WrongAnswerError):
        verify.check_offsets(sum(range(99)) + 98, 100, "topic-0")


def test_a_value_that_the_java_tool_never_sent_is_found() -> None:
    check_values([b"a", b"b"], [b"a", b"a"], 2)
    with pytest.raises(WrongAnswerError, match="never sent"):
        check_values([b"a", b"b"], [b"a", b"c"], 2)
    with pytest.raises(WrongAnswerError, match="1 found"):
        check_values([b"a", b"b"], [b"a"], 2)


def test_a_batch_reads_back_as_it_was_written() -> None:
    encoded = raw.batch([b"x" * 300, b""], keys=[b"k", b"l"])
    (found,) = raw.batches(memoryview(encoded * 1 + encoded[:20]))  # the rest is cut off
    assert (found.base_offset, found.last_offset, found.size) == (0, 1, 2)
    assert list(raw.records(found)) == [(b"k", b"x" * 300), (b"l", b"")]


def test_a_changed_byte_of_a_batch_is_found() -> None:
    encoded = bytearray(raw.batch([b"value"]))
    encoded[-3] ^= 1
    with pytest.raises(WrongAnswerError, match="wrong checksum"):
        list(raw.batches(memoryview(encoded)))


def test_an_error_code_in_an_answer_is_found() -> None:
    def answer(error: int) -> bytes:
        head = struct.pack(">ii", raw.CORRELATION_ID, 1) + raw.string(b"t")
        return head + struct.pack(">iihqqqi", 1, 0, error, 42, -1, 0, 0)

    fields = raw.ProduceAnswer("t")
    assert fields.base_offset(answer(0)) == 42
    assert len(answer(0)) == fields.length
    with pytest.raises(WrongAnswerError, match="error 6"):
        fields.base_offset(answer(6))
