"""Work on old data: compaction, and a reader far behind while others write.

Compaction: each key is written many times, then the topic is set to compact; the clock stops when
the segments on disk are as small as they can get. Only the newest value of each key may be left.
Both engines look for work every 200 ms instead of every 15 s, so that the cleaning is measured and
not the wait for it.

Catch-up: old segments, out of the page cache, are read as fast as they come, while a producer
writes 500 records per second to another topic; the read rate and the writer's p99 count.
"""

from __future__ import annotations

import struct
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from odradek_bench import load, raw, raw_load, verify
from odradek_bench.case import Bench, Case, Metric, Sample
from odradek_bench.cases.bulk import RAW_BATCH_RECORDS, fill, push_out_of_page_cache
from odradek_bench.engines import Servers
from odradek_bench.stats import quantile
from odradek_bench.usage import MB, Meter, rss_bytes
from odradek_bench.verify import StalledError, WrongAnswerError

KEYS = 1_000
VALUE_BYTES = 1024
BATCH_RECORDS = 100
SEGMENT_BYTES = 4 << 20
CLEANED_DEADLINE_S = 120.0


def compaction(bench: Bench, engine: str) -> Sample:
    rounds = bench.size(full=200, smoke=20)  # how often each key is written
    with bench.own(engine, {"log.cleaner.backoff.ms": "200"}) as servers:
        address = servers.bootstrap
        load.create_topic(address, "compact", config={
            "segment.bytes": str(SEGMENT_BYTES), "cleanup.policy": "delete",
            "min.cleanable.dirty.ratio": "0.01",
        })  # fmt: skip
        keys = [b"key-%06d" % number for number in range(KEYS)]
        _write_keys(address, keys, rounds)
        dirty_bytes = _bytes_on_disk(servers)
        with Meter(servers.pids) as meter:
            _set_policy(address, "compact")
            _wait_until_compact(servers)
        rss_mb = rss_bytes(servers.pids) / MB
        _check_newest(address, keys, rounds)
    gigabytes = dirty_bytes / 1e9
    return {
        "MB/s": dirty_bytes / MB / meter.wall_s,
        "broker CPU s/GB": meter.cpu_s / gigabytes,
        "RSS MB": rss_mb,
    }


def _write_keys(address: str, keys: list[bytes], rounds: int) -> None:
    filler = bytes(VALUE_BYTES - 4)
    answer = raw.ProduceAnswer("compact")
    with raw.Connection(address) as connection:
        for number in range(rounds):
            values = [struct.pack(">i", number) + filler] * BATCH_RECORDS
            now_ms = int(time.time() * 1000)
            for at in range(0, KEYS, BATCH_RECORDS):
                records = raw.batch(values, keys[at : at + BATCH_RECORDS], now_ms)
                answer.base_offset(connection.ask(raw.produce_request("compact", 0, records)))


def _bytes_on_disk(servers: Servers) -> int:
    total = 0
    for path in servers.log_files("compact"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue  # deleted between the listing and the stat
    return total


def _set_policy(address: str, policy: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 2})
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", "compact", incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30.0)


def _wait_until_compact(servers: Servers) -> None:
    """One value per key in the cleaned part, the active segment, and half a segment of slack."""
    small_enough = KEYS * (VALUE_BYTES + 64) + SEGMENT_BYTES * 3 // 2
    give_up = time.monotonic() + CLEANED_DEADLINE_S
    while (left := _bytes_on_disk(servers)) > small_enough:
        if time.monotonic() > give_up:
            raise StalledError(f"compaction: {left / MB:.0f} MB are left after 120 s")
        time.sleep(0.01)


def _check_newest(address: str, keys: list[bytes], rounds: int) -> None:
    """Reads the compacted topic: every key is there, and its last value is the newest one."""
    newest: dict[bytes, int] = {}
    offset = 0
    with raw.Connection(address) as connection:
        while True:
            request = raw.fetch_request(
                "compact", 0, offset, max_bytes=raw_load.FETCH_BYTES_MAX, max_wait_ms=0
            )
            found = raw.fetched(connection.ask(request), "compact")
            for batch in raw.batches(found.records):
                for key, value in raw.records(batch):
                    newest[key] = struct.unpack_from(">i", value)[0]
                offset = batch.last_offset + 1
            if offset >= found.high_watermark:
                break
    wrong = [key for key in keys if newest.get(key) != rounds - 1]
    if wrong or len(newest) != len(keys):
        raise WrongAnswerError(f"compaction: {len(wrong)} keys lost their newest value")


def catch_up(bench: Bench, engine: str) -> Sample:
    servers = bench.server(engine)
    with bench.topic(servers) as old, bench.topic(servers) as live:
        _, requests, _ = fill(bench, servers, old, bench.size(full=300, smoke=20) * 1_000_000)
        push_out_of_page_cache(servers, old)
        seconds = 0.5 if bench.small else 3.0
        context = get_context("spawn")
        receiver, sender = context.Pipe(duplex=False)
        writer = context.Process(
            target=_write_live, args=(servers.bootstrap, live, seconds, sender)
        )
        writer.start()
        receiver.recv()  # "begin": the child is up and about to send
        read = 0
        with Meter(servers.pids) as meter:
            read = raw_load.fetch_all(servers.bootstrap, old, requests * RAW_BATCH_RECORDS)
        ack_ms = receiver.recv()
        writer.join()
        if isinstance(ack_ms, str):
            raise WrongAnswerError(ack_ms)
        found = load.read_back(servers.bootstrap, live, 1, len(ack_ms))
        verify.check(verify.expected(_live_pool(), len(ack_ms)), found, live)
        return {**meter.bulk(read), "writer p99 ms": quantile(ack_ms, 0.99)}


def _live_pool() -> list[bytes]:
    return verify.payloads(1, 1024, 1)


def _write_live(address: str, topic: str, seconds: float, sender: Connection) -> None:
    """In a process of its own: the reader's CPU time must not delay the writer."""
    sender.send("begin")
    try:
        seen = raw_load.paced(
            address, topic, raw.batch(_live_pool()), 1, raw_load.Schedule(500.0, seconds)
        )
        sender.send(seen.ack_ms)
    except (OSError, StalledError, WrongAnswerError) as error:
        sender.send(str(error))


CASES = (
    Case("compaction", "compaction, 1,000 keys of 1 KB", compaction,
         (Metric("MB/s", "more"), Metric("broker CPU s/GB", "less"), Metric("RSS MB", "less")),
         rounds=3, servers="own"),
    Case("catch-up", "old data read while others write", catch_up,
         (Metric("MB/s", "more"), Metric("writer p99 ms", "less"),
          Metric("broker CPU s/GB", "less"), Metric("RSS MB", "less")),
         rounds=3, limit="limit-read"),
)  # fmt: skip
