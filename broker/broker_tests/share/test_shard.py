"""The share coordinator's shard: epochs fence, snapshots replace updates, replay is equal."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from odradek_broker.coordinator.result import CoordinatorRecord, CoordinatorResult, Moment
from odradek_broker.metadata.image import MetadataImage, TopicImage
from odradek_broker.share.shard import COLD_RECORDS, ShareShard
from odradek_broker.share.share_partition import StateBatch
from odradek_broker.share.state import Key, SharePartitionState, combine, parse_key
from odradek_protocol.error_codes import ErrorCode, KafkaError

TOPIC = UUID(int=7)
KEY = Key("g", TOPIC, 0)
NOW = Moment(0.0, 1000)


class Log:
    """A shard with its records."""

    def __init__(self, updates_per_snapshot: int = 5) -> None:
        self.per_snapshot = updates_per_snapshot
        self.records: list[CoordinatorRecord] = []
        self.shard = self.replayed(0)

    def replayed(self, start: int) -> ShareShard:
        shard = ShareShard(lambda: self.per_snapshot, lambda: 1000)
        topic = TopicImage("t", TOPIC, {0: None, 1: None})  # type: ignore[dict-item]
        image = MetadataImage(topics={"t": topic}, topics_by_id={TOPIC: topic})
        for offset, record in enumerate(self.records):
            if offset >= start:
                shard.replay(offset, -1, record)
        shard.loaded(0, image, NOW)
        return shard

    def settle(self, result: CoordinatorResult[Any]) -> Any:
        for record in result.records:
            self.shard.replay(len(self.records), -1, record)
            self.records.append(record)
        return result.response

    def write(
        self, *batches: StateBatch, start: int = -1, epochs: tuple[int, int] = (1, 0)
    ) -> None:
        self.settle(self.shard.write(KEY, epochs, start, batches, 0, NOW))

    def state(self) -> SharePartitionState:
        state = self.shard.get(KEY)
        assert state is not None
        return state


@pytest.fixture
def log() -> Log:
    made = Log()
    made.settle(made.shard.initialize(KEY, 1, 10, NOW))
    return made


def refused(decide: Any, *args: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        decide(*args)
    return error.value.code


def test_a_state_has_to_be_initialized_first() -> None:
    shard = Log().shard
    assert refused(shard.read, KEY, 0, NOW) is ErrorCode.invalid_request
    assert refused(shard.write, KEY, (0, 0), 0, (), 0, NOW) is ErrorCode.invalid_request
    unknown = Key("g", TOPIC, 5)
    code = refused(shard.initialize, unknown, 1, 0, NOW)
    assert code is ErrorCode.unknown_topic_or_partition
    assert shard.summary(KEY).start_offset == -1


def test_older_leaders_and_older_states_are_fenced(log: Log) -> None:
    assert log.settle(log.shard.read(KEY, 4, NOW)).start_offset == 10
    assert refused(log.shard.read, KEY, 3, NOW) is ErrorCode.fenced_leader_epoch
    assert refused(log.shard.write, KEY, (1, 3), 11, (), 0, NOW) is ErrorCode.fenced_leader_epoch
    assert refused(log.shard.write, KEY, (0, 4), 11, (), 0, NOW) is ErrorCode.fenced_state_epoch
    assert refused(log.shard.initialize, KEY, 0, 5, NOW) is ErrorCode.fenced_state_epoch
    log.write(start=12, epochs=(1, 4))
    assert log.state().start_offset == 12


def test_late_writes_undo_nothing(log: Log) -> None:
    """1. Released, then accepted, then the release again. 2. The initialization again.
    3. An older start offset."""
    log.write(StateBatch(12, 13, 0, 1))
    log.write(StateBatch(12, 13, 2, 2), start=11)
    log.write(StateBatch(12, 13, 0, 1), start=10)
    log.settle(log.shard.initialize(KEY, 1, 10, NOW))
    log.settle(log.shard.initialize(KEY, 2, -1, NOW))
    assert (log.state().start_offset, log.state().batches) == (11, (StateBatch(12, 13, 2, 2),))


def test_an_operator_moves_the_start(log: Log) -> None:
    log.write(StateBatch(12, 13, 2, 2), start=11)
    log.settle(log.shard.initialize(KEY, 2, 3, NOW))
    assert (log.state().start_offset, log.state().batches) == (3, ())
    assert refused(log.shard.write, KEY, (1, 0), 12, (), 0, NOW) is ErrorCode.fenced_state_epoch


@pytest.mark.parametrize("seed", range(20))
def test_a_replayed_log_gives_the_same_state(seed: int) -> None:
    """From its start, and from where everything before is redundant."""
    rng = random.Random(seed)
    log = Log(rng.choice((1, 3, 7)))
    log.settle(log.shard.initialize(KEY, 1, 0, NOW))
    other = Key("g", TOPIC, 1)
    log.settle(log.shard.initialize(other, 1, 0, NOW))
    start = 0
    for _ in range(60):
        start += rng.randrange(3)
        first = start + rng.randrange(20)
        state, count = rng.choice((0, 2, 4)), rng.randint(1, 5)
        log.write(StateBatch(first, first + rng.randrange(5), state, count), start=start)
        if rng.random() < 0.2:
            log.settle(log.shard.write(other, (1, 0), start, (), 0, NOW))
    for begin in (0, log.shard.redundant_offset):
        replayed = log.replayed(begin)
        assert replayed.get(KEY) == log.shard.get(KEY)
        assert replayed.get(other) == log.shard.get(other)


def test_a_cold_partition_does_not_hold_the_log_back(log: Log) -> None:
    cold = Key("g", TOPIC, 1)
    log.settle(log.shard.initialize(cold, 1, 0, NOW))
    for _ in range(COLD_RECORDS + 10):
        log.write(start=11)
    assert log.shard.redundant_offset == 1
    log.settle(log.shard.expire(Moment(2000.0, 3000)))
    assert log.shard.redundant_offset > COLD_RECORDS


def test_state_is_deleted_with_its_topic_and_by_request(log: Log) -> None:
    log.settle(log.shard.delete(KEY))
    assert log.shard.get(KEY) is None
    log.settle(log.shard.initialize(KEY, 1, 0, NOW))
    log.shard.image = MetadataImage()
    log.settle(log.shard._of_deleted_topics())
    assert log.shard.get(KEY) is None


@pytest.mark.parametrize("seed", range(30))
def test_combined_batches_agree_with_single_offsets(seed: int) -> None:
    rng = random.Random(seed)
    known: dict[int, tuple[int, int]] = {}
    batches: tuple[StateBatch, ...] = ()
    start = 0
    for _ in range(30):
        start += rng.randrange(2)
        first = rng.randrange(40)
        new = StateBatch(first, first + rng.randrange(8), rng.choice((0, 2, 4)), rng.randint(1, 3))
        batches = combine(batches, (new,), start)
        for offset in range(new.first, new.last + 1):
            if known.get(offset, (0, 0))[0] == 0:
                known[offset] = (new.state, new.deliveries)
        known = {offset: value for offset, value in known.items() if offset >= start}
        found = {
            offset: (batch.state, batch.deliveries)
            for batch in batches
            for offset in range(batch.first, batch.last + 1)
        }
        assert found == known


def test_keys_of_find_coordinator() -> None:
    assert parse_key(KEY.text) == KEY
    assert parse_key(Key("a:b", TOPIC, 3).text) == Key("a:b", TOPIC, 3)
    for text in ("bad", "a:b:c", f":{KEY.text.split(':')[1]}:0"):
        assert refused(parse_key, text) is ErrorCode.invalid_request
