"""The metadata log on disk: one node alone, shared fsyncs, snapshots, what Apache Kafka reads."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from broker_tests.manual_clock import ManualClock
from broker_tests.raft.support import until
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.log.dir_identity import LogDirConfigError
from odradek_broker.metadata.publisher import MetadataPublisher
from odradek_broker.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    ResourceType,
    TopicRecord,
)
from odradek_broker.raft.applier import READ_BYTES
from odradek_broker.raft.log_files import open_metadata_log
from odradek_broker.raft.opening import open_quorum
from odradek_broker.raft.service import QuorumService
from odradek_broker.raft.snapshot_files import (
    SnapshotError,
    checkpoint_name,
    encode_snapshot,
    parse_checkpoint_name,
    read_metadata_records,
    read_voters,
)
from odradek_broker.raft.values import NodeIdentity, OffsetAndEpoch, RaftEndpoint, ReplicaKey
from odradek_broker.raft.voters import Voter, VoterSet
from odradek_broker.runtime.disk import Disk, RealDisk
from odradek_broker.runtime.ports import Ports
from odradek_broker.runtime.settings import Settings
from odradek_protocol.ids import BrokerId
from odradek_testkit import engines as harness

DIRECTORY_ID = UUID(int=4711)
ENDPOINT = RaftEndpoint("PLAINTEXT", "localhost", 9092)
HEAD = 3  # LeaderChange, KRaftVersion, Voters: the first batch of a new cluster


class Syncs:
    """Runs jobs, which otherwise run in a thread, when the test says so, and counts them."""

    def __init__(self) -> None:
        self.count = 0
        self.held: list[Callable[[], None]] | None = None

    def run(self, job: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        self.count += 1

        def now() -> None:
            job()
            asyncio.get_running_loop().call_soon(done, None)

        if self.held is None:
            now()
        else:
            self.held.append(now)

    def release(self) -> None:
        held, self.held = self.held or [], None
        for job in held:
            job()


class Leads:
    def __init__(self) -> None:
        self.event = asyncio.Event()

    def became_leader(self, epoch: int) -> None:
        self.event.set()

    def lost_leadership(self) -> None:
        raise AssertionError("alone")


async def opened(
    disk: Disk,
    syncs: Syncs,
    directory: Path = Path("/data"),
    settings: dict[str, str] | None = None,
) -> QuorumService:
    clock, settings_ = ManualClock(), Settings(settings or {})
    quorum = open_quorum(
        settings_,
        open_metadata_log(directory, disk, settings_, clock.now_ms()),
        MetadataPublisher(BrokerId(1), settings_),
        NodeIdentity(ReplicaKey(1, DIRECTORY_ID), "c", "PLAINTEXT"),
        Ports(asyncio.get_running_loop(), clock, RealDisk(), Random(1), syncs),
        on_failure=lambda error: pytest.fail(str(error)),
    )
    leads = Leads()
    quorum.attach(leads)
    await quorum.start((ENDPOINT,))
    await leads.event.wait()
    return quorum


def topic(index: int) -> TopicRecord:
    return TopicRecord(f"t{index}", UUID(int=index))


def setting(name: str, value: str = "v") -> ConfigRecord:
    return ConfigRecord(ResourceType.CLIENT_METRICS, "t", name, value)


def names(quorum: QuorumService) -> list[str]:
    return list(quorum.publisher.image.config(ResourceType.CLIENT_METRICS, "t"))


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 60))


class TestAlone:
    def test_read_back_with_offsets_and_a_new_epoch(self) -> None:
        async def story() -> None:
            disk, syncs = SimDisk(), Syncs()
            quorum = await opened(disk, syncs)
            assert (quorum.epoch, quorum.next_offset) == (1, HEAD)
            await quorum.append([topic(0), topic(1)])
            assert quorum.publisher.image.offset == HEAD + 1
            await quorum.append([topic(2)])
            again = await opened(disk, syncs)
            assert set(again.publisher.image.topics) == {"t0", "t1", "t2"}
            assert again.epoch > quorum.epoch
            assert again.publisher.controller_epoch == quorum.epoch

        run(story)

    def test_more_than_one_read_and_batches_across_their_border(self) -> None:
        async def story() -> None:
            disk, syncs = SimDisk(), Syncs()
            quorum = await opened(disk, syncs)
            value = "x" * 40_000
            count = 3 * READ_BYTES // len(value)
            for index in range(count):
                await quorum.append([setting(str(index), value)])
            assert names(await opened(disk, syncs)) == [str(index) for index in range(count)]

        run(story)

    def test_appends_that_wait_together_share_one_sync(self) -> None:
        """1. the first append syncs; 2. three more arrive meanwhile; 3. one sync for them."""

        async def story() -> None:
            syncs = Syncs()
            quorum = await opened(SimDisk(), syncs)
            syncs.count, syncs.held = 0, []
            waiting = [quorum.append([NoOpRecord()]) for _ in range(4)]
            await asyncio.sleep(0)
            assert syncs.count == 1
            assert not any(future.done() for future in waiting)
            syncs.release()
            await asyncio.gather(*waiting)
            assert syncs.count == 2

        run(story)

    def test_another_disk_does_not_get_the_votes_of_the_old_one(self) -> None:
        """Another directory id is another replica, which can never lead alone."""

        async def story() -> None:
            disk, syncs = SimDisk(), Syncs()
            await opened(disk, syncs)
            files = open_metadata_log(Path("/data"), disk, Settings(), 0)
            assert files.formatted_with().ids == (1,)
            assert not files.formatted_with().contains(ReplicaKey(1, UUID(int=5)))

        run(story)


SNAPSHOT_OFTEN = {"metadata.log.max.record.bytes.between.snapshots": "1000"}


class TestSnapshots:
    def test_names(self) -> None:
        name = checkpoint_name(OffsetAndEpoch(120, 7))
        assert name == "00000000000000000120-0000000007.checkpoint"
        assert parse_checkpoint_name(name) == (120, 7)
        assert parse_checkpoint_name(name + ".part") is None
        assert parse_checkpoint_name("00000000000000000000.snapshot") is None

    def test_a_file_that_is_not_whole_or_damaged_is_noticed(self) -> None:
        voters = VoterSet((Voter(ReplicaKey(1, DIRECTORY_ID), (ENDPOINT,)),))
        values = [b"%d" % i * 100 for i in range(1000)]
        data = encode_snapshot(OffsetAndEpoch(9, 2), voters, values, 5)
        assert read_voters(data) == voters
        assert list(read_metadata_records(data)) == values
        for cut in (len(data) - 1, len(data) // 2, 100, 0):
            with pytest.raises(SnapshotError):
                read_voters(data[:cut])
        damaged = bytearray(data)
        damaged[len(data) // 2] ^= 1
        with pytest.raises(SnapshotError, match="CRC"):
            read_voters(damaged)

    def test_written_after_enough_bytes_and_enough_to_start_from(self) -> None:
        """1. enough is committed, a snapshot is written; 2. and a second one: the log now begins
        where the first one ended; 3. a restart has all records from the snapshot and the log."""

        async def story() -> None:
            disk, syncs = SimDisk(), Syncs()
            quorum = await opened(disk, syncs, settings=SNAPSHOT_OFTEN)
            written: list[Any] = []
            while len(quorum.state.log.voters.entries()) and quorum.state.log.start.offset == 0:
                written.append(str(len(written)))
                await quorum.append([setting(written[-1], "x" * 100)])
            first = quorum.state.log.start.offset
            snapshot = quorum.state.log.snapshot
            assert snapshot is not None
            assert snapshot.id.offset > first > 0
            await quorum.append([setting("tail")])
            again = await opened(disk, syncs)
            assert names(again) == [*written, "tail"]
            assert again.state.voters == quorum.state.voters
            files = [entry.name for entry in disk.scan("/data/__cluster_metadata-0")]
            assert not [name for name in files if name.endswith(".part")]

        run(story)

    def test_the_interval_counts_only_when_something_was_committed(self) -> None:
        async def story() -> None:
            syncs, disk = Syncs(), SimDisk()
            quorum = await opened(
                disk, syncs, settings={"metadata.log.max.snapshot.interval.ms": "1000"}
            )
            assert quorum.state.log.snapshot is None
            await quorum.append([setting("a")])
            for _ in range(3):
                quorum._clock.advance(1001)  # type: ignore[attr-defined]
                quorum._driver.on_timer()
                await asyncio.sleep(0)
                assert quorum.state.log.snapshot.id.offset == HEAD + 1  # type: ignore[attr-defined]
            assert syncs.count == 4  # the vote, two flushes, one snapshot

        run(story)

    def test_a_log_without_its_snapshot_is_refused(self) -> None:
        async def story() -> None:
            disk, syncs = SimDisk(), Syncs()
            settings = {**SNAPSHOT_OFTEN, "metadata.log.segment.bytes": str(8 << 20)}
            quorum = await opened(disk, syncs, settings=settings)
            await quorum.append([setting("a", "x" * 2000)])
            await asyncio.sleep(0)
            snapshot = quorum.state.log.snapshot
            assert snapshot is not None
            quorum._files.log.truncate_fully_and_start_at(snapshot.id.offset)
            disk.remove(f"/data/__cluster_metadata-0/{checkpoint_name(snapshot.id)}")
            with pytest.raises(
                LogDirConfigError, match="snapshot of the records before that offset is missing"
            ):
                await opened(disk, syncs)

        run(story)

    @pytest.mark.parametrize("seed", range(40))
    def test_power_failures_lose_nothing_that_was_committed(self, seed: int) -> None:
        async def story() -> None:
            rng = Random(seed)
            disk = SimDisk()
            committed: list[Any] = []
            for _ in range(3):
                syncs = Syncs()
                quorum = await opened(disk, syncs, settings=SNAPSHOT_OFTEN)
                assert names(quorum)[: len(committed)] == committed
                committed = names(quorum)
                for _ in range(rng.randint(0, 40)):
                    name = f"n{len(committed)}"
                    await quorum.append([setting(name, "x" * rng.randint(0, 300))])
                    committed.append(name)
                syncs.held = []
                for i in range(rng.randint(0, 4)):
                    quorum.append([setting(f"u{i}-{rng.random()}")])
                quorum.stop()
                disk.crash(rng)

        run(story)


@pytest.mark.java
def test_apache_kafka_reads_log_and_snapshot(tmp_path: Path) -> None:
    """The records, the control records and the snapshot, with DumpLogSegments."""

    async def story() -> None:
        quorum = await opened(RealDisk(), Syncs(), tmp_path, SNAPSHOT_OFTEN)
        feature = FeatureLevelRecord("metadata.version", 30)
        records: list[MetadataRecord] = [feature, topic(0), topic(1)]
        await quorum.append(records)
        await quorum.append([setting("a", "x" * 1000)])
        await until(lambda: quorum.state.log.snapshot is not None)

    run(story)
    directory = tmp_path / "__cluster_metadata-0"
    log = dump(directory / "00000000000000000000.log")
    assert "LeaderChange" in log
    assert types(log)[-4:] == ["FEATURE_LEVEL_RECORD", *["TOPIC_RECORD"] * 2, "CONFIG_RECORD"]
    (snapshot,) = [p for p in directory.glob("*.checkpoint") if not p.name.startswith("0" * 20)]
    text = dump(snapshot)
    assert re.search("SnapshotHeader.*lastContainedLogTimestamp", text)
    assert re.search('KRaftVoters.*"voterId":1', text)
    assert "SnapshotFooter" in text
    assert types(text) == [
        "FEATURE_LEVEL_RECORD", "TOPIC_RECORD", "TOPIC_RECORD", "CONFIG_RECORD",
    ]  # fmt: skip
    assert "isvalid: false" not in log + text


def dump(file: Path) -> str:
    return harness.kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments",
        "--cluster-metadata-decoder",
        "--files",
        str(file),
    ).stdout


def types(text: str) -> list[str]:
    payloads = [json.loads(part.splitlines()[0]) for part in text.split("payload: ")[1:]]
    return [payload["type"] for payload in payloads]
