"""The chart's alerts and dashboards with clusters of both engines and a real Prometheus.

Every query of every dashboard returns data under load; no alert fires then; staged faults fire
their alerts. In the rules used here an alert fires without the time that it otherwise waits for.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Consumer, Producer

from odradek_e2e.chart import CHART
from odradek_e2e.monitoring.dashboards import OF_CLUSTERS, OURS
from odradek_testkit.engines import kafka_jars
from odradek_testkit.prometheus import Prometheus
from odradek_testkit.waiting import wait_until
from operator_tests.local.local import KEY, Local

# Long: needs Prometheus from Debian's packages, and waits for several of its scrapes.
pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(600)]

RULES = CHART / "files" / "prometheus" / "rules.yaml"
# Their windows are longer than a test: promtool proves them (e2e_tests/test_monitoring_rules.py).
SLOW_WINDOWS = {"KafkaDiskFillsUp", "KafkaConsumerLagGrows"}


def rules_without_waiting() -> str:
    rules = yaml.safe_load(RULES.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("for", None)
    return yaml.safe_dump(rules)


def concrete(query: str) -> str:
    """As Grafana sends it when all clusters are selected."""
    query = re.sub(r"\$(namespace|cluster)", ".*", query)
    return query.replace("$__rate_interval", "10s").replace("[5m]", "[10s]")


@pytest.fixture(params=["embedded", "apache"])
def local(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Local]:
    monkeypatch.setenv("ODRADEK_KAFKA_JARS", str(kafka_jars()))
    with Local(tmp_path, brokers=3, engine=request.param) as found:
        found.topic("orders", partitions=6, replicationFactor=3)
        found.settle(240)
        yield found


class Traffic:
    """Writes to a topic and reads it in a group, until the end of the block."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._stop = threading.Event()
        quiet = {"bootstrap.servers": bootstrap, "log_level": 0, "error_cb": lambda _: None}
        self._producer = Producer(quiet | {"acks": "all"})
        self._consumer = Consumer(quiet | {
            "group.id": "readers", "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 500,
        })  # fmt: skip
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self._consumer.subscribe([self._topic])
        while not self._stop.is_set():
            for number in range(10):
                self._producer.produce(self._topic, b"x" * 100, key=str(number))
            self._producer.poll(0)
            self._consumer.consume(100, 0.1)
        self._consumer.close()

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.purge()


def test_dashboards_show_data_and_alerts_fire(local: Local, tmp_path: Path) -> None:
    brokers = local.runtime.clusters[KEY].platform.ledger.brokers
    targets = [f"127.0.0.1:{one.admin_port}" for one in brokers.values()]
    embedded = local.spec["engine"] == "embedded"
    with (
        Prometheus(tmp_path / "prometheus", targets, rules_without_waiting()) as prometheus,
        Traffic(local.bootstrap, "orders"),
    ):
        silent = [
            (dashboard.name, panel.title, query.text)
            for dashboard in OF_CLUSTERS
            for panel in dashboard.panels
            for query in panel.queries
            if embedded or OURS not in panel.help
        ]

        def all_show_data() -> bool:
            silent[:] = [one for one in silent if not prometheus.query(concrete(one[2]))]
            return not silent

        try:
            wait_until(all_show_data, deadline_s=90)
        except AssertionError:
            pytest.fail(f"no data: {silent}")
        assert prometheus.firing() - SLOW_WINDOWS == set()
        local.kill(2)
        expected = {"KafkaUnderReplicated", "KafkaBrokerFenced"}
        wait_until(lambda: expected <= prometheus.firing(), deadline_s=90)
        local.kill(1)  # of three voters only one is left
        wait_until(lambda: "KafkaNoActiveController" in prometheus.firing(), deadline_s=90)
        local.settle(240)
        wait_until(lambda: prometheus.firing() - SLOW_WINDOWS <= {"KafkaPreferredLeadersMissing"},
                   deadline_s=90)  # fmt: skip
