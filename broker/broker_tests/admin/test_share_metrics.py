"""Share groups in /metrics of a real broker: a member takes, releases and accepts records."""

from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from odradek_protocol.client.admin.configs import (
    ConfigChange,
    ConfigOperation,
    ResourceType,
    alter_configs,
)
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.share_consumer import ShareConsumer, ShareRecord
from odradek_protocol.share_codes import AcknowledgeType
from odradek_testkit.clients import create_topic, numbered, produce, wait_until
from odradek_testkit.engines import RunningBroker

ACKNOWLEDGED = "kafka_server_sharegroupmetrics_recordacknowledgement_total"
IN_FLIGHT = "kafka_server_sharepartitionmetrics_inflightmessagecount"


def scrape(broker: RunningBroker) -> dict[tuple[str, str], float]:
    """By name, and the value of the label that tells its samples apart."""
    with urllib.request.urlopen(f"http://{broker.admin}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    told_apart = ("acktype", "group", "protocol", "state")
    return {
        (one.name, next((one.labels[x] for x in told_apart if x in one.labels), "")): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def test_records_are_counted(broker: RunningBroker, topic: str) -> None:
    create_topic(broker, topic)
    produce(broker, topic, numbered(10))
    before = scrape(broker)
    with KafkaClient(broker.bootstrap) as client:
        earliest = ConfigChange("share.auto.offset.reset", ConfigOperation.SET, "earliest")
        alter_configs(client, ResourceType.GROUP, {topic: [earliest]})
        consumer = ShareConsumer(client, topic, [topic])
        found: list[ShareRecord] = []
        while len(found) < 10:
            found += consumer.poll()
        held = scrape(broker)
        assert held[IN_FLIGHT, topic] == 10
        assert held["kafka_sharegroup_lag", topic] == 10
        assert held["kafka_server_group_coordinator_metrics_group_count", "share"] >= 1
        for number, record in enumerate(found):
            kind = AcknowledgeType.RELEASE if number < 2 else AcknowledgeType.ACCEPT
            consumer.acknowledge(record, kind)
        again: list[ShareRecord] = []
        while len(again) < 2:
            again += consumer.poll()
        wait_until(lambda: scrape(broker)["kafka_sharegroup_lag", topic] == 2)
        after = scrape(broker)
        consumer.close()

    def more(name: str, label: str = "") -> float:
        return after[name, label] - before.get((name, label), 0)

    assert more(ACKNOWLEDGED, "accept") == 8
    assert more(ACKNOWLEDGED, "release") == 2
    assert more("kafka_server_sharegroupmetrics_recordacquired_total") == 12
    assert more("kafka_server_sharegroupmetrics_recordacquiredagain_total") == 2
    assert more("kafka_server_sharesessioncache_sharesessionscount") == 1
