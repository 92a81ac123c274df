"""Much data through few connections: produce and consume, with librdkafka and over plain sockets.

librdkafka sends with its defaults (batches up to 1 MB, linger 5 ms, no compression). The raw cases
send batches of 64 KB with five requests in flight, and fetch up to 1 MB per request. After each
round everything is read back and compared with what was sent. `cold` means that the segments were
pushed out of the page cache before the clock started, `hot` that they were just written.
"""

from __future__ import annotations

import os
from functools import partial

from odradek_bench import load, raw, raw_load, verify
from odradek_bench.case import BULK, Bench, Case, Sample
from odradek_bench.engines import Servers
from odradek_bench.usage import Meter

RAW_BATCH_RECORDS = 64
RAW_READS = 3  # reads of the same records: 1.2 GB take a second, enough for ticks of 10 ms


def produce(
    bench: Bench, engine: str, *, size: int, acks: str, partitions: int, tls: bool = False
) -> Sample:
    servers = bench.server(engine, tls=tls)
    count = bench.size(full=300_000 if size > 500 else 600_000, smoke=20_000)
    pool = verify.payloads(bench.seed, size)
    with bench.topic(servers, partitions) as topic:
        with Meter(servers.pids) as meter:
            load.produce(servers.measured, topic, pool, count, acks=acks, partitions=partitions)
        sample = meter.bulk(count * size)
        found = load.read_back(servers.bootstrap, topic, partitions, count)
        verify.check(verify.expected(pool, count), found, topic)
    return sample


def consume(bench: Bench, engine: str, *, cold: bool, tls: bool = False) -> Sample:
    servers = bench.server(engine, tls=tls)
    size, partitions = 1024, 4
    # The records just written are read three times: the client keeps those of a reading for the
    # check, and memory that it has never had before costs it more than the broker does.
    count, readings = bench.size(full=400_000, smoke=20_000), 1
    if not cold:
        count, readings = count // 2, 3
    pool = verify.payloads(bench.seed, size)
    with bench.topic(servers, partitions) as topic:
        load.produce(servers.bootstrap, topic, pool, count, acks="1", partitions=partitions)
        if cold:
            push_out_of_page_cache(servers, topic)
        meter = Meter(servers.pids)
        for _ in range(readings):
            with meter:
                messages = load.consume(servers.measured, topic, partitions, count)
            found = verify.tally(load.values(messages))
            verify.check(verify.expected(pool, count), found, topic)
        return meter.bulk(readings * count * size)


def raw_produce(bench: Bench, engine: str, *, tls: bool = False) -> Sample:
    servers = bench.server(engine, tls=tls)
    with bench.topic(servers) as topic:
        meter, requests, pool = fill(bench, servers, topic, bench.size(400, 20) * 1_000_000)
        found = load.read_back(servers.bootstrap, topic, 1, requests * RAW_BATCH_RECORDS)
        sent = verify.tally(pool)
        verify.check(
            verify.Tally(sent.count * requests, sent.checksum * requests % 2**64), found, topic
        )
    return meter.bulk(requests * RAW_BATCH_RECORDS * 1024)


def raw_consume(bench: Bench, engine: str, *, tls: bool = False) -> Sample:
    servers = bench.server(engine, tls=tls)
    with bench.topic(servers) as topic:
        _, requests, _ = fill(bench, servers, topic, bench.size(400, 20) * 1_000_000)
        with Meter(servers.pids) as meter:  # each batch's CRC and offsets are checked inside
            for _ in range(RAW_READS):
                raw_load.fetch_all(servers.measured, topic, requests * RAW_BATCH_RECORDS)
    return meter.bulk(RAW_READS * requests * RAW_BATCH_RECORDS * 1024)


def fill(
    bench: Bench, servers: Servers, topic: str, size_bytes: int, partition: int = 0
) -> tuple[Meter, int, list[bytes]]:
    """Writes about that many bytes in batches of 64; the meter, the batches, their values."""
    pool = verify.payloads(bench.seed, 1024, RAW_BATCH_RECORDS)
    records = raw.batch(pool)
    requests = max(1, size_bytes // len(records))
    with Meter(servers.pids) as meter:
        offsets = raw_load.produce_pipelined(
            servers.measured, topic, records, requests, partition=partition
        )
    verify.check_offsets(offsets // RAW_BATCH_RECORDS, requests, topic)
    return meter, requests, pool


def push_out_of_page_cache(servers: Servers, topic: str) -> None:
    for path in servers.log_files(topic):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)  # dirty pages are not dropped
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


CASES = (
    *(
        Case(
            f"produce-{label}-acks-{acks}-{partitions}p",
            f"librdkafka produce, {label}, acks={acks}, {partitions} partition(s)",
            partial(produce, size=size, acks=acks, partitions=partitions),
            BULK,
            rounds=5 if (label, partitions) == ("1k", 1) else 3,  # the goals are about these
            limit="limit-write",
        )
        for label, size in (("100b", 100), ("1k", 1024))
        for acks in ("1", "all")
        for partitions in (1, 12)
    ),
    Case("consume-hot", "librdkafka consume, 1 KB, just written", partial(consume, cold=False),
         BULK, limit="limit-read", warm_rounds=2),
    Case("consume-cold", "librdkafka consume, 1 KB, not in the page cache",
         partial(consume, cold=True), BULK, limit="limit-read"),
    Case("raw-produce", "plain socket produce, 64 KB batches", raw_produce, BULK,
         limit="limit-write", warm_rounds=4),
    Case("raw-consume", "plain socket fetch, up to 1 MB per request", raw_consume, BULK,
         limit="limit-read", warm_rounds=4),
)  # fmt: skip
