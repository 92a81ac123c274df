"""Stories of three brokers that replicate: real logs and codecs, no sockets."""

import asyncio
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from broker_tests.partition.support import ONE, THREE, TOPIC_ID, TWO, topic
from broker_tests.replication.support import ALL, Cluster, Exchange, run, until
from odradek_broker.handlers import delete_records, fetch
from odradek_broker.metadata.records import (
    ConfigRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
    ResourceType,
)
from odradek_broker.partition.follower_state import Status
from odradek_broker.replication import batch_sender, fetcher, session
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId
from odradek_protocol.messages.struct import Struct


def same_everywhere(cluster: Cluster, index: int = 0) -> bool:
    logs = [cluster.partition(broker, index).log for broker in ALL]
    return (
        len({(log.log_end_offset, log.high_watermark) for log in logs}) == 1
        and logs[0].high_watermark == logs[0].log_end_offset
    )


def test_acknowledged_records_are_on_all_three(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic(partitions=3))
        for number in range(20):
            for index in range(3):
                error = await cluster.produce(1, f"value-{number}", index=index)
                assert error is ErrorCode.none
        for index in range(3):
            for broker in ALL:
                assert cluster.values(broker, index) == [f"value-{n}" for n in range(20)]
            await until(partial(same_everywhere, cluster, index))

    run(story, tmp_path)


def test_acks_one_does_not_wait_acks_all_does(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic())
        cluster.down |= {TWO, THREE}
        assert await cluster.produce(1, "a", acks_all=False) is ErrorCode.none
        waiting = asyncio.ensure_future(cluster.produce(1, "b"))
        await until(lambda: cluster.values(1) == ["a", "b"])
        assert not waiting.done()
        cluster.down.clear()
        assert await waiting is ErrorCode.none

    run(story, tmp_path, replica_lag_time_max_ms="60000")


def test_a_dead_follower_leaves_the_isr_and_returns(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic())
        await cluster.produce(1, "a")
        cluster.down.add(THREE)
        assert await cluster.produce(1, "b") is ErrorCode.none
        assert cluster.partition(1).isr == (ONE, TWO)
        assert cluster.metadata.image.topics["orders"].partitions[0].isr == (ONE, TWO)
        cluster.down.clear()
        await until(lambda: set(cluster.partition(1).isr) == set(ALL))
        await until(lambda: same_everywhere(cluster))
        assert cluster.values(3) == ["a", "b"]

    run(story, tmp_path)


def test_a_deposed_leader_truncates_records_that_only_it_has(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic())
        await cluster.produce(1, "committed")
        cluster.down.add(ONE)  # it still believes that it leads, and its followers cannot reach it
        await cluster.produce(1, "lost-1", "lost-2", acks_all=False)
        late = asyncio.ensure_future(cluster.produce(1, "lost-3"))
        await until(lambda: "lost-3" in cluster.values(1))
        cluster.elect(2, TOPIC_ID)
        assert await late is ErrorCode.not_leader_or_follower
        cluster.down.clear()
        assert await cluster.produce(2, "kept") is ErrorCode.none
        await until(lambda: same_everywhere(cluster))
        for broker in ALL:
            assert cluster.values(broker) == ["committed", "kept"]
        assert cluster.partition(1).log.epochs.entries == [(0, 0), (1, 1)]

    run(story, tmp_path, replica_lag_time_max_ms="60000")


def test_leaders_without_a_single_write_leave_no_trace(tmp_path: Path) -> None:
    """Epochs 1 to 6 begin at the same offset; followers ask for epochs that no log has."""

    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic())
        await cluster.produce(1, "a")
        for leader in (2, 3, 1, 2, 3, 1):
            cluster.elect(leader, TOPIC_ID)
            await asyncio.sleep(0.01)
        assert await cluster.produce(1, "b") is ErrorCode.none
        await until(lambda: same_everywhere(cluster))
        for broker in ALL:
            assert cluster.values(broker) == ["a", "b"]

    run(story, tmp_path)


