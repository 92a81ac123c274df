"""Apache Kafka's own tools over SASL_SSL: a user of SCRAM is added, used, and removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_tests.conftest import StartBroker
from broker_tests.security.test_sasl import sasl_settings
from broker_tests.security.tls_support import PASSWORD, Authority, tls_settings
from odradek_testkit.engines import kafka_tool, on_apache

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(on_apache(), reason="starts our broker with its settings"),
]

MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def properties(path: Path, authority: Authority, mechanism: str, user: str, password: str) -> str:
    """A --command-config file."""
    lines = [
        "security.protocol=SASL_SSL",
        f"sasl.mechanism={mechanism}",
        f'sasl.jaas.config={MODULES[mechanism]} required username="{user}" password="{password}";',
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={authority.trusted()}",
        "ssl.endpoint.identification.algorithm=https",
    ]
    path.write_text("\n".join(lines))
    return str(path)


def test_scripts_with_scram_over_tls(start_broker: StartBroker, tmp_path: Path) -> None:
    authority = Authority.make(tmp_path / "tls")
    stores = tls_settings(authority, authority.issue("server"))
    broker = start_broker(sasl_settings("SASL_SSL", "PLAIN,SCRAM-SHA-512", **stores))
    admin = properties(tmp_path / "admin", authority, "PLAIN", "alice", PASSWORD)
    address = ("--bootstrap-server", broker.bootstrap)
    user = ("--entity-type", "users", "--entity-name", "erin")
    added = "SCRAM-SHA-512=[iterations=8192,password=erins-secret]"
    config, topics = "kafka.admin.ConfigCommand", "org.apache.kafka.tools.TopicCommand"
    kafka_tool(config, *address, "--command-config", admin, "--alter", "--add-config", added, *user)
    erin = properties(tmp_path / "erin", authority, "SCRAM-SHA-512", "erin", "erins-secret")
    create = ("--create", "--topic", "of-erin", "--partitions", "1")
    kafka_tool(topics, *address, "--command-config", erin, *create)
    listed = kafka_tool(topics, *address, "--command-config", erin, "--list")
    assert "of-erin" in listed.stdout.split()
    removed = ("--alter", "--delete-config", "SCRAM-SHA-512")
    kafka_tool(config, *address, "--command-config", admin, *removed, *user)
    refused = kafka_tool(topics, *address, "--command-config", erin, "--list", check=False)
    assert refused.returncode != 0
    assert (
        "invalid credentials with SASL mechanism SCRAM-SHA-512" in refused.stdout + refused.stderr
    )
    assert "erins-secret" not in broker.log()
