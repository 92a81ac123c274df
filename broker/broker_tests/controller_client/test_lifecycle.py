"""A broker registers, sends heartbeats, is unfenced, unregistered and stops; the test is the
controller."""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from odradek_broker.controller_client.lifecycle import (
    BrokerLifecycle,
    Incarnation,
    LogDirectories,
    RegistrationError,
)
from odradek_broker.controller_client.producer_id_blocks import ProducerIdBlocks
from odradek_broker.metadata.publisher import MetadataPublisher
from odradek_broker.metadata.records import (
    BrokerRegistrationChangeRecord,
    Endpoint,
    RegisterBrokerRecord,
)
from odradek_broker.runtime.listeners import Listener
from odradek_broker.runtime.peer import PeerUnavailable
from odradek_broker.runtime.settings import Settings
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId
from odradek_protocol.messages.struct import Struct

ME = BrokerId(1)
DIRECTORY = UUID(int=7)
LISTENERS = [Listener("PLAINTEXT", "host", 9092, "PLAINTEXT")]


class Controller:
    """Responds as the test wants; its decisions become the broker's metadata."""

    def __init__(self, metadata: MetadataPublisher) -> None:
        self.metadata = metadata
        self.registrations: list[Struct] = []
        self.heartbeats: list[Struct] = []
        self.refusals: list[ErrorCode] = []  # of the next registrations
        self.unknown = False  # the broker is not registered
        self.gone = False
        self.offset = 9
        self.beat = asyncio.Event()

    async def call(self, api_key: int, version: int, request: Struct, timeout_ms: float) -> Struct:
        await asyncio.sleep(0)
        if self.gone:
            await asyncio.sleep(0.01)
            raise PeerUnavailable("gone")
        return self._register(request) if api_key == 62 else self._heartbeat(request)

    def _register(self, request: Struct) -> Struct:
        self.registrations.append(request)
        if self.refusals:
            return Struct(error_code=self.refusals.pop(0), broker_epoch=-1)
        self.unknown = False
        self.offset += 1
        epoch = self.offset
        endpoints = (Endpoint("PLAINTEXT", "host", 9092, 0),)
        record = RegisterBrokerRecord(
            ME, request.incarnation_id, epoch, endpoints, (), None, True, False, (DIRECTORY,)
        )
        self.metadata.replay([record], epoch, 1)
        return Struct(error_code=ErrorCode.none, broker_epoch=epoch)

    def _heartbeat(self, request: Struct) -> Struct:
        self.heartbeats.append(request)
        self.beat.set()
        if self.unknown:
            return Struct(error_code=ErrorCode.stale_broker_epoch)
        own = self.metadata.image.brokers[ME]
        if own.fenced and not request.want_fence:
            self.offset += 1
            change = BrokerRegistrationChangeRecord(ME, own.epoch, fenced=-1)
            self.metadata.replay([change], self.offset, 1)
        return Struct(
            error_code=ErrorCode.none,
            is_fenced=False,
            is_caught_up=True,
            should_shut_down=request.want_shut_down and len(self.heartbeats) > 3,
        )

    async def next_beat(self) -> Struct:
        self.beat.clear()
        await asyncio.wait_for(self.beat.wait(), 10)
        return self.heartbeats[-1]


class Bench:
    def __init__(self, **overrides: str) -> None:
        given = {name.replace("_", "."): value for name, value in overrides.items()}
        settings = Settings({"broker.heartbeat.interval.ms": "5", **given})
        self.metadata = MetadataPublisher(ME, settings)
        self.controller = Controller(self.metadata)
        self.failures: list[Exception] = []
        self.lifecycle = BrokerLifecycle(
            Incarnation(ME, "cluster", UUID(int=5), previous_broker_epoch=4),
            settings,
            self.controller,
            self.metadata,
            LogDirectories(ids=lambda: [DIRECTORY], offline_ids=list),
            applied_offset=lambda: self.metadata.image.offset + 1,
            on_failure=self.failures.append,
        )


Story = Callable[[Bench, BrokerLifecycle, Controller], Awaitable[None]]


def run(story: Story, **overrides: str) -> None:
    async def main() -> None:
        bench = Bench(**overrides)
        try:
            await asyncio.wait_for(story(bench, bench.lifecycle, bench.controller), 30)
        finally:
            await bench.lifecycle.stop()

    asyncio.run(main())


