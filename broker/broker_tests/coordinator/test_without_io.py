"""The parts without I/O: hashing, timers, record schemas, the host's append, replay, response."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_tests.coordinator.support import ShardLog
from odradek_broker.coordinator.hashing import java_hash, partition_for
from odradek_broker.coordinator.host import ReloadNeeded, ShardHost
from odradek_broker.coordinator.loading import batches_of, replay_batch
from odradek_broker.coordinator.record_schema import F, RecordSchema, version_of
from odradek_broker.coordinator.result import (
    NOTHING,
    CoordinatorRecord,
    CoordinatorResult,
    DeferredResponse,
    Moment,
    Producer,
)
from odradek_broker.coordinator.timers import Timers
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import MetadataImage
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.errors import DecodeError
from odradek_protocol.messages.struct import Struct

NOW = Moment(0.0, 1_700_000_000_000)


@pytest.mark.parametrize(
    ("text", "code"),
    [("", 0), ("ab", 3105), ("polygenelubricants", -(2**31)), ("gr\u00fc\u00df", 3186062)],
)
def test_java_hash(text: str, code: int) -> None:
    assert java_hash(text) == code


def test_partition_of_the_smallest_hash() -> None:
    # abs(Integer.MIN_VALUE) is negative in Java; Kafka masks the sign instead.
    assert partition_for("polygenelubricants", 50) == 0


@given(
    st.lists(
        st.tuples(st.sampled_from("abcde"), st.none() | st.integers(0, 50) | st.just("pop")),
        max_size=60,
    )
)
def test_timers_against_a_dict(steps: list[tuple[str, Any]]) -> None:
    timers: Timers[str] = Timers()
    model: dict[str, float] = {}
    for key, step in steps:
        if step is None:
            timers.cancel(key)
            model.pop(key, None)
        elif step == "pop":
            due = timers.pop_due(25)
            expected = min(model.values(), default=float("inf"))
            if expected > 25:
                assert due is None
            else:
                assert due is not None
                assert model.pop(due) == expected
        else:
            timers.set(key, step)
            model[key] = step
        assert timers.next_deadline_ms() == min(model.values(), default=float("inf"))
        assert len(timers) == len(model)


VALUE = RecordSchema(
    "Value",
    range(0, 3),
    (
        F("name", "string"),
        F("note", "string", nullable=True, since=1),
        F("parts", "Part", items=(F("id", "int32"), F("extra", "int16", since=2, default=-1))),
        F("late", "int64", since=2, tag=0, default=-1),
    ),
    flexible_from=2,
)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_schema_round_trip(version: int) -> None:
    value = Struct(name="n", note="x", parts=[Struct(id=1, extra=5), Struct(id=2)], late=7)
    data = VALUE.write(version, value)
    assert version_of(data) == version
    read = VALUE.read(data)
    assert read.name == "n"
    assert read.note == ("x" if version >= 1 else None)
    assert [part.id for part in read.parts] == [1, 2]
    assert [part.extra for part in read.parts] == ([5, -1] if version == 2 else [-1, -1])
    assert read.late == (7 if version == 2 else -1)


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\x09abc", b"\0\0\0\x05ab"])
def test_schema_refuses(data: bytes) -> None:
    with pytest.raises(DecodeError):
        VALUE.read(data)


class Register:
    """A shard for tests: the last value of each key, and what each open transaction has set."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes | None] = {}
        self.pending: dict[int, dict[bytes, bytes | None]] = {}

    def replay(self, offset: int, producer_id: int, record: CoordinatorRecord) -> None:
        into = self.values if producer_id < 0 else self.pending.setdefault(producer_id, {})
        into[record.key] = record.value

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        pending = self.pending.pop(producer_id, {})
        if committed:
            self.values.update(pending)

    def loaded(
        self, leader_epoch: int, image: MetadataImage, now: Moment
    ) -> CoordinatorResult[None]:
        return NOTHING

    def begin_epoch(self, leader_epoch: int) -> None: ...

    def metadata_changed(self, delta: MetadataDelta, now: Moment) -> CoordinatorResult[None]:
        return NOTHING

    def next_deadline_ms(self) -> float:
        return float("inf")

    def expire(self, now: Moment) -> CoordinatorResult[None]:
        return NOTHING


