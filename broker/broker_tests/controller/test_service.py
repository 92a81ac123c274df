"""The controller as a whole: order, visibility, restart, and a metadata log that fails."""

import asyncio
import errno
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from broker_tests.controller.support import (
    DIRECTORY,
    ME,
    MemoryLog,
    create,
    delete,
    elected,
    heartbeat,
    new_topic,
    register,
    started,
)
from broker_tests.manual_clock import ManualClock
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.controller.brokers import bootstrap
from odradek_broker.controller.service import ControllerService
from odradek_broker.controller.voters import Add
from odradek_broker.log.errors import LogDirError
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.publisher import MetadataPublisher
from odradek_broker.raft.log_files import open_metadata_log
from odradek_broker.raft.opening import open_quorum
from odradek_broker.raft.values import NodeIdentity, RaftEndpoint, ReplicaKey
from odradek_broker.runtime.disk import RealDisk
from odradek_broker.runtime.ports import Ports
from odradek_broker.runtime.settings import Settings
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId
from odradek_protocol.messages.struct import Struct

DIR = Path("/data")
B2, B3 = BrokerId(2), BrokerId(3)


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story())


def set_config(kind: int, resource: str, name: str, value: str) -> Struct:
    change = Struct(name=name, config_operation=0, value=value)
    resource_ = Struct(resource_type=kind, resource_name=resource, configs=[change])
    return Struct(resources=[resource_], validate_only=False)


async def holding_commits() -> tuple[ControllerService, asyncio.Future[None]]:
    """A controller, and the future at whose end its next appends are committed."""
    log = MemoryLog()
    controller = await started(log=log)
    log.hold = asyncio.get_running_loop().create_future()
    return controller, log.hold


class TestOrder:
    def test_nothing_is_published_before_it_is_committed(self) -> None:
        async def story() -> None:
            log = MemoryLog()
            controller = await started(log=log)
            seen: list[MetadataDelta] = []
            log.publisher.subscribe(lambda delta, _: seen.append(delta))
            committed = asyncio.get_running_loop().create_future()
            log.hold = committed
            creating = asyncio.ensure_future(controller.create_topics(create(new_topic("a"))))
            await asyncio.sleep(0)
            assert log.next_offset == len(bootstrap()) + 4  # registered, unfenced; topic, partition
            assert controller.image.topics == {}
            assert seen == []
            committed.set_result(None)
            answer = await creating
            assert answer.topics[0].error_code is ErrorCode.none
            assert list(controller.image.topics) == ["a"]
            assert [change.partition for change in seen[0].changed_partitions()] == [0]

        run(story)

    def test_two_requests_for_one_name_at_the_same_time(self) -> None:
        """The second is decided before the first is committed, and must take it into account."""

        async def story() -> None:
            controller, committed = await holding_commits()
            first = asyncio.ensure_future(controller.create_topics(create(new_topic("a"))))
            second = asyncio.ensure_future(controller.create_topics(create(new_topic("a"))))
            await asyncio.sleep(0)
            committed.set_result(None)
            codes = [(await task).topics[0].error_code for task in (first, second)]
            assert codes == [ErrorCode.none, ErrorCode.topic_already_exists]
            controller.image.validate()

        run(story)

    def test_a_broker_that_may_stop_is_no_voter_before_that_is_committed(self) -> None:
        """Then a quorum of two would lose one of them, and the cluster its controller for good."""

        async def story() -> None:
            log = MemoryLog()
            controller = await started(log=log)
            disks = {broker: UUID(int=1000 + broker) for broker in (B2, B3)}
            epochs = {b: await register(controller, b, directory=disks[b]) for b in disks}
            observers = {ReplicaKey(broker, disk) for broker, disk in disks.items()}
            voter = {ReplicaKey(ME, DIRECTORY)}
            change = controller.voter_change(voter, observers)
            assert isinstance(change, Add)
            assert change.key.id == B2
            log.hold = asyncio.get_running_loop().create_future()
            stopping = asyncio.ensure_future(
                controller.broker_heartbeat(heartbeat(epochs[B2], B2, want_shut_down=True))
            )
            await asyncio.sleep(0)
            assert not controller.image.brokers[B2].fenced
            assert controller.voter_change(voter, observers) is None
            log.hold.set_result(None)
            assert (await stopping).should_shut_down

        run(story)

    def test_no_answer_depends_on_an_uncommitted_record(self) -> None:
        """A refusal because of a change that is then lost: the client would not retry."""

        async def story() -> None:
            controller, committed = await holding_commits()
            first = asyncio.ensure_future(controller.create_topics(create(new_topic("a"))))
            second = asyncio.ensure_future(controller.create_topics(create(new_topic("a"))))
            for _ in range(5):
                await asyncio.sleep(0)
            assert not second.done()
            committed.set_exception(KafkaError(ErrorCode.not_controller))
            for task in (first, second):
                with pytest.raises(KafkaError, match="not_controller"):
                    await task

        run(story)

    def test_a_request_is_one_batch(self) -> None:
        async def story() -> None:
            log = MemoryLog()
            controller = await started(log=log)
            await controller.create_topics(create(new_topic("a", 3), new_topic("b")))
            assert len(log.batches[-1]) == 2 + 3 + 1

        run(story)

    def test_a_failing_subscriber_does_not_block_the_others(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def story() -> None:
            log = MemoryLog()
            controller = await started(log=log)
            seen: list[MetadataDelta] = []

            def broken(delta: MetadataDelta, epoch: int) -> None:
                raise RuntimeError("disk on fire")

            log.publisher.subscribe(broken)
            log.publisher.subscribe(lambda delta, _: seen.append(delta))
            await controller.create_topics(create(new_topic("a")))
            assert len(seen) == 1

        run(story)
        assert "disk on fire" in caplog.text


class TestDynamicBrokerConfigs:
    def test_settings_are_applied_before_subscribers_are_called(self) -> None:
        async def story() -> None:
            settings = Settings()
            log = MemoryLog()
            controller = elected(settings, log)
            await asyncio.sleep(0)
            heard = []
            log.publisher.subscribe(lambda *_: heard.append(settings.log_config({}).retention_ms))
            await controller.incremental_alter_configs(set_config(4, "", "log.retention.ms", "5"))
            await controller.incremental_alter_configs(set_config(4, "1", "log.retention.ms", "6"))
            assert heard == [5, 6]
            again = Settings()
            elected(again, log)
            assert again.int("log.retention.ms") == 6

        run(story)


async def block(controller: ControllerService) -> range:
    broker = controller.image.brokers[BrokerId(1)]
    request = Struct(broker_id=broker.id, broker_epoch=broker.epoch)
    answer = await controller.allocate_producer_ids(request)
    return range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)