def test_a_follower_that_was_away_too_long_starts_where_the_leader_starts(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic())
        await cluster.produce(1, "a")
        cluster.down.add(THREE)
        for number in range(5):
            await cluster.produce(1, f"b-{number}")
        cluster.partition(1).log.advance_log_start_offset(4)
        cluster.down.clear()
        await cluster.produce(1, "c")
        await until(lambda: same_everywhere(cluster))
        assert cluster.values(3) == ["b-3", "b-4", "c"]
        for broker in ALL:
            assert cluster.partition(broker).log.log_start_offset == 4

    run(story, tmp_path)


def test_an_empty_follower_ahead_of_an_empty_leader_steps_back(tmp_path: Path) -> None:
    """Only after an unclean election: it has no records and no epochs, just an offset."""

    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic(isr=(ONE, TWO)))
        cluster.partition(3).log.truncate_fully_and_start_at(50)
        await cluster.produce(1, "a")
        await until(lambda: same_everywhere(cluster))
        assert cluster.values(3) == ["a"]

    run(story, tmp_path)


def test_a_new_partition_need_not_wait_for_the_long_poll(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic())
        await cluster.produce(1, "a")
        await until(lambda: len(cluster.partition(1)._follower_listeners) == 2)  # for a minute
        cluster.commit(*topic("users", UUID(int=8)))
        partition = cluster.partition(1, 0, "users")
        leading = partition.leading
        assert leading is not None
        await until(lambda: len(leading.followers) == 2, 1)
        await until(lambda: all(f.log_end_offset == 0 for f in leading.followers.values()), 1)
        cluster.elect(2, TOPIC_ID)
        assert await asyncio.wait_for(cluster.produce(2, "b"), 1) is ErrorCode.none

    run(story, tmp_path, replica_fetch_wait_max_ms="60000")


