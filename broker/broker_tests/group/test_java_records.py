"""Apache Kafka's own decoder reads the records of our groups."""

from pathlib import Path

import pytest

from broker_tests.group.support import GROUP, Bench
from odradek_broker.coordinator.result import Producer
from odradek_testkit.engines import kafka_tool

pytestmark = pytest.mark.java

DUMP_TOOL = "org.apache.kafka.tools.DumpLogSegments"


def test_dump_log_decodes_groups_and_offsets(tmp_path: Path) -> None:
    bench = Bench()
    bench.join("me")
    member = bench.last("me").member_id
    bench.sync("me", member, 1, {member: b""})
    bench.commit("me", 5, member_id=member, generation=1)
    bench.commit("txn", 6, topic="b", producer=Producer(7, 0))
    bench.marker(Producer(7, 0), committed=True)
    bench.leave("me", member)
    folder = tmp_path / "__consumer_offsets-0"
    folder.mkdir()
    log = folder / "00000000000000000000.log"
    log.write_bytes(b"".join(bench.log.batches))
    done = kafka_tool(DUMP_TOOL, "--offsets-decoder", "--files", str(log), timeout_s=110)
    text = done.stdout.replace(" ", "")
    assert f'"group":"{GROUP}"' in text, done.stdout
    assert '"topic":"a","partition":0' in text
    assert '"offset":5' in text
    assert '"offset":6' in text
    assert '"protocolType":"consumer"' in text
    assert member in text
    assert "endTxnMarker:COMMIT" in text
