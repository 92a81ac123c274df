"""odradek.testing.containers on a real container engine: that of the kind cluster, with our image.

No Kubernetes takes part; the story needs the engine that `make kind-up` starts or finds.
"""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Consumer, Producer

from odradek.testing.containers import ContainerError, KafkaContainer
from odradek_e2e.kind import engine as engines
from odradek_images.build import build
from odradek_images.table import BROKER, version
from odradek_protocol.client import KafkaClient

IMAGE = f"{BROKER.repository}:{version()}"
RECORDS = 100


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> engines.ContainerEngine:
    """It has our image, and `docker` in this process is its command."""
    found = engines.find()
    with open(build(BROKER), "rb") as archive:
        found.docker("load", stdin=archive)
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    return found


def container(**config: str) -> KafkaContainer:
    # The private engine has no default bridge, only the network of the nodes.
    names = {name.replace("_", "."): value for name, value in config.items()}
    return KafkaContainer(IMAGE, config=names, flags=[f"--network={engines.NETWORK}"])


def test_the_image_is_a_kafka_for_a_test(engine: engines.ContainerEngine) -> None:
    with container(num_partitions="3") as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all"})
        for number in range(RECORDS):
            producer.produce("orders", f"{number}")
        assert producer.flush(60) == 0
        with KafkaClient(kafka.bootstrap) as client:
            metadata = client.metadata(["orders"])
            assert len(metadata.topics["orders"].partitions) == 3
            assert str(metadata.brokers[1].address) == kafka.bootstrap
        settings = {"group.id": "a-test", "auto.offset.reset": "earliest"}
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap, **settings})
        consumer.subscribe(["orders"])
        read: set[int] = set()
        while len(read) < RECORDS:
            for message in consumer.consume(RECORDS, timeout=10):
                assert message.error() is None
                read.add(int(message.value() or b"-1"))
        consumer.close()
        assert read == set(range(RECORDS))
        assert "registered with broker epoch" in kafka.log()
        (described,) = json.loads(engine.docker("inspect", kafka.id))
        assert described["Config"]["User"] not in ("", "0", "root")
        name = kafka.id
    assert name not in engine.docker("ps", "--all", "--quiet", "--no-trunc").split()


def test_a_broker_that_cannot_start_is_refused_with_its_log(
    engine: engines.ContainerEngine,
) -> None:
    before = engine.docker("ps", "--all", "--quiet")
    with pytest.raises(ContainerError, match=r"log\.retention\.ms"):
        container(log_retention_ms="soon").start()
    assert engine.docker("ps", "--all", "--quiet") == before


def test_an_unknown_image_is_one_clear_error(engine: engines.ContainerEngine) -> None:
    with pytest.raises(ContainerError, match="docker run"):
        KafkaContainer("odradek/no-such-image:0", flags=["--pull=never"]).start()
