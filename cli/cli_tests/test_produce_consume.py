"""odradek produce and odradek consume, and dump-log on what they left on disk."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli_tests.conftest import Odradek
from odradek_testkit.engines import RunningApacheKafka, RunningBroker


def test_lines_with_keys_and_headers(odradek: Odradek, topic: str, lines: Path) -> None:
    done = odradek("produce", topic, "-f", str(lines), "-K", ":", "-H", "from=cli", "-p", "0",
                   "-z", "lz4", "--json")  # fmt: skip
    assert json.loads(done.stdout)["acked"] == 1_000
    out = odradek("consume", topic, "--from-beginning", "--until-end", "--json").stdout
    records = [json.loads(line) for line in out.splitlines()]
    assert [r["value"] for r in records] == [f"value-{i}" for i in range(1_000)]
    assert records[7]["key"] == "key-7"
    assert records[7]["headers"] == [["from", "cli"]]
    assert records[7]["offset"] == 7


def test_where_to_begin(odradek: Odradek, topic: str) -> None:
    odradek("produce", topic, "-p", "0", stdin="a\nb\nc\nd\n")
    between_ms = int(time.time() * 1000) + 1
    while time.time() * 1000 <= between_ms:
        pass
    odradek("produce", topic, "-p", "0", stdin="e\n")

    def read(*args: str) -> list[str]:
        return odradek("consume", topic, "-p", "0", "-e", *args).stdout.split()

    assert read("--from-beginning") == list("abcde")
    assert read("--from-beginning", "-n", "2") == list("ab")
    assert read("--offset", "3") == list("de")
    assert read("--offset", "-2") == list("de")
    assert read("--timestamp", str(between_ms)) == ["e"]
    assert read("--timestamp", "2001-01-01T00:00:00") == list("abcde")
    assert read() == []


def test_every_partition_is_read(odradek: Odradek, topic: str) -> None:
    odradek("produce", topic, "-p", "0", stdin="zero\n")
    odradek("produce", topic, "-p", "1", stdin="one\n")
    out = odradek("consume", topic, "--from-beginning", "-e").stdout
    assert sorted(out.split()) == ["one", "zero"]


def test_full_lines_and_tombstones(odradek: Odradek, topic: str) -> None:
    odradek("produce", topic, "-p", "1", "-K", "=", "--null-value", "NULL", "-H", "h=1",
            stdin="k=v\nk=NULL\n")  # fmt: skip
    first, second = odradek("consume", topic, "--from-beginning", "-e", "-F").stdout.splitlines()
    place, when, key, headers, value = first.split("\t")
    assert (place, key, headers, value) == ("1:0", "k", "h=1", "v")
    assert when.endswith("Z")
    assert second.split("\t")[4] == "(none)"


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(odradek: Odradek, topic: str, acks: str) -> None:
    odradek("produce", topic, "--acks", acks, stdin="x\n" * 10)
    assert odradek("consume", topic, "--from-beginning", "-n", "10").stdout == "x\n" * 10


def test_what_is_refused(odradek: Odradek, topic: str, tmp_path: Path) -> None:
    cases = [
        (("produce", topic, "-f", str(tmp_path / "none")), "--file"),
        (("produce", topic, "-K", ":"), "line 1"),
        (("produce", topic, "-H", "x"), "--header"),
        (("consume", topic, "--timestamp", "tomorrow"), "--timestamp tomorrow"),
        (("consume", topic, "--offset", "1", "--from-beginning"), "--offset"),
        (("consume", topic, "-p", "9"), "--partition 9"),
        (("consume", "nope", "-e"), "topic nope"),
    ]
    for args, named in cases:
        refused = odradek(*args, code=1, stdin="no separator\n")
        assert refused.stderr.startswith("odradek: "), refused.stderr
        assert named in refused.stderr


def test_dump_log(odradek: Odradek, topic: str, tmp_path: Path) -> None:
    with RunningBroker(directory=tmp_path / "other") as other:
        odradek("produce", topic, "-b", other.bootstrap, "-K", ":", stdin="k:v\nk2:v2\n")
    directory = next(other.data_dir.glob(f"{topic}-*"))
    log = directory / f"{0:020d}.log"
    out = odradek("dump-log", str(log), "--data").stdout
    assert "baseOffset: 0 lastOffset: 1 count: 2" in out
    assert "key: k2 payload: v2" in out
    rows = [
        json.loads(r) for r in odradek("dump-log", str(log), "-d", "--json").stdout.splitlines()
    ]
    assert [r["payload"] for r in rows if r["kind"] == "record"] == ["v", "v2"]
    assert odradek("dump-log", str(directory), "--verify").stdout == ""
    data = bytearray(log.read_bytes())
    data[-3] ^= 1
    log.write_bytes(data)
    damaged = odradek("dump-log", str(log), "--verify", code=1)
    assert "isvalid: false" in damaged.stdout
    assert "1 problems found" in damaged.stderr
    missing = odradek("dump-log", str(tmp_path / "none"), code=1)
    assert "none: no such file" in missing.stderr


@pytest.mark.java
def test_the_same_commands_work_with_apache_kafka(
    odradek: Odradek, as_json: Callable[..., Any], tmp_path: Path
) -> None:
    """Everything speaks Kafka's protocol; and dump-log reads Kafka's files."""
    with RunningApacheKafka(directory=tmp_path / "apache") as kafka:
        at = ("-b", kafka.bootstrap)
        odradek("topics", "create", "t", "-p", "1", "-C", "index.interval.bytes=100", *at)
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            odradek("produce", "t", "-K", ":", "-z", codec, *at, stdin="k:v\n" * 100)
        out = odradek("consume", "t", "--from-beginning", "-e", "--json", *at).stdout
        assert [json.loads(line)["offset"] for line in out.splitlines()] == list(range(500))
        (described,) = as_json("topics", "describe", "t", *at)
        assert described["partitions"][0]["end_offset"] == 500
    directory = kafka.data_dir / "t-0"
    assert odradek("dump-log", str(directory), "--verify").stdout == ""
    out = odradek("dump-log", str(directory / f"{0:020d}.log"), "--data").stdout
    assert out.count("payload: v") == 500