class TestProducerIds:
    def test_a_producer_id_is_never_given_out_twice_even_after_a_restart(self) -> None:
        async def story() -> None:
            log = MemoryLog()
            controller = await started(log=log)
            ids = [*await block(controller), *await block(controller)]
            restarted = await started(log=log)
            for allocated in await asyncio.gather(block(restarted), block(restarted)):
                ids += allocated
            assert len(set(ids)) == len(ids) == 4000

        run(story)


class Power:
    """A disk whose syncs hang while the power is about to fail."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.failing = False

    def run(self, job: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        error: BaseException | None = None
        if self.failing:
            return
        try:
            job()
        except LogDirError as failure:
            error = failure
        asyncio.get_running_loop().call_soon(done, error)


class Active:
    """Makes the controller active when this node is elected; the test waits for it."""

    def __init__(self, controller: ControllerService) -> None:
        self.controller = controller
        self.elected = asyncio.Event()

    def became_leader(self, epoch: int) -> None:
        self.controller.become_active(epoch, self.controller.image)
        self.elected.set()

    def lost_leadership(self) -> None:
        self.controller.resign()


async def on_disk(power: Power, *, previous_epoch: int = -1) -> ControllerService:
    """A controller on the metadata log in /data, as after a start of the process."""
    settings, clock, node_id = Settings(), ManualClock(), BrokerId(1)
    publisher = MetadataPublisher(node_id, settings)
    quorum = open_quorum(
        settings,
        open_metadata_log(DIR, power.disk, settings, clock.now_ms()),
        publisher,
        NodeIdentity(ReplicaKey(1, DIRECTORY), "c", "PLAINTEXT"),
        Ports(asyncio.get_running_loop(), clock, RealDisk(), Random(1), power),
        on_failure=lambda _: None,
    )
    controller = ControllerService(settings, Random(1), quorum, publisher, "c")
    active = Active(controller)
    quorum.attach(active)
    await quorum.start((RaftEndpoint("PLAINTEXT", "localhost", 9092),))
    await active.elected.wait()
    await register(controller, previous_epoch=previous_epoch)
    return controller


class TestRestart:
    def test_metadata_is_replayed_after_a_restart(self) -> None:
        async def story() -> None:
            disk = Power()
            before = await on_disk(disk)
            await before.create_topics(create(new_topic("a", 50), new_topic("b"), new_topic("c")))
            await before.delete_topics(delete("b"))
            await before.incremental_alter_configs(set_config(2, "a", "retention.ms", "5"))
            after = await on_disk(disk)
            assert set(after.image.topics) == {"a", "c"}
            assert after.image.topics["a"].id == before.image.topics["a"].id
            was, now = before.image.topics["a"].partitions, after.image.topics["a"].partitions
            assert {i: p.directories for i, p in now.items()} == {
                i: p.directories for i, p in was.items()
            }
            assert all((p.leader, p.isr, p.replicas) == (1, (1,), (1,)) for p in now.values())
            assert after.image.topic_config("a") == {"retention.ms": "5"}
            assert after.epoch > before.epoch
            assert after.image.brokers[BrokerId(1)].epoch > before.image.brokers[BrokerId(1)].epoch

        run(story)

    def test_a_restart_begins_new_leader_epochs(self) -> None:
        async def story() -> None:
            disk = Power()
            await (await on_disk(disk)).create_topics(create(new_topic("a", 2)))
            after = await on_disk(disk)
            partitions = after.image.topics["a"].partitions.values()
            assert [p.leader for p in partitions] == [1, 1]
            # One for the end of the old incarnation, one when the new one is unfenced.
            assert [p.leader_epoch for p in partitions] == [2, 2]

        run(story)

    @pytest.mark.parametrize("clean", [True, False])
    def test_only_after_a_clean_stop_is_a_replica_still_eligible(self, clean: bool) -> None:
        """1. broker 1 stops and leaves the ISR below its minimum, with all committed records;
        2. it starts again: if its stop was not clean, the newest of them may be lost."""

        async def story() -> None:
            disk, two = Power(), BrokerId(2)
            before = await on_disk(disk)
            await register(before, two, directory=UUID(int=778))
            await before.create_topics(
                create(new_topic("a", 0, 0, {0: [1, 2]}, {"min.insync.replicas": "2"}))
            )
            epoch = before.image.brokers[ME].epoch
            await before.broker_heartbeat(heartbeat(epoch, want_shut_down=True))
            stopped = before.image.topics["a"].partitions[0]
            assert (stopped.leader, stopped.isr) == (two, (two,))
            assert stopped.eligible_leader_replicas == (ME,)

            after = await on_disk(disk, previous_epoch=epoch if clean else -1)
            found = after.image.topics["a"].partitions[0]
            assert found.eligible_leader_replicas == ((ME,) if clean else ())
            assert found.last_known_elr == (() if clean else (ME,))
            assert found.isr == (two,), "it joins the ISR when its leader finds it caught up"

        run(story)

    @pytest.mark.parametrize("seed", range(30))
    def test_power_failure_keeps_what_was_answered(self, seed: int) -> None:
        """1. topics are created, each answered; 2. the power fails during the next one;
        3. after the restart every answered one is there, whole."""

        async def story() -> None:
            rng = Random(seed)
            power = Power()
            controller = await on_disk(power)
            answered = rng.randint(0, 6)
            for i in range(answered):
                await controller.create_topics(create(new_topic(f"t{i}", 5)))
            power.failing = True
            request = create(new_topic("unanswered", rng.randint(1, 200)))
            hanging = asyncio.ensure_future(controller.create_topics(request))
            await asyncio.sleep(0)
            hanging.cancel()
            power.disk.crash(rng)
            power.failing = False
            image = (await on_disk(power)).image
            for i in range(answered):
                assert len(image.topics[f"t{i}"].partitions) == 5
            unanswered = image.topics.get("unanswered")
            if unanswered is not None:  # kept as a whole, or not at all
                assert len(unanswered.partitions) == request.topics[0].num_partitions
            image.validate()

        run(story)


class TestFailure:
    def test_a_log_that_cannot_be_written_makes_metadata_read_only(self) -> None:
        async def story() -> None:
            power = Power()
            controller = await on_disk(power)
            await controller.create_topics(create(new_topic("a")))
            power.disk.fail(str(DIR), errno.EIO)
            with pytest.raises(KafkaError) as caught:
                await controller.create_topics(create(new_topic("b")))
            assert caught.value.code is ErrorCode.kafka_storage_error
            power.disk.heal()  # what is on disk is not known any more, so this changes nothing
            with pytest.raises(KafkaError):
                await controller.create_topics(create(new_topic("c")))
            assert set(controller.image.topics) == {"a"}

        run(story)
