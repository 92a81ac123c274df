"""The chart's alert rules by promtool: each fires when it should, and none in a healthy cluster."""

from __future__ import annotations

import copy
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from odradek_e2e.chart import CHART
from odradek_e2e.monitoring.dashboards import DASHBOARDS
from odradek_e2e.monitoring.grafana import DIRECTORY, file_text
from odradek_testkit.prometheus import program

RULES = CHART / "files" / "prometheus" / "rules.yaml"
CASES = Path(__file__).with_name("alert_cases.yaml")
END = "400m"
# Alert → the series of the healthy cluster that is replaced, and its new values. The times differ
# in what they count from: certificates and passes are compared with the clock, which starts at 0.
FAULTS = {
    "KafkaPartitionsOffline": ("offlinepartitionscount", "2x500"),
    "KafkaUnderMinIsr": ("underminisrpartitioncount", "1x500"),
    "KafkaUnderReplicated": ("underreplicatedpartitions", "7x500"),
    "KafkaNoActiveController": ("activecontrollercount", "0x500"),
    "KafkaBrokerFenced": ("fencedbrokercount", "1x500"),
    "KafkaUncleanLeaderElection": ("uncleanleaderelections_total", "3x395 4x105"),
    "KafkaPreferredLeadersMissing": ("preferredreplicaimbalancecount", "40x500"),
    "KafkaLogDirectoryOffline": ("offlinelogdirectorycount", "1x500"),
    "KafkaDiskLow": ("odradek_log_dir_low", "1x500"),
    "KafkaDiskFillsUp": ("odradek_log_dir_free_bytes", "100000000-100000x500"),
    "KafkaBrokerBusy": ("requesthandleravgidlepercent", "0.02x500"),
    "KafkaProduceSlow": ("totaltimems", "1500x500"),
    "KafkaConsumerLagGrows": ("kafka_consumergroup_lag_sum", "0+100x500"),
    "OdradekCertificateExpires": ("certificate_not_after", "100000x500"),
    "OdradekNotReconciled": ("last_success", "60x500"),
}


def alerts() -> set[str]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}


def promtool(directory: Path, tests: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    (directory / "rules.yaml").write_text(RULES.read_text())
    (directory / "tests.yaml").write_text(yaml.safe_dump(tests))
    command = [str(program("promtool")), "test", "rules", "tests.yaml"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def test_every_alert_has_a_case() -> None:
    cases = yaml.safe_load(CASES.read_text())
    assert {one["alertname"] for one in cases["tests"][0]["alert_rule_test"]} == alerts()
    assert FAULTS.keys() == alerts()


def test_dashboards_are_generated_from_their_definitions() -> None:
    written = {path.name: path.read_text() for path in DIRECTORY.glob("*.json")}
    assert written == {f"{one.name}.json": file_text(one) for one in DASHBOARDS}, "run make gen"


@pytest.mark.long  # needs Prometheus from Debian's packages
def test_no_alert_fires_in_a_healthy_cluster(tmp_path: Path) -> None:
    done = promtool(tmp_path, yaml.safe_load(CASES.read_text()))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long  # needs Prometheus from Debian's packages
@pytest.mark.parametrize("alert", FAULTS)
def test_an_alert_fires_for_its_fault_alone(alert: str, tmp_path: Path) -> None:
    """promtool fails exactly because this alert fires where the healthy case expects none."""
    part, values = FAULTS[alert]
    cases = copy.deepcopy(yaml.safe_load(CASES.read_text()))
    healthy = cases["tests"][0]
    replaced = [one for one in healthy["input_series"] if part in one["series"]]
    assert replaced, part
    for one in replaced:
        one["values"] = values
    for expected in healthy["alert_rule_test"]:
        expected["eval_time"] = END
    done = promtool(tmp_path, cases)
    said = done.stdout + done.stderr
    assert done.returncode != 0, said
    fired = {name for name in alerts() if f"alertname: {name}" in said}
    assert fired == {alert}, said
