"""Large decisions, which are made in a thread, and pauses of the controller.

A heartbeat never waits; every other decision waits for the one that is made in a thread.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest

from broker_tests.controller.active_support import World
from broker_tests.controller.support import (
    MemoryLog,
    create,
    elected,
    heartbeat,
    new_topic,
    register,
    started,
)
from broker_tests.manual_clock import ManualClock
from odradek_broker.controller import active as active_module
from odradek_broker.controller.seat import ControllerSeat
from odradek_broker.controller.service import LARGE_PARTITIONS
from odradek_broker.metadata.records import BrokerRegistrationChangeRecord, MetadataRecord
from odradek_broker.runtime.settings import Settings
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId

LARGE = LARGE_PARTITIONS + 1


class HeldLog(MemoryLog):
    """Encoding, which a thread does, waits until the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.encoding = threading.Event()
        self.go_on = threading.Event()

    def batch_of(self, records: Sequence[MetadataRecord]) -> bytes:
        self.encoding.set()
        assert self.go_on.wait(30)
        return b""


class TestInAThread:
    def test_other_decisions_wait_and_heartbeats_do_not(self) -> None:
        async def story() -> None:
            log = HeldLog()
            controller = await started(log=log)
            large = asyncio.ensure_future(controller.create_topics(create(new_topic("a", LARGE))))
            await asyncio.to_thread(log.encoding.wait, 30)
            small = asyncio.ensure_future(controller.create_topics(create(new_topic("a"))))
            epoch = controller.image.brokers[BrokerId(1)].epoch
            answer = await asyncio.wait_for(controller.broker_heartbeat(heartbeat(epoch)), 30)
            assert not answer.is_fenced
            assert not large.done()
            assert not small.done()
            assert controller.next_tick_ms() == float("inf")
            log.go_on.set()
            assert (await large).topics[0].error_code is ErrorCode.none
            refused = (await small).topics[0].error_code
            assert refused is ErrorCode.topic_already_exists, "decided after it"
            assert len(controller.image.topics["a"].partitions) == LARGE
            assert [len(batch) for batch in log.batches[-1:]] == [LARGE + 1], "one batch"

        asyncio.run(story())

    def test_a_controller_that_was_replaced_meanwhile_appends_nothing(self) -> None:
        async def story() -> None:
            log = HeldLog()
            controller = await started(log=log)
            large = asyncio.ensure_future(controller.create_topics(create(new_topic("a", LARGE))))
            await asyncio.to_thread(log.encoding.wait, 30)
            offset = log.next_offset
            controller.resign()
            log.epoch += 1
            controller.become_active(log.epoch, log.publisher.image)
            log.go_on.set()
            with pytest.raises(KafkaError) as refused:
                await large
            assert refused.value.code is ErrorCode.not_controller
            assert log.next_offset == offset
            answer = await controller.create_topics(create(new_topic("b")))
            assert answer.topics[0].error_code is ErrorCode.none

        asyncio.run(story())

    def test_the_end_of_a_broker_with_many_partitions(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Fenced by `tick`, in a thread; its partitions have no leader until it is back."""
        monkeypatch.setattr(active_module, "SWEEP_MAX", 2)

        async def story() -> None:
            clock = ManualClock()
            log = MemoryLog()
            controller = elected(Settings({}), log)
            controller._clock = clock
            await register(controller)
            await controller.create_topics(create(new_topic("a", 5)))
            clock.advance(10_000)
            controller.tick()
            assert not controller.image.brokers[BrokerId(1)].fenced, "a thread works on it"
            await until(lambda: controller.image.brokers[BrokerId(1)].fenced)
            partitions = controller.image.topics["a"].partitions.values()
            assert {partition.leader for partition in partitions} == {-1}
            epoch = controller.image.brokers[BrokerId(1)].epoch
            answer = await controller.broker_heartbeat(heartbeat(epoch))
            assert not answer.is_fenced
            partitions = controller.image.topics["a"].partitions.values()
            assert {partition.leader for partition in partitions} == {1}
            changes = [r for r in log.records if isinstance(r, BrokerRegistrationChangeRecord)]
            assert [change.fenced for change in changes] == [-1, 1, -1], "the start, then each once"

        asyncio.run(story())

    def test_a_broker_that_waits_for_an_answer_is_not_silent(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A broker with 50,000 partitions was fenced as soon as it was unfenced: that decision
        took longer than a session, and its next heartbeat comes after the answer."""
        monkeypatch.setattr(active_module, "SWEEP_MAX", 2)

        async def story() -> None:
            clock = ManualClock()
            log = HeldLog()
            log.go_on.set()
            controller = elected(Settings({}), log)
            controller._clock = clock
            await register(controller)
            await controller.create_topics(create(new_topic("a", 5)))
            clock.advance(10_000)
            controller.tick()
            await until(lambda: controller.image.brokers[BrokerId(1)].fenced)
            log.encoding.clear()
            log.go_on.clear()
            epoch = controller.image.brokers[BrokerId(1)].epoch
            answer = asyncio.ensure_future(controller.broker_heartbeat(heartbeat(epoch)))
            await asyncio.to_thread(log.encoding.wait, 30)
            clock.advance(10_000)
            log.go_on.set()
            assert not (await answer).is_fenced
            controller.tick()
            assert controller.next_tick_ms() > clock.monotonic_ms()
            assert not controller.image.brokers[BrokerId(1)].fenced
            clock.advance(10_000)
            controller.tick()
            await until(lambda: controller.image.brokers[BrokerId(1)].fenced)

        asyncio.run(story())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)