def _put(key: bytes, value: bytes) -> CoordinatorResult[str]:
    return CoordinatorResult([CoordinatorRecord(key, value)], f"put {key!r}")


def test_answers_come_when_committed_and_in_order() -> None:
    log = ShardLog()
    answers: list[Any] = []
    host = ShardHost(Register(), log)
    assert host.settle(_put(b"a", b"1"), answers.append, NOW)
    assert host.shard.values == {b"a": b"1"}  # the next decision sees it
    assert host.settle(
        CoordinatorResult((), "read"), answers.append, NOW
    )  # depends on an uncommitted record: waits
    assert host.settle(_put(b"b", b"2"), answers.append, NOW)
    assert answers == []
    host.committed(1)
    assert answers == ["put b'a'", "read"]
    host.committed(2)
    assert answers[2:] == ["put b'b'"]
    assert not host.settle(CoordinatorResult((), "read"), answers.append, NOW)
    assert answers[3:] == ["read"]


def test_a_parked_request_is_answered_by_a_later_result_or_by_the_end() -> None:
    first, second = DeferredResponse(), DeferredResponse()
    host, answers = ShardHost(Register(), ShardLog()), []
    host.settle(CoordinatorResult((), first), lambda a: answers.append(("first", a)), NOW)
    host.settle(CoordinatorResult((), second), lambda a: answers.append(("second", a)), NOW)
    host.settle(
        CoordinatorResult([CoordinatorRecord(b"k", b"v")], None, answers=[(first, "yes")]),
        None,
        NOW,
    )
    assert answers == []
    host.committed(1)
    assert answers == [("first", "yes")]
    error = KafkaError(ErrorCode.not_coordinator)
    host.fail(error)
    assert answers[1:] == [("second", error)]


def test_the_decision_that_parks_a_request_may_answer_it() -> None:
    ticket = DeferredResponse()
    answers: list[Any] = []
    host = ShardHost(Register(), ShardLog())
    host.settle(CoordinatorResult((), ticket, answers=[(ticket, "at once")]), answers.append, NOW)
    assert answers == ["at once"]


def test_a_failed_append_changes_nothing_or_asks_for_a_reload() -> None:
    log = ShardLog()
    host = ShardHost(Register(), log)
    answers: list[Any] = []
    log.error = KafkaError(ErrorCode.not_enough_replicas)
    with pytest.raises(KafkaError):
        host.settle(_put(b"a", b"1"), answers.append, NOW)
    assert host.shard.values == {}
    with pytest.raises(ReloadNeeded):
        host.settle(
            CoordinatorResult([CoordinatorRecord(b"a", b"1")], None, volatile=True), None, NOW
        )
    log.error = None
    with pytest.raises(KafkaError) as caught:
        host.settle(_put(b"a", b"x" * 20_000), answers.append, NOW)
    assert caught.value.code is ErrorCode.message_too_large
    assert host.shard.values == {}
    assert answers == []


def test_records_that_need_not_be_atomic_are_split_into_batches() -> None:
    log = ShardLog()
    host = ShardHost(Register(), log)
    records = [CoordinatorRecord(b"k%d" % n, b"v" * 500) for n in range(100)]
    host.settle(CoordinatorResult(records, None, atomic=False), None, NOW)
    assert len(log.batches) > 5
    assert len(host.shard.values) == 100


def test_a_loaded_shard_equals_the_one_that_wrote() -> None:
    log = ShardLog()
    host = ShardHost(Register(), log)
    host.settle(_put(b"a", b"1"), None, NOW)
    host.settle(_put(b"b", b"2"), None, NOW, Producer(7, 0))
    host.settle(_put(b"c", b"3"), None, NOW)
    loaded = Register()
    for chunk in log.batches:
        for header, batch in batches_of(chunk + b"cut off"):
            replay_batch(loaded, header, batch)
    assert (loaded.values, loaded.pending) == (host.shard.values, host.shard.pending)
    assert loaded.pending == {7: {b"b": b"2"}}