def test_many_partitions_are_fetched_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of partitions block neither event loop, also when the leader changes or is down."""
    monkeypatch.setattr(session, "PER_REQUEST", 2)
    monkeypatch.setattr(fetcher, "TOUCHED_PER_PASS", 3)
    monkeypatch.setattr(fetch, "FRESH_MAX", 2)
    monkeypatch.setattr(batch_sender, "PER_REQUEST", 2)
    partitions = range(9)

    async def write(cluster: Cluster, leader: int, value: str) -> None:
        writes = [cluster.produce(leader, value, index=index) for index in partitions]
        assert set(await asyncio.gather(*writes)) == {ErrorCode.none}

    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic(partitions=len(partitions)))
        await write(cluster, 1, "a")
        cluster.down |= {ONE}
        await asyncio.sleep(0.1)
        cluster.down.clear()
        await write(cluster, 1, "b")
        for index in partitions:
            cluster.elect(2, TOPIC_ID, index)
        await write(cluster, 2, "c")
        for index in partitions:
            await until(partial(same_everywhere, cluster, index))
            assert [cluster.values(broker, index) for broker in ALL] == [["a", "b", "c"]] * 3
        leading = [cluster.partition(2, index).leading for index in partitions]
        await until(lambda: all(one is not None and len(one.isr) == 3 for one in leading))

    run(story, tmp_path)


def test_idle_brokers_send_few_fetches(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic(partitions=5))
        await cluster.produce(1, "a")
        await asyncio.sleep(0.1)
        before = cluster.fetches
        await asyncio.sleep(0.5)
        assert cluster.fetches == before

    run(story, tmp_path, replica_fetch_wait_max_ms="60000")


def test_one_write_takes_few_fetches_and_the_high_watermark_travels(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic())
        await cluster.produce(1, "a")
        await until(lambda: same_everywhere(cluster))
        before = cluster.fetches
        await cluster.produce(1, "b")
        await until(lambda: same_everywhere(cluster), 1)
        assert cluster.fetches - before <= 6

    run(story, tmp_path, replica_fetch_wait_max_ms="60000")


def test_damage_in_one_partition_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic(partitions=2))
        log = cluster.partition(3, 0).log
        real = type(log).append_as_follower

        def refuse(self: object, records: object) -> object:
            if self is log and broken:
                raise KafkaError(ErrorCode.corrupt_message, "CRC does not match")
            return real(self, records)  # type: ignore[arg-type]

        broken = True
        monkeypatch.setattr(type(log), "append_as_follower", refuse)
        one = asyncio.ensure_future(cluster.produce(1, "a", index=0))
        assert await cluster.produce(1, "b", index=1) is ErrorCode.none
        assert cluster.values(3, 1) == ["b"]
        assert not one.done()
        broken = False
        assert await one is ErrorCode.none

    run(story, tmp_path, replica_lag_time_max_ms="60000")


def test_a_failed_disk_fails_its_partitions_only_there(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic())
        await cluster.produce(1, "a")
        cluster.partition(3).log.log_dir.fail(OSError(5, "I/O error"))
        assert await cluster.produce(1, "b") is ErrorCode.none
        assert cluster.partition(1).isr == (ONE, TWO)
        assert cluster.nodes[THREE].service.by_name["orders", 0].following is None

    run(story, tmp_path)


def test_topics_that_go_and_come_again(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic())
        await cluster.produce(1, "old")
        cluster.commit(RemoveTopicRecord(TOPIC_ID), *topic("orders", UUID(int=9)))
        await cluster.produce(1, "new")
        for broker in ALL:
            assert cluster.values(broker) == ["new"]

    run(story, tmp_path)


def test_the_controller_is_asked_again_until_it_answers(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic())
        await cluster.produce(1, "a")
        cluster.alter_partition_error = ErrorCode.not_controller
        cluster.down.add(THREE)
        waiting = asyncio.ensure_future(cluster.produce(1, "b"))
        await until(lambda: cluster.alter_partitions >= 3)
        assert not waiting.done()
        assert cluster.partition(1).isr == ALL
        cluster.alter_partition_error = None
        assert await waiting is ErrorCode.none

    run(story, tmp_path)


@pytest.mark.parametrize("controller", [ONE, TWO])
def test_a_refused_isr_is_proposed_again(tmp_path: Path, controller: BrokerId) -> None:
    """Also if the leader is the controller itself, whose answers are not encoded."""

    async def story(cluster: Cluster) -> None:
        cluster.controller = controller
        cluster.commit(*topic())
        cluster.down.add(THREE)
        assert await cluster.produce(1, "a") is ErrorCode.none
        cluster.refused_isr = ErrorCode.ineligible_replica
        cluster.down.clear()
        await until(lambda: cluster.refusals >= 2)
        cluster.refused_isr = None
        await until(lambda: set(cluster.partition(1).isr) == set(ALL))

    run(story, tmp_path)


def test_a_reassigned_replica_catches_up_and_joins(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic(replicas=(ONE, TWO)))
        for number in range(10):
            await cluster.produce(1, f"v-{number}")
        cluster.commit(
            PartitionChangeRecord(
                0,
                TOPIC_ID,
                replicas=ALL,
                adding_replicas=(THREE,),
                directories=tuple(UUID(int=1000 + i) for i in ALL),
            )
        )
        await until(lambda: set(cluster.partition(1).isr) == set(ALL))
        await until(lambda: same_everywhere(cluster))
        assert cluster.values(3) == [f"v-{n}" for n in range(10)]

    run(story, tmp_path)


def test_with_flush_messages_followers_flush_before_they_say_that_they_have_it(
    tmp_path: Path,
) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.commit(ConfigRecord(ResourceType.TOPIC, "orders", "flush.messages", "1"), *topic())
        for number in range(5):
            assert await cluster.produce(1, f"v-{number}") is ErrorCode.none
            for broker in ALL:
                assert cluster.partition(broker).log.recovery_point >= number + 1

    run(story, tmp_path)


def test_large_answers_are_cut_and_go_on(tmp_path: Path) -> None:
    """Batches of about 600 bytes, 1000 per partition and fetch, 2000 per fetch."""

    async def story(cluster: Cluster) -> None:
        cluster.down |= {TWO, THREE}
        cluster.commit(*topic(partitions=3, isr=(ONE,)))
        values = [f"{number:03d}" + "x" * 500 for number in range(50)]
        for index in range(3):
            for value in values:
                await cluster.produce(1, value, index=index)
        cluster.down.clear()
        for index in range(3):
            await until(partial(same_everywhere, cluster, index), 20)
            assert cluster.values(2, index) == values
        following = cluster.partition(2).following
        assert following is not None
        assert following.status is Status.FETCHING

    run(
        story,
        tmp_path,
        replica_fetch_max_bytes="1000",
        replica_fetch_response_max_bytes="2000",
    )


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttled_replica_catches_up_slowly_and_others_are_not_held_up(
    tmp_path: Path, side: str
) -> None:
    """100 kB to fetch, 200 kB per second allowed."""

    async def story(cluster: Cluster) -> None:
        broker = 1 if side == "leader" else 3
        cluster.commit(
            ConfigRecord(
                ResourceType.TOPIC,
                "orders",
                f"{side}.replication.throttled.replicas",
                f"0:{broker}",
            ),
            *topic(isr=(ONE, TWO)),
        )
        cluster.down.add(THREE)
        for _ in range(20):
            await cluster.produce(1, "x" * 5000)
        cluster.down.clear()
        started = asyncio.get_running_loop().time()
        await cluster.produce(1, "y")
        assert asyncio.get_running_loop().time() - started < 0.2
        await until(lambda: same_everywhere(cluster))
        assert 0.3 < asyncio.get_running_loop().time() - started < 3

    rate = {f"{side}_replication_throttled_rate": "200000"}
    run(story, tmp_path, replica_fetch_max_bytes="10000", replica_lag_time_max_ms="60000", **rate)


def test_deleted_records_are_gone_everywhere_before_the_answer(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic())
        for number in range(5):
            await cluster.produce(1, f"v-{number}")

        async def delete(offset: int, timeout: int = 5000, broker: int = 1) -> tuple[int, int]:
            exchange = Exchange(cluster.context(ALL[broker - 1]), 21, 2, "PLAINTEXT")
            asked = Struct(partition_index=0, offset=offset)
            request = Struct(timeout=timeout, topics=[Struct(name="orders", partitions=[asked])])
            answer = await delete_records.handle(exchange, request)
            one = answer.topics[0].partitions[0]
            return one.error_code, one.low_watermark

        assert await asyncio.wait_for(delete(3), 1) == (0, 3)
        for broker in ALL:
            assert cluster.values(broker) == ["v-3", "v-4"]
        assert await delete(3, broker=2) == (ErrorCode.not_leader_or_follower, -1)
        assert await delete(6) == (ErrorCode.offset_out_of_range, -1)
        cluster.down.add(THREE)
        assert await delete(4, timeout=50) == (ErrorCode.request_timed_out, -1)
        assert not cluster.partition(1).awaits_deletion
        cluster.down.clear()
        assert await delete(-1) == (0, 5)

    run(story, tmp_path, replica_fetch_wait_max_ms="60000", replica_lag_time_max_ms="60000")


def test_the_controller_learns_in_which_directory_each_replica_is(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic(partitions=2))
        expected = tuple(cluster.nodes[broker].logs.directory_ids[0] for broker in ALL)
        partitions = cluster.metadata.image.topics["orders"].partitions

        def known() -> bool:
            partitions = cluster.metadata.image.topics["orders"].partitions
            return all(one.directories == expected for one in partitions.values())

        assert not known()
        assert len(partitions) == 2
        await until(known)

    run(story, tmp_path)
