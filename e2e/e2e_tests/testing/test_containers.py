"""odradek.testing.containers: the commands for a container engine, without one.

A program in place of docker understands just these commands: it starts our broker with the given
environment as a process. A real engine and the image: e2e_tests/kind/test_container.py.
"""

import sys
from pathlib import Path

import pytest

from odradek.testing.containers import ContainerError, KafkaContainer
from odradek_protocol.client import ClientError, KafkaClient
from odradek_protocol.client.admin.configs import ResourceType, describe_configs
from odradek_protocol.client.admin.topics import NewTopic, create_topics

DOCKER = f"""#!{sys.executable}
import os, subprocess, sys

action, *rest = sys.argv[1:]
with open({{calls!r}}, "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
if action == "run":
    assert rest[-1] == "odradek/broker", rest
    env = dict(one.removeprefix("--env=").split("=", 1) for one in rest if one.startswith("--env="))
    flags = ["--override=log.dirs=" + {{data!r}}, "--override=odradek.admin.listener=127.0.0.1:0"]
    broker = subprocess.Popen(
        [sys.executable, "-m", "odradek_broker.main", *flags],
        env={{{{**os.environ, **env}}}}, stdout=subprocess.DEVNULL, stderr=open({{log!r}}, "wb"),
        start_new_session=True,
    )
    print(broker.pid)
elif action == "logs":
    print(open({{log!r}}).read(), file=sys.stderr)
elif action == "inspect":
    print(rest[-1] if os.path.exists("/proc/" + rest[-1]) else 0)
elif action == "rm":
    os.kill(int(rest[-1]), 9)
"""


def test_the_run_command_makes_a_broker_that_clients_reach(tmp_path: Path) -> None:
    program, calls = tmp_path / "docker", tmp_path / "calls"
    paths = {"calls": str(calls), "data": str(tmp_path / "data"), "log": str(tmp_path / "log")}
    program.write_text(DOCKER.format(**paths))
    program.chmod(0o755)
    config = {"log.retention.ms": "1234567"}
    with KafkaContainer(config=config, program=str(program)) as kafka:
        with KafkaClient(kafka.bootstrap) as client:
            assert create_topics(client, [NewTopic("orders", 1)]) == {}
            node = client.metadata(()).brokers[1]
            assert str(node.address) == kafka.bootstrap
            found = describe_configs(client, ResourceType.BROKER, ["1"])
        entries = found["1"]
        assert not isinstance(entries, ClientError)
        assert entries["log.retention.ms"].value == "1234567"
        port = kafka.bootstrap.rpartition(":")[2]
        assert f"--publish=127.0.0.1:{port}:{port}" in calls.read_text()
        assert "registered with broker epoch" in kafka.log()
        pid = kafka.pid
    assert calls.read_text().splitlines()[-1] == f"rm --force {pid}"


def test_without_an_engine() -> None:
    with pytest.raises(ContainerError, match="no-docker is not installed"):
        KafkaContainer(program="no-docker").start()
