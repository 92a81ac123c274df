"""A group changes its protocol while it runs, and classic members live in a consumer group."""

import struct
from random import Random
from typing import Any

import pytest

from broker_tests.group.consumer.support import image_of, topic_id
from odradek_broker.coordinator.result import (
    CoordinatorRecord,
    CoordinatorResult,
    DeferredResponse,
    Moment,
)
from odradek_broker.group import classic_sync
from odradek_broker.group.classic_group import ClassicGroup
from odradek_broker.group.classic_join import Join, join
from odradek_broker.group.classic_member import Protocol
from odradek_broker.group.config import GroupConfig
from odradek_broker.group.consumer import embedded, requests
from odradek_broker.group.consumer.config import ConsumerGroupConfig, MigrationPolicy
from odradek_broker.group.consumer.group import ConsumerGroup
from odradek_broker.group.kinds import new_shard
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct


def subscription(
    *topics: str, version: int = 1, owned: dict[str, list[int]] | None = None
) -> bytes:
    data = struct.pack(">hi", version, len(topics))
    for topic in topics:
        data += struct.pack(">h", len(topic)) + topic.encode()
    data += struct.pack(">i", -1)
    if version >= 1:
        data += struct.pack(">i", len(owned or {}))
        for topic, partitions in (owned or {}).items():
            data += struct.pack(">h", len(topic)) + topic.encode()
            data += struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return data


class Shard:
    """A shard whose records are written and replayed at once."""

    def __init__(self, config: GroupConfig) -> None:
        self.config = config
        self.now_ms = 1_000_000.0
        self.log: list[CoordinatorRecord] = []
        self.answers: dict[DeferredResponse, Any] = {}
        self.shard = new_shard(lambda: config, Random(1))
        self.shard.loaded(0, image_of({"t": 4}), self.now)

    @property
    def now(self) -> Moment:
        return Moment(self.now_ms, int(self.now_ms))

    def settle(self, result: CoordinatorResult[Any]) -> Any:
        for record in result.records:
            self.log.append(record)
            self.shard.replay(len(self.log), -1, record)
        self.answers.update(result.answers)
        self.shard.validate()
        if isinstance(group := self.shard.groups.get("g"), ConsumerGroup):
            group.validate()
        return result.response

    def pass_time(self, ms: float) -> None:
        self.now_ms += ms
        self.settle(self.shard.expire(self.now))

    def group(self) -> Any:
        return self.shard.groups["g"]

    def join(self, member_id: str = "", owned: dict[str, list[int]] | None = None) -> Any:
        request = Join(
            "g", member_id, None, "c", "/h", 10_000, 20_000, "consumer",
            (Protocol("range", subscription("t", owned=owned)),), 3,
        )  # fmt: skip
        group = self.shard.groups.setdefault("g", ClassicGroup("g"))
        if isinstance(group, ConsumerGroup):
            return self.settle(requests.classic_join(self.shard, self.now, group, request))
        turn = self.shard.turn(self.now)
        assert isinstance(group, ClassicGroup)
        answer = join(group, turn, request)
        return self.settle(turn.result(answer, volatile=True))

    def sync(self, joined: Struct, assignments: dict[str, bytes] | None = None) -> Any:
        group = self.group()
        if isinstance(group, ConsumerGroup):
            request = Struct(
                member_id=joined.member_id,
                group_instance_id=None,
                generation_id=joined.generation_id,
                protocol_type="consumer",
                protocol_name="range",
            )
            return self.settle(requests.classic_sync(self.shard, self.now, group, request))
        turn = self.shard.turn(self.now)
        sync = classic_sync.Sync(
            joined.member_id, None, joined.generation_id, None, None, assignments or {}
        )
        answer = classic_sync.sync(group, turn, sync)
        return self.settle(turn.result(answer, volatile=True))

    def classic_heartbeat(self, joined: Struct) -> ErrorCode:
        request = Struct(
            member_id=joined.member_id, group_instance_id=None, generation_id=joined.generation_id
        )
        decision = requests.classic_heartbeat(self.shard, self.now, self.group(), request)
        code: ErrorCode = self.settle(decision)
        return code

    def beat(
        self, member_id: str, epoch: int = 0, owned: dict[str, list[int]] | None = None
    ) -> Any:
        request = Struct(
            group_id="g",
            member_id=member_id,
            member_epoch=epoch,
            instance_id=None,
            rack_id=None,
            rebalance_timeout=20_000 if epoch == 0 else -1,
            subscribed_topic_names=["t"] if epoch == 0 else None,
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=[
                Struct(topic_id=topic_id(t), partitions=p) for t, p in (owned or {}).items()
            ],
        )
        response, _ = self.settle(
            requests.group_heartbeat(self.shard, self.now, request, 1, "c", "/h")
        )
        return response


def config(policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL) -> GroupConfig:
    consumer = ConsumerGroupConfig(assignment_interval_ms=0, migration_policy=policy)
    return GroupConfig(initial_rebalance_delay_ms=0, consumer=consumer)


