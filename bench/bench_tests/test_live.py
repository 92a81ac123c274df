"""The load clients and checks against our real broker: right answers pass, a lost record fails."""

import struct
import time
from functools import partial
from pathlib import Path

import pytest

from odradek_bench import engines, load, raw, raw_load, verify
from odradek_bench.case import Bench
from odradek_bench.cases import bulk, latency, limits, small_requests, tls
from odradek_bench.usage import cpu_s, rss_bytes, tree
from odradek_bench.verify import WrongAnswerError


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Our broker runs on the image's interpreter if the machine has it, as with `make bench`."""
    monkeypatch.setattr(engines.Odradek, "python", engines.image_python())
    made = Bench(tmp_path, smoke=True, small=True)
    yield made
    made.close()


def test_cases_run_and_verify(bench: Bench) -> None:
    for run in (bulk.raw_produce, bulk.raw_consume, latency.at_1000):
        assert min(run(bench, engines.ODRADEK).values()) >= 0
    sample = small_requests.single_records(bench, engines.ODRADEK, connections=100)
    assert sample["requests/s"] > 0
    sample = bulk.produce(bench, engines.ODRADEK, size=100, acks="all", partitions=12)
    assert sample["MB/s"] > 0


def test_the_same_over_tls(bench: Bench) -> None:
    produce = partial(bulk.produce, size=100, acks="all", partitions=12, tls=True)
    connections = partial(small_requests.single_records, connections=20, tls=True)
    paced = partial(latency.at_1000, tls=True)
    for run in (produce, connections, paced, tls.handshakes):
        assert min(run(bench, engines.ODRADEK).values()) >= 0
    assert bench.server(engines.ODRADEK, tls=True).measured.startswith("ssl://")


def test_raw_records_outlive_the_retention() -> None:
    """Apache Kafka deletes records of 1970 half a minute after its start."""
    (timestamp,) = struct.unpack_from(">q", raw.batch([b"a"]), 35)
    assert abs(timestamp - time.time() * 1000) < 60_000


def test_the_limits_run(bench: Bench) -> None:
    assert limits.write(bench, "limit")["MB/s"] > 0
    assert limits.read(bench, "limit")["MB/s"] > 0


def test_a_record_too_many_and_one_too_few_are_found(bench: Bench) -> None:
    servers = bench.server(engines.ODRADEK)
    address, pool = servers.bootstrap, verify.payloads(1, 100)
    with bench.topic(servers) as topic:
        load.produce(address, topic, pool, 1_000, acks="1", partitions=1)
        verify.check(verify.expected(pool, 1_000), load.read_back(address, topic, 1, 1_000), topic)
        with pytest.raises(WrongAnswerError, match="the log holds 1000"):
            load.read_back(address, topic, 1, 1_001)
        with pytest.raises(WrongAnswerError, match="the log holds 1000"):
            load.read_back(address, topic, 1, 999)
        raw_load.produce_pipelined(address, topic, raw.batch([b"stray"]), 1)
        found = load.read_back(address, topic, 1, 1_001)
        with pytest.raises(WrongAnswerError, match="checksum differs"):
            verify.check(verify.expected(pool, 1_001), found, topic)


def test_usage_is_that_of_the_server(bench: Bench) -> None:
    servers = bench.server(engines.ODRADEK)
    assert tree(servers.pids[0])[0].pid == servers.only.pid
    assert cpu_s(servers.pids) > 0
    assert 10e6 < rss_bytes(servers.pids) < 500e6
