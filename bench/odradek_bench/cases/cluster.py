"""Three brokers on this machine: replicated bulk produce, and the loss of a leader.

`cluster-rf3`: librdkafka, 1 KB, acks=all, replication factor 3, min.insync.replicas 2, 12
partitions. `failover`: one record every 10 ms to one partition, acks=all; its leader is killed
with -9, and the longest time without an acknowledgement counts, with the defaults of both engines
(session timeout 9 s). Every acknowledged record must be there afterwards.

`brokers-1/2/3`: the same bulk load without replication over 1, 2 and 3 brokers of a cluster: one
of our brokers uses one core, so more brokers use more cores.
"""

from __future__ import annotations

import time
from functools import partial
from itertools import pairwise

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek_bench import load, verify
from odradek_bench.case import BULK, Bench, Case, Metric, Sample
from odradek_bench.engines import Servers
from odradek_bench.usage import Meter
from odradek_bench.verify import StalledError, WrongAnswerError

SIZE = 1024
PARTITIONS = 12
PACE_S = 0.01
FAILOVER_DEADLINE_S = 60.0


def replicated(bench: Bench, engine: str) -> Sample:
    servers = bench.cluster(engine)
    with bench.topic(servers, PARTITIONS, 3, min_insync_replicas="2") as topic:
        return _produce(bench, servers, topic, "all")


def spread(bench: Bench, engine: str, *, brokers: int) -> Sample:
    """Leaders on the first `brokers` members only, no replication."""
    servers = bench.cluster(engine)
    topic = f"spread-{bench.new_directory(engine).name}"
    placed = [[1 + index % brokers] for index in range(PARTITIONS)]
    admin = AdminClient({"bootstrap.servers": servers.bootstrap, "log_level": 2})
    new = NewTopic(
        topic, PARTITIONS, replica_assignment=placed, config={"min.insync.replicas": "1"}
    )
    admin.create_topics([new])[topic].result(30.0)
    load.wait_until_led(servers.bootstrap, topic, PARTITIONS)
    try:
        return _produce(bench, servers, topic, "1")
    finally:
        load.delete_topic(servers.bootstrap, topic)


def _produce(bench: Bench, servers: Servers, topic: str, acks: str) -> Sample:
    count = bench.size(full=200_000, smoke=10_000)
    pool = verify.payloads(bench.seed, SIZE)
    with Meter(servers.pids) as meter:
        load.produce(servers.bootstrap, topic, pool, count, acks=acks, partitions=PARTITIONS)
    sample = meter.bulk(count * SIZE)
    found = load.read_back(servers.bootstrap, topic, PARTITIONS, count)
    verify.check(verify.expected(pool, count), found, topic)
    return sample


def failover(bench: Bench, engine: str) -> Sample:
    servers = bench.cluster(engine)
    with bench.topic(servers, 1, 3, min_insync_replicas="2") as topic:
        admin = AdminClient({"bootstrap.servers": servers.bootstrap, "log_level": 2})
        leader = admin.list_topics(topic, timeout=30.0).topics[topic].partitions[0].leader
        victim = servers.members[leader - 1]
        trickle = Trickle(servers.bootstrap, topic)
        try:
            trickle.run_until(trickle.acked_count() + 50)
            killed_at = time.perf_counter()
            victim.kill()
            trickle.run_until(trickle.acked_count() + 50)
        finally:
            trickle.finish()
            victim.start()
        load.wait_until_led(servers.bootstrap, topic, 1)
        messages = load.consume(servers.bootstrap, topic, 1, len(trickle.acked))
        present = set(load.values(messages))
        if lost := [key for key in trickle.acked if key not in present]:
            raise WrongAnswerError(f"failover: {len(lost)} acknowledged records are lost")
        return {"s without acks": trickle.longest_gap_s(killed_at)}


class Trickle:
    """One record every 10 ms, and when each was acknowledged."""

    def __init__(self, address: str, topic: str) -> None:
        self.topic = topic
        self.acked: dict[bytes, float] = {}
        self._sent = 0
        self._producer = Producer(
            {
                "bootstrap.servers": address, "acks": "all", "linger.ms": 0,
                "enable.idempotence": True, "retry.backoff.ms": 50,
                "reconnect.backoff.max.ms": 200, "topic.metadata.refresh.interval.ms": 500,
                "log_level": 2,
            }
        )  # fmt: skip

    def acked_count(self) -> int:
        return len(self.acked)

    def run_until(self, wanted: int) -> None:
        give_up = time.perf_counter() + FAILOVER_DEADLINE_S
        due = time.perf_counter()
        while len(self.acked) < wanted:
            self._producer.produce(self.topic, b"%d" % self._sent, on_delivery=self._delivered)
            self._sent += 1
            due += PACE_S
            while (left := due - time.perf_counter()) > 0:
                self._producer.poll(left)
            if time.perf_counter() > give_up:
                raise StalledError(f"failover: no acks within {FAILOVER_DEADLINE_S:.0f} s")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            value = message.value()
            assert isinstance(value, bytes)
            self.acked[value] = time.perf_counter()

    def finish(self) -> None:
        self._producer.flush(FAILOVER_DEADLINE_S)

    def longest_gap_s(self, since: float) -> float:
        times = [since, *sorted(at for at in self.acked.values() if at > since)]
        return max(after - before for before, after in pairwise(times))


CASES = (
    Case("cluster-rf3", "3 brokers, RF 3, acks=all, 1 KB, 12 partitions", replicated, BULK,
         servers="cluster", limit="limit-write"),
    *(
        Case(f"brokers-{n}", f"12 partitions over {n} of 3 brokers, RF 1",
             partial(spread, brokers=n), BULK, rounds=3, servers="cluster", limit="limit-write")
        for n in (1, 2, 3)
    ),
    Case("failover", "kill -9 of a leader, defaults", failover,
         (Metric("s without acks", "less"),), rounds=2, servers="cluster", budget_s=150.0,
         warm_up=False),
)  # fmt: skip