def assigned(sync: Struct) -> list[int]:
    partitions = embedded.read_assignment(sync.assignment, image_of({"t": 4}))
    return sorted(partitions.get(topic_id("t"), ()))


def classic_group_of_one(shard: Shard) -> Struct:
    ticket = shard.join()
    joined: Struct = shard.answers[ticket]
    assert joined.generation_id == 1
    everything = embedded.write_assignment(
        {topic_id("t"): dict.fromkeys(range(4), 0)}, image_of({"t": 4}), 1
    )
    assert assigned(shard.sync(joined, {joined.member_id: everything})) == [0, 1, 2, 3]
    return joined


def test_a_group_converts_to_the_new_protocol_and_back() -> None:
    """1. A classic member has all. 2. A member of the consumer protocol joins: the group is
    converted, the classic member keeps all. 3. Its heartbeat gets REBALANCE_IN_PROGRESS, it joins
    without half of its partitions, syncs. 4. The new member gets the other half. 5. The new
    member leaves: the group is classic again, and rebalances."""
    shard = Shard(config())
    old = classic_group_of_one(shard)
    response = shard.beat("new")
    group = shard.group()
    assert isinstance(group, ConsumerGroup)
    assert group.members[old.member_id].classic is not None
    assert not response.assignment.topic_partitions
    assert shard.classic_heartbeat(old) is ErrorCode.rebalance_in_progress
    joined = shard.join(old.member_id, owned={"t": [0, 1, 2, 3]})
    kept = assigned(shard.sync(joined))
    assert len(kept) == 2
    assert shard.classic_heartbeat(joined) is ErrorCode.rebalance_in_progress
    joined = shard.join(old.member_id, owned={"t": kept})
    assert assigned(shard.sync(joined)) == kept
    assert shard.classic_heartbeat(joined) is ErrorCode.none
    response = shard.beat("new", response.member_epoch)
    (mine,) = response.assignment.topic_partitions
    assert sorted([*mine.partitions, *kept]) == [0, 1, 2, 3]
    assert group.state == "Stable"

    shard.beat("new", -1)
    assert isinstance(shard.group(), ClassicGroup)
    assert shard.group().members.keys() == {old.member_id}
    shard.pass_time(5)
    assert shard.group().state_name == "PreparingRebalance"
    ticket = shard.join(old.member_id)
    assert shard.answers[ticket].generation_id > joined.generation_id

    again = new_shard(lambda: shard.config, Random(1))
    for number, record in enumerate(shard.log):
        again.replay(number, -1, record)
    assert isinstance(again.groups["g"], ClassicGroup)


def test_a_member_that_is_silent_ends_the_mixed_group_too() -> None:
    shard = Shard(config())
    old = classic_group_of_one(shard)
    shard.beat("new")
    for _ in range(8):  # only the classic member sends heartbeats
        shard.pass_time(8_000)
        if isinstance(shard.group(), ClassicGroup):
            break
        shard.join(old.member_id, owned={"t": [0, 1, 2, 3]})
    assert isinstance(shard.group(), ClassicGroup)


def test_a_waiting_classic_join_is_answered_with_rebalance_in_progress() -> None:
    shard = Shard(config())
    classic_group_of_one(shard)
    waiting = shard.join()
    assert waiting not in shard.answers
    shard.beat("new")
    assert shard.answers[waiting].error_code is ErrorCode.rebalance_in_progress


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_the_migration_policy_forbids_a_conversion(policy: MigrationPolicy) -> None:
    shard = Shard(config(policy))
    classic_group_of_one(shard)
    with pytest.raises(KafkaError) as caught:
        shard.beat("new")
    assert caught.value.code is ErrorCode.group_id_not_found
    assert "online upgrade is disabled" in (caught.value.message or "")


def test_without_downgrade_the_group_stays_as_it_is() -> None:
    shard = Shard(config(MigrationPolicy.UPGRADE))
    old = classic_group_of_one(shard)
    shard.beat("new")
    shard.beat("new", -1)
    assert isinstance(shard.group(), ConsumerGroup)
    joined = shard.join(old.member_id)
    assert assigned(shard.sync(joined)) == [0, 1, 2, 3]


def test_an_empty_classic_group_is_taken_over_without_questions() -> None:
    shard = Shard(config(MigrationPolicy.DISABLED))
    old = classic_group_of_one(shard)
    turn = shard.shard.turn(shard.now)
    classic_sync.leave(shard.group(), turn, old.member_id, None)
    shard.settle(turn.result(None, volatile=True))
    assert shard.group().is_empty
    response = shard.beat("new")
    assert response.assignment.topic_partitions[0].partitions == [0, 1, 2, 3]


def test_garbage_in_the_embedded_protocol() -> None:
    for rubbish in (b"", b"\0", b"\0\1\xff\xff\xff\xff", b"\0\1\0\0\0\7abc", b"\xff\xff"):
        with pytest.raises(Exception, match=r".") as caught:
            embedded.read_subscription(rubbish)
        assert type(caught.value).__name__ == "DecodeError"
    assert embedded.read_subscription(subscription("a", version=0)).owned_partitions == ()
