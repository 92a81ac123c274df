"""A local cluster of four brokers whose data is all on two of them, for tests of rebalancing.

    with skewed_cluster(tmp_path, engine) as local:
        seen, proposal = propose(client)
        assert deviation(seen) > 0.9

The topic "orders" is for a Load, which reads all of it; "ballast" only takes space.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek_operator.admin.balance import observe
from odradek_operator.kafka.balance import make
from odradek_operator.kafka.balance.document import Proposal
from odradek_operator.kafka.balance.execution import FOLLOWER_RATE, LEADER_REPLICAS
from odradek_operator.kafka.balance.loads import Seen
from odradek_protocol.client import ClientError, KafkaClient
from odradek_protocol.client.admin.configs import ResourceType, describe_configs
from odradek_testkit.engines import kafka_jars
from odradek_testkit.load import Load
from operator_tests.local.local import Local

DEADLINE_S = 120.0
PARTITIONS = 12
BROKERS = (0, 1, 2, 3)
ENGINES = [
    "embedded",
    # long: four JVMs on two cores
    pytest.param("apache", marks=[pytest.mark.long, pytest.mark.java]),
]


@contextmanager
def skewed_cluster(directory: Path, engine: str = "embedded") -> Iterator[Local]:
    with pytest.MonkeyPatch.context() as environment:
        if engine == "apache":
            environment.setenv("ODRADEK_KAFKA_JARS", str(kafka_jars()))
        with Local(directory, brokers=len(BROKERS), engine=engine) as local:
            local.settle(240)
            create_topics(local.bootstrap)
            fill(local.bootstrap)
            yield local


def create_topics(bootstrap: str) -> None:
    _create(bootstrap, "orders", {"min.insync.replicas": "1"})
    _create(bootstrap, "ballast", {})


def _create(bootstrap: str, name: str, config: dict[str, str]) -> None:
    """With two replicas of each partition, all on brokers 0 and 1."""
    new = NewTopic(
        name,
        num_partitions=PARTITIONS,
        replica_assignment=[[p % 2, 1 - p % 2] for p in range(PARTITIONS)],
        config=config,
    )
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    admin.create_topics([new])[name].result(DEADLINE_S)


def fill(bootstrap: str) -> None:
    """A megabyte in each partition of the ballast."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2, "acks": "all"})
    for number in range(PARTITIONS * 10):
        producer.produce("ballast", os.urandom(100_000), partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0


def deviation(seen: Seen) -> float:
    """The standard deviation of bytes per broker, relative to the mean."""
    used = dict.fromkeys(BROKERS, 0.0)
    for replica in seen.placed:
        used[replica.broker] += replica.size_bytes
    return statistics.pstdev(used.values()) / statistics.mean(used.values())


def propose(client: KafkaClient, throttle: float = 50e6) -> tuple[Seen, Proposal]:
    seen = observe(client, sample_s=0.5)
    return seen, make.propose(make.Wish(throttle=throttle), seen.brokers, seen.partitions)


def throttled(client: KafkaClient, brokers: Sequence[int] = BROKERS) -> list[str]:
    """Settings of a throttle that brokers or topics have."""
    names = {FOLLOWER_RATE, LEADER_REPLICAS}
    found = []
    for kind, resources in (
        (ResourceType.BROKER, [str(b) for b in brokers]),
        (ResourceType.TOPIC, ["orders", "ballast"]),
    ):
        for name, answer in describe_configs(client, kind, resources, names).items():
            assert not isinstance(answer, ClientError)
            found += [f"{name}: {e.name}={e.value}" for e in answer.values() if e.value]
    return found


def acknowledgements(load: Load) -> str:
    """Their number and latency, for the line that a test prints."""
    took = sorted(w.done_at_s - w.sent_at_s for w in load.history.acked())
    return f"{len(took)} acknowledged, p99 {1000 * took[len(took) * 99 // 100]:.0f} ms, 0 lost"
