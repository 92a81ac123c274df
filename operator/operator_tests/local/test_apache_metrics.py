"""Apache Kafka's numbers for Prometheus: on the port of our own broker's, under the same names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from confluent_kafka import Producer
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from odradek_testkit.engines import kafka_jars
from operator_tests.local.local import KEY, Local

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

TOPIC = "orders.eu-1"  # dots and dashes stay as they are
# With the labels that both give; docs/reference/metrics.md says which of ours Apache Kafka has not.
SHARED = {
    "kafka_network_requestmetrics_requests": {"request", "version"},
    "kafka_network_requestmetrics_totaltimems": {"request", "quantile"},
    "kafka_network_requestmetrics_requestqueuetimems": {"request", "quantile"},
    "kafka_network_requestmetrics_localtimems": {"request", "quantile"},
    "kafka_network_requestmetrics_remotetimems": {"request", "quantile"},
    "kafka_network_requestmetrics_responsequeuetimems": {"request", "quantile"},
    "kafka_network_requestmetrics_responsesendtimems": {"request", "quantile"},
    "kafka_server_brokertopicmetrics_messagesin": {"topic"},
    "kafka_server_brokertopicmetrics_bytesin": {"topic"},
    "kafka_server_brokertopicmetrics_totalproducerequests": {"topic"},
    "kafka_log_log_size": {"topic", "partition"},
    "kafka_log_log_logstartoffset": {"topic", "partition"},
    "kafka_log_log_logendoffset": {"topic", "partition"},
    "kafka_log_log_numlogsegments": {"topic", "partition"},
    "kafka_topic_partition_under_replicated_partition": {"topic", "partition"},
    "kafka_server_delayedoperationpurgatory_purgatorysize": {"delayedOperation"},
    "kafka_server_replicamanager_partitioncount": set(),
    "kafka_server_replicamanager_leadercount": set(),
    "kafka_server_replicamanager_underreplicatedpartitions": set(),
    "kafka_server_replicamanager_underminisrpartitioncount": set(),
    "kafka_server_replicamanager_isrexpands": set(),
    "kafka_server_replicamanager_isrshrinks": set(),
    "kafka_server_replicafetchermanager_maxlag": set(),
    "kafka_server_socket_server_metrics_connection_count": set(),
    "kafka_log_logmanager_offlinelogdirectorycount": set(),
    "kafka_log_logcleaner_max_clean_time_secs": set(),
    "kafka_log_logcleaner_deadthreadcount": set(),
    "kafka_log_logcleanermanager_max_dirty_percent": set(),
    "kafka_log_logcleanermanager_uncleanable_bytes": {"logDirectory"},
    "kafka_server_replicamanager_atminisrpartitioncount": set(),
    "kafka_server_replicamanager_offlinereplicacount": set(),
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent": set(),
    "kafka_controller_kafkacontroller_activecontrollercount": set(),
    "kafka_controller_kafkacontroller_activebrokercount": set(),
    "kafka_controller_kafkacontroller_fencedbrokercount": set(),
    "kafka_controller_kafkacontroller_globalpartitioncount": set(),
    "kafka_controller_kafkacontroller_offlinepartitionscount": set(),
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount": set(),
    "kafka_controller_controllerstats_uncleanleaderelections": set(),
    "kafka_server_raftmetrics_current_epoch": set(),
    "kafka_server_raftmetrics_current_leader": set(),
    "kafka_server_raftmetrics_high_watermark": set(),
    "kafka_server_raftmetrics_log_end_offset": set(),
    "kafka_server_group_coordinator_metrics_group_count": {"protocol"},
    "kafka_server_group_coordinator_metrics_consumer_group_count": {"state"},
    "kafka_server_group_coordinator_metrics_num_partitions": {"state"},
    "kafka_coordinator_group_groupmetadatamanager_numgroups": set(),
    "process_resident_memory_bytes": set(),
    "process_cpu_seconds": set(),
    "process_open_fds": set(),
}


@pytest.fixture(params=["embedded", "apache"])
def local(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Local]:
    monkeypatch.setenv("ODRADEK_KAFKA_JARS", str(kafka_jars()))
    with Local(tmp_path, brokers=1, engine=request.param) as found:
        found.topic("orders", partitions=2)
        found.topics["orders"]["name"] = TOPIC
        found.settle(240)
        yield found


def test_the_same_port_names_and_numbers(local: Local) -> None:
    before = value(scrape(local), "kafka_server_brokertopicmetrics_messagesin")
    produce(local, 120)
    after = scrape(local)
    assert before == 0
    assert value(after, "kafka_server_brokertopicmetrics_messagesin") == 120
    assert value(after, "kafka_log_log_logendoffset") == 120
    produce(local, 30)
    after = scrape(local)
    assert value(after, "kafka_server_brokertopicmetrics_messagesin") == 150
    assert value(after, "kafka_log_log_logendoffset") == 150
    assert value(after, "kafka_server_brokertopicmetrics_bytesin") > 150
    assert value(after, "kafka_controller_kafkacontroller_activecontrollercount", topic="") == 1
    wanted = value(after, "kafka_server_brokertopicmetrics_totalproducerequests")
    local.wait_until(lambda: produced(scrape(local)) == wanted)  # counted when the answer is sent
    for name, labels in SHARED.items():
        assert name in after, name
        assert all(labels <= set(one.labels) for one in after[name].samples), after[name]
    states = after["kafka_server_group_coordinator_metrics_consumer_group_count"].samples
    assert "Reconciling" in {one.labels["state"] for one in states}
    assert "0.5" in {
        one.labels["quantile"] for one in after["kafka_network_requestmetrics_totaltimems"].samples
    }


def scrape(local: Local) -> dict[str, Metric]:
    """Broker 0's metrics as Prometheus reads them: metric name → its samples."""
    port = local.runtime.clusters[KEY].platform.ledger.brokers[0].admin_port
    answer = httpx2.get(f"http://127.0.0.1:{port}/metrics", timeout=30.0)
    assert answer.status_code == 200
    return {family.name: family for family in text_string_to_metric_families(answer.text)}


def value(found: dict[str, Metric], name: str, topic: str = TOPIC) -> float:
    """The sum over the topic's partitions; 0 if it was never counted."""
    samples = found[name].samples if name in found else []
    return sum(s.value for s in samples if s.labels.get("topic", "") == topic)


def produced(found: dict[str, Metric]) -> float:
    """Requests; librdkafka makes one per partition and batch."""
    samples = found["kafka_network_requestmetrics_requests"].samples
    return sum(one.value for one in samples if one.labels["request"] == "Produce")


def produce(local: Local, count: int) -> None:
    producer = Producer({"bootstrap.servers": local.bootstrap})
    for number in range(count):
        producer.produce(TOPIC, str(number), partition=number % 2)
    assert producer.flush(60) == 0