class TestGrace:
    def test_a_broker_that_waits_for_its_answer(self) -> None:
        world = World(2)
        sessions = world.active.sessions
        sessions.answering(BrokerId(1))
        world.tick(sessions.timeout_ms + 1)
        assert world.live() == [1]
        sessions.answered(BrokerId(1), world.now_ms)
        world.tick(sessions.timeout_ms)
        assert world.live() == [1]
        world.tick(1)
        assert world.live() == []

    def test_a_broker_that_waits_for_its_answer_and_loses_its_connection(self) -> None:
        world = World(2)
        world.active.sessions.answering(BrokerId(1))
        world.active.lost_contact(BrokerId(1), world.now_ms)
        world.heartbeat(2)
        world.tick(2 * world.settings.int("broker.heartbeat.interval.ms") + 1)
        assert world.live() == [2]

    def test_a_pause_of_the_controller_fences_no_broker(self) -> None:
        world = World(2)
        timeout_ms = world.active.sessions.timeout_ms
        pause_ms = 5 * timeout_ms
        world.now_ms += pause_ms
        world.active.was_away(pause_ms, world.now_ms)
        world.tick()
        assert world.live() == [1, 2], "what they sent waits in the sockets"
        world.heartbeat(2)
        world.tick(timeout_ms + 1)
        assert world.live() == [], "a pause is granted once"

    def test_a_broker_that_was_silent_before_has_only_the_rest_of_its_session(self) -> None:
        world = World(2)
        timeout_ms = world.active.sessions.timeout_ms
        world.now_ms += timeout_ms - 100
        world.heartbeat(2)
        world.now_ms += 1000
        world.active.was_away(1000, world.now_ms)
        world.tick(101)
        assert world.live() == [2]

    def test_a_broken_connection_is_granted_the_pause_too(self) -> None:
        world = World(2)
        grace_ms = 2 * world.settings.int("broker.heartbeat.interval.ms")
        world.active.lost_contact(BrokerId(1), world.now_ms)
        world.now_ms += 2 * grace_ms
        world.active.was_away(2 * grace_ms, world.now_ms)
        world.tick(grace_ms)
        assert world.live() == [1, 2]
        world.tick(1)
        assert world.live() == [2]

    def test_the_controller_notices_that_its_loop_was_paused(self) -> None:
        """The tick itself may be the first thing that runs after the pause."""

        class Controller:
            is_active = True
            node_id = 1

            def __init__(self) -> None:
                self.pauses: list[float] = []
                self.ticks = 0

            def become_active(self, epoch: int, image: object) -> None: ...

            def next_tick_ms(self) -> float:
                return float("inf")

            def was_away(self, pause_ms: float) -> None:
                self.pauses.append(pause_ms)

            def tick(self) -> None:
                self.ticks += 1
                assert self.pauses, "the pause is reported before any broker is fenced"

            def resign(self) -> None: ...

        class Other:
            image = None

            def subscribe(self, _: object) -> None: ...

            def watch_leader(self, _: object) -> None: ...

            def attach(self, _: object) -> None: ...

        async def story() -> None:
            clock, controller = ManualClock(), Controller()
            loop = asyncio.get_running_loop()
            seat = ControllerSeat(controller, Other(), Other(), clock, loop)  # type: ignore[arg-type]
            seat.became_leader(1)
            clock.advance(3000)
            seat._tick()
            assert controller.pauses == [pytest.approx(2900)]
            seat._pulse()
            assert len(controller.pauses) == 1, "each pause once"
            seat.lost_leadership()

        asyncio.run(story())