class TestLife:
    def test_a_broker_registers_is_unfenced_and_shuts_down(self) -> None:
        async def story(bench: Bench, lifecycle: BrokerLifecycle, controller: Controller) -> None:
            assert await lifecycle.register(LISTENERS) == 10
            (sent,) = controller.registrations
            assert (sent.broker_id, sent.cluster_id, sent.previous_broker_epoch) == (
                1,
                "cluster",
                4,
            )
            assert (sent.incarnation_id, sent.log_dirs) == (UUID(int=5), [DIRECTORY])
            assert [(item.host, item.port) for item in sent.listeners] == [("host", 9092)]
            lifecycle.start()
            first = await controller.next_beat()
            assert (first.broker_epoch, first.current_metadata_offset) == (10, 10)
            assert (first.want_fence, first.want_shut_down) == (True, False)
            await lifecycle.unfence()
            assert not bench.metadata.image.brokers[ME].fenced
            await lifecycle.shut_down(10_000)
            assert controller.heartbeats[-1].want_shut_down

        run(story)

    def test_a_forgotten_broker_registers_again_as_the_same_incarnation(self) -> None:
        async def story(bench: Bench, lifecycle: BrokerLifecycle, controller: Controller) -> None:
            await lifecycle.register(LISTENERS)
            lifecycle.start()
            await lifecycle.unfence()
            controller.unknown = True
            while len(controller.registrations) < 2:
                await controller.next_beat()
            assert len({sent.incarnation_id for sent in controller.registrations}) == 1
            while (await controller.next_beat()).broker_epoch != lifecycle.broker_epoch:
                pass
            assert lifecycle.broker_epoch > 10

        run(story)

    def test_an_unavailable_controller_is_waited_for(self) -> None:
        async def story(bench: Bench, lifecycle: BrokerLifecycle, controller: Controller) -> None:
            controller.gone = True
            registering = asyncio.ensure_future(lifecycle.register(LISTENERS))
            await asyncio.sleep(0.05)
            assert not registering.done()
            controller.gone = False
            await registering
            lifecycle.start()
            await lifecycle.unfence()
            controller.gone = True
            await asyncio.sleep(0.05)
            controller.gone = False
            await controller.next_beat()
            assert bench.failures == []

        run(story)

    def test_the_last_broker_does_not_wait_for_a_controller_without_limit(self) -> None:
        async def story(bench: Bench, lifecycle: BrokerLifecycle, controller: Controller) -> None:
            await lifecycle.register(LISTENERS)
            lifecycle.start()
            await lifecycle.unfence()
            controller.gone = True
            await lifecycle.shut_down(1_000_000)

        run(story, broker_session_timeout_ms="3000")

    @pytest.mark.parametrize("steps", range(4))
    def test_stopping_works_while_a_wake_up_is_pending(self, steps: int) -> None:
        """1 it may stop, and does; 2 the metadata says at that moment that it is fenced."""

        async def story(bench: Bench, lifecycle: BrokerLifecycle, controller: Controller) -> None:
            epoch = await lifecycle.register(LISTENERS)
            lifecycle.start()
            await lifecycle.unfence()
            await asyncio.sleep(0.05)  # it waits for its next heartbeat now
            fenced = BrokerRegistrationChangeRecord(ME, epoch, fenced=1)
            bench.metadata.replay([fenced], controller.offset + 1, 1)
            for _ in range(steps):
                await asyncio.sleep(0)
            stopping = asyncio.ensure_future(lifecycle.stop())
            done, _ = await asyncio.wait({stopping}, timeout=60)
            assert done, "it beats for ever"

        run(story, broker_heartbeat_interval_ms="60000")


class TestRefusals:
    @pytest.mark.parametrize(
        ("code", "words"),
        [
            (ErrorCode.inconsistent_cluster_id, "another cluster"),
            (ErrorCode.unsupported_version, "feature"),
            (ErrorCode.invalid_registration, "refuses"),
        ],
    )
    def test_a_permanent_refusal_is_raised(self, code: ErrorCode, words: str) -> None:
        async def story(bench: Bench, lifecycle: BrokerLifecycle, controller: Controller) -> None:
            controller.refusals = [code]
            with pytest.raises(RegistrationError, match=words) as refused:
                await lifecycle.register(LISTENERS)
            assert "\n" not in str(refused.value)

        run(story)

    def test_a_duplicate_id_is_retried_until_the_old_session_ends(self) -> None:
        async def story(bench: Bench, lifecycle: BrokerLifecycle, controller: Controller) -> None:
            controller.refusals = [ErrorCode.duplicate_broker_registration] * 3
            assert await lifecycle.register(LISTENERS) == 10

        run(story)

    def test_a_duplicate_id_is_an_error_when_the_other_broker_stays(self) -> None:
        async def story(bench: Bench, lifecycle: BrokerLifecycle, controller: Controller) -> None:
            controller.refusals = [ErrorCode.duplicate_broker_registration] * 1000
            with pytest.raises(RegistrationError, match=r"node\.id 1 is in use"):
                await lifecycle.register(LISTENERS)

        run(story, broker_session_timeout_ms="100")


class TestProducerIds:
    def test_one_request_at_a_time_for_the_next_block(self) -> None:
        async def story() -> None:
            asked = []

            class Blocks:
                async def call(
                    self, key: int, version: int, request: Struct, timeout_ms: float
                ) -> Struct:
                    await asyncio.sleep(0)
                    asked.append(request.broker_epoch)
                    start = (len(asked) - 1) * 10
                    return Struct(error_code=0, producer_id_start=start, producer_id_len=10)

            ids = ProducerIdBlocks(ME, lambda: 42, Blocks())
            found = await asyncio.gather(*(ids.next() for _ in range(25)))
            assert sorted(found) == list(range(25))
            assert asked == [42, 42, 42]

        asyncio.run(story())

    @pytest.mark.parametrize("answer", [PeerUnavailable("gone"), ErrorCode.stale_broker_epoch])
    def test_without_a_block_clients_get_a_retriable_error(
        self, answer: PeerUnavailable | ErrorCode
    ) -> None:
        async def story() -> None:
            class Blocks:
                async def call(
                    self, key: int, version: int, request: Struct, timeout_ms: float
                ) -> Struct:
                    if isinstance(answer, Exception):
                        raise answer
                    return Struct(error_code=answer)

            with pytest.raises(KafkaError) as refused:
                await ProducerIdBlocks(ME, lambda: 42, Blocks()).next()
            assert refused.value.code is ErrorCode.coordinator_load_in_progress

        asyncio.run(story())
