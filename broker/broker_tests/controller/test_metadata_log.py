"""The metadata log of a single node: what was appended is read back, and fsyncs are shared."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from broker_tests import harness
from odradek_broker.controller.metadata_log import (
    READ_BYTES,
    LocalMetadataLog,
    open_metadata_log,
)
from odradek_broker.metadata.records import ConfigRecord, NoOpRecord, ResourceType, TopicRecord
from odradek_broker.runtime.clock import ManualClock
from odradek_broker.runtime.disk import Disk, RealDisk
from odradek_broker.runtime.settings import Settings
from odradek_broker.runtime.sim_disk import SimDisk


class Syncs:
    """Runs a sync when the test lets it, and counts them."""

    def __init__(self) -> None:
        self.count = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def run(self, function: Callable[[], None]) -> None:
        self.count += 1
        await self.gate.wait()
        function()


def opened(disk: Disk, syncs: Syncs, directory: Path = Path("/data")) -> LocalMetadataLog:
    clock = ManualClock()
    log = open_metadata_log(directory, disk, Settings(), clock.now_ms())
    return LocalMetadataLog(log, clock, syncs.run)


def topic(index: int) -> TopicRecord:
    return TopicRecord(f"t{index}", UUID(int=index))


def test_read_back_with_offsets_and_a_new_epoch():
    async def story():
        disk, syncs = SimDisk(), Syncs()
        log = opened(disk, syncs)
        assert (log.epoch, log.next_offset, list(log.read_all())) == (1, 0, [])
        await log.append([topic(0), topic(1)])
        await log.append([topic(2)])
        again = opened(disk, syncs)
        assert [(entry.offset, entry.record) for entry in again.read_all()] == [
            (0, topic(0)),
            (1, topic(1)),
            (2, topic(2)),
        ]
        assert (again.epoch, again.next_offset) == (2, 3)

    asyncio.run(story())


def test_more_than_one_read_and_batches_across_their_border():
    async def story():
        disk, syncs = SimDisk(), Syncs()
        log = opened(disk, syncs)
        value = "x" * 40_000
        count = 3 * READ_BYTES // len(value)
        for index in range(count):
            await log.append([ConfigRecord(ResourceType.TOPIC, "t", str(index), value)])
        found = [entry.record.name for entry in opened(disk, syncs).read_all()]
        assert found == [str(index) for index in range(count)]

    asyncio.run(story())


def test_appends_that_wait_together_share_one_sync():
    """1. the first append syncs; 2. three more arrive meanwhile; 3. one sync does for them."""

    async def story():
        syncs = Syncs()
        log = opened(SimDisk(), syncs)
        syncs.gate.clear()
        waiting = [asyncio.ensure_future(log.append([NoOpRecord()]))]
        await asyncio.sleep(0)
        waiting += [asyncio.ensure_future(log.append([NoOpRecord()])) for _ in range(3)]
        await asyncio.sleep(0)
        assert syncs.count == 1
        assert not any(task.done() for task in waiting)
        syncs.gate.set()
        await asyncio.gather(*waiting)
        assert syncs.count == 2

    asyncio.run(story())


@pytest.mark.java
def test_apache_kafka_reads_the_log(tmp_path):
    async def story():
        log = opened(RealDisk(), Syncs(), tmp_path)
        await log.append([topic(0), topic(1)])
        await log.append([ConfigRecord(ResourceType.TOPIC, "t0", "retention.ms", "5")])

    asyncio.run(story())
    segment = tmp_path / "__cluster_metadata-0" / "00000000000000000000.log"
    out = harness.kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments",
        "--cluster-metadata-decoder",
        "--files",
        str(segment),
    ).stdout
    payloads = [json.loads(part.splitlines()[0]) for part in out.split("payload: ")[1:]]
    assert [p["type"] for p in payloads] == ["TOPIC_RECORD", "TOPIC_RECORD", "CONFIG_RECORD"]
    assert payloads[2]["data"] == {
        "resourceType": 2,
        "resourceName": "t0",
        "name": "retention.ms",
        "value": "5",
    }
    assert out.count("isvalid: true") == 2
