"""A broker that cannot start prints one line that names the setting, and changes no file.

Ours only: Apache Kafka prints stack traces.
"""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from odradek_testkit.clients import consume, create_topic, numbered, produce
from odradek_testkit.engines import RunningBroker, on_apache
from odradek_testkit.launching import launcher

pytestmark = pytest.mark.skipif(on_apache(), reason="about the messages of our broker")


def refused(*args: str, env: dict[str, str] | None = None) -> str:
    """Runs a broker whose start must fail; returns the one line that it prints."""
    code, out, err = run_alone(args, env) if env else run_forked(args)
    assert code not in (0, -9), out + err
    assert '"ready"' not in out
    assert "Traceback" not in err, err
    lines = [line for line in err.splitlines() if line.startswith("odradek: ")]
    assert len(lines) == 1, err
    return lines[0]


def run_alone(args: tuple[str, ...], env: dict[str, str]) -> tuple[int, str, str]:
    """As a user starts it."""
    done = subprocess.run(
        [sys.executable, "-m", "odradek_broker.main", *args],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, **env},
    )
    return done.returncode, done.stdout, done.stderr


def run_forked(args: tuple[str, ...]) -> tuple[int, str, str]:
    """The same without the time of the imports."""
    with tempfile.NamedTemporaryFile("r") as log:
        process = launcher().start({"broker": list(args)}, Path(log.name), {}, pipe=True)
        assert process.stdout is not None
        with process.stdout:
            out = process.stdout.read().decode()
        return process.wait(), out, log.read()


def overrides(tmp_path: Path, **settings: str) -> list[str]:
    """Valid settings with these changes; names have _ for dots."""
    base = {
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "odradek.admin.listener": "127.0.0.1:0",
        "log.dirs": str(tmp_path / "data"),
    }
    base.update({name.replace("_", "."): value for name, value in settings.items()})
    return [f"--override={name}={value}" for name, value in base.items()]


def fingerprint(directory: Path) -> dict[str, str]:
    """Every file below with the digest of its bytes; the lock file may come and go."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("num.partitions", "many"),
        ("num.partitions", "0"),
        ("log.retention.ms", "soon"),
        ("log.cleanup.policy", "shred"),
        ("compression.type", "rar"),
        ("auto.create.topics.enable", "maybe"),
        ("listeners", "PLAINTEXT//127.0.0.1:9092"),
        ("listeners", "PLAINTEXT://127.0.0.1:99999"),
        ("listeners", "INTERNAL://127.0.0.1:0"),
        ("node.id", "-3"),
        ("odradek.admin.listener", "nowhere"),
    ],
)
def test_bad_value(tmp_path: Path, setting: str, value: str) -> None:
    line = refused(*overrides(tmp_path, **{setting: value}))
    assert setting in line
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("log.retention.hour", "log.retention.hours"),
        ("num.partition", "num.partitions"),
        ("auto.create.topic.enable", "auto.create.topics.enable"),
    ],
)
def test_an_unknown_setting_is_reported_with_the_nearest_known_name(
    tmp_path: Path, wrong: str, meant: str
) -> None:
    line = refused(*overrides(tmp_path, **{wrong: "1"}))
    assert wrong in line
    assert meant in line


def test_the_file_and_the_line_are_named(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("# mine\nnum.partitions = 3\nlog.segment.bytes = big\n")
    line = refused("-c", str(properties), *overrides(tmp_path))
    assert "log.segment.bytes" in line
    missing = refused("-c", str(tmp_path / "no-such.properties"))
    assert "no-such.properties" in missing


def test_bad_environment(tmp_path: Path) -> None:
    line = refused(*overrides(tmp_path), env={"KAFKA_NUM_PARTITIONS": "x"})
    assert "num.partitions" in line


def test_override_without_a_value(tmp_path: Path) -> None:
    line = refused(*overrides(tmp_path), "--override", "num.partitions")
    assert "num.partitions" in line


def test_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    line = refused(*overrides(tmp_path, log_dirs=str(tmp_path / "file" / "data")))
    assert "log.dirs" in line
    assert str(tmp_path / "file" / "data") in line
    assert (tmp_path / "file").read_text() == "not a directory"


def test_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        line = refused(*overrides(tmp_path, listeners=f"PLAINTEXT://127.0.0.1:{port}"))
    assert "listeners" in line
    assert str(port) in line


def test_directory_of_another_cluster_or_node(tmp_path: Path, topic: str) -> None:
    with RunningBroker(directory=tmp_path / "broker") as broker:
        create_topic(broker, topic)
        produce(broker, topic, numbered(10))
    before = fingerprint(broker.data_dir)

    line = refused(*overrides(tmp_path, log_dirs=str(broker.data_dir), node_id="7"))
    assert "node.id" in line
    line = refused(
        *overrides(tmp_path, log_dirs=str(broker.data_dir), odradek_cluster_id="another-cluster")
    )
    assert "cluster" in line
    other = tmp_path / "other"
    with RunningBroker({"log.dirs": str(other)}, directory=tmp_path / "second"):
        pass
    line = refused(*overrides(tmp_path, log_dirs=f"{broker.data_dir},{other}"))
    assert "cluster.id" in line or "log.dirs" in line

    assert fingerprint(broker.data_dir) == before
    with broker:
        assert [m.value() for m in consume(broker, topic, 10)] == numbered(10)


def test_directory_in_use_by_a_running_broker(tmp_path: Path, topic: str) -> None:
    with RunningBroker(directory=tmp_path / "broker") as broker:
        create_topic(broker, topic)
        produce(broker, topic, numbered(10))
        line = refused(*overrides(tmp_path, log_dirs=str(broker.data_dir)))
        assert "log.dirs" in line
        assert str(broker.data_dir) in line
        assert [m.value() for m in consume(broker, topic, 10)] == numbered(10)
