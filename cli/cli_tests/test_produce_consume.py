"""odradek produce and odradek consume, and dump-log of the segments that they wrote."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from cli_tests.conftest import Odradek
from odradek_cli.errors import CliError
from odradek_cli.records import from_json
from odradek_testkit.engines import RunningApacheKafka, RunningBroker


def test_lines_with_keys_and_headers(odradek: Odradek, topic: str, lines: Path) -> None:
    done = odradek("produce", topic, "-f", str(lines), "-K", ":", "-H", "from=cli", "-p", "0",
                   "-z", "lz4", "--json-report")  # fmt: skip
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
        (("produce", topic, "-f", str(tmp_path / "none")), "--file", 1),
        (("produce", topic, "-K", ":"), "line 1", 1),
        (("produce", topic, "--json"), "line 1: is not JSON", 1),
        (("produce", topic, "-p", "9"), f"--partition 9: topic {topic} has 2", 1),
        (("consume", topic, "-p", "9"), "--partition 9", 1),
        (("consume", "nope", "-e"), "topic nope", 1),
        (("produce", topic, "-H", "x"), "--header", 2),
        (("produce", topic, "-K", ":", "--key", "k"), "--key", 2),
        (("produce", topic, "--json", "--key", "k"), "--json", 2),
        (("produce", topic, "--by-key"), "--by-key", 2),
        (("consume", topic, "--timestamp", "tomorrow"), "--timestamp tomorrow", 2),
        (("consume", topic, "--offset", "1", "--from-beginning"), "--offset", 2),
        (("consume", topic, "--offset", "first"), "expected beginning, end", 2),
        (("consume", topic, "--format", "%y"), "%y is unknown", 2),
        (("consume", topic, "--format", "%v", "--json"), "exclude each other", 2),
        (("consume", topic, "-g", "g", "-o", "1"), "--group", 2),
    ]
    for args, named, code in cases:
        refused = odradek(*args, code=code, stdin="no separator\n")
        assert refused.stderr.startswith("odradek: "), refused.stderr
        assert refused.stderr.count("\n") == 1
        assert named in refused.stderr


def test_dump_log(odradek: Odradek, topic: str, tmp_path: Path) -> None:
    with RunningBroker(directory=tmp_path / "other") as other:
        odradek(
            "produce", topic, "-b", other.bootstrap, "-K", ":", "--create", stdin="k:v\nk2:v2\n"
        )
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


def records(odradek: Odradek, topic: str) -> list[dict[str, Any]]:
    out = odradek("consume", topic, "-o", "beginning", "--until-end", "--json").stdout
    found = [json.loads(line) for line in out.splitlines()]
    return sorted(found, key=lambda record: (record["partition"], record["offset"]))


def test_the_copy_of_a_topic_equals_it(broker: RunningBroker, odradek: Odradek, topic: str) -> None:
    """consume --json | produce --json: keys, tombstones, headers, bytes, partitions, times."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    headers: Any  # the client's types do not allow this, the protocol does
    for partition, key, value, headers in [
        (0, b"k", b"text \xc3\xa9\n\ttab", [("h", b"1"), ("h", b"2"), ("raw", b"\xff\x00")]),
        (1, None, b"\xff\xfe\x00", []),
        (1, b"\x80", None, [("none", None)]),
        (0, b"", b"", []),
        (1, None, b'{"base64": "not a field"}', []),
    ]:
        timestamp = 1_700_000_000_000 + partition
        producer.produce(topic, value, key, partition, headers=headers, timestamp=timestamp)
    assert producer.flush(30) == 0
    copy = f"{topic}.copy"
    odradek("topics", "create", copy, "-p", "2")
    lines = odradek("consume", topic, "-o", "beginning", "-e", "--json").stdout
    odradek("produce", copy, "--json", stdin=lines)
    original = [{**record, "topic": copy} for record in records(odradek, topic)]
    assert len(original) == 5
    assert records(odradek, copy) == original


def test_json_lines_into_another_number_of_partitions(odradek: Odradek, topic: str) -> None:
    odradek("topics", "create", f"{topic}.one", "-p", "1")
    line = '{"key": "k", "value": "v", "partition": 1}\n'
    refused = odradek("produce", f"{topic}.one", "--json", stdin=line, code=1).stderr
    assert "line 1: partition 1" in refused
    assert "--by-key" in refused
    odradek("produce", f"{topic}.one", "--json", "--by-key", stdin=line)
    assert [r["value"] for r in records(odradek, f"{topic}.one")] == ["v"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"key": "k"}', "value: is missing"),
        ('{"value": {"a": 1}}', "value: expected a string, null"),
        ('{"value": {"base64": "?"}}', "value.base64: is not base64"),
        ('{"value": "v", "valeu": "v"}', "valeu: unknown field"),
        ('{"value": "v", "headers": {"a": "b"}}', "headers: expected a list of pairs"),
        ('{"value": "v", "partition": "0"}', "partition: expected an integer"),
        ("[]", "expected an object"),
    ],
)
def test_json_lines_that_are_no_records(line: str, why: str) -> None:
    with pytest.raises(CliError, match=re.escape(f"line 3: {why}")):
        from_json(line.encode(), 3)


def test_the_last_records_of_all_partitions_together(odradek: Odradek, topic: str) -> None:
    lines = [
        json.dumps({"value": str(n), "partition": n % 2, "timestamp_ms": 1_700_000_000_000 + n})
        for n in range(20)
    ]
    odradek("produce", topic, "--json", stdin="\n".join(lines) + "\n")
    how = ("consume", topic, "--until-end", "-o")
    assert odradek(*how, "-5").stdout.split() == ["15", "16", "17", "18", "19"]
    assert odradek(*how, "-100").stdout.split() == [str(n) for n in range(20)]
    assert odradek(*how, "-5", "-p", "1").stdout.split() == ["11", "13", "15", "17", "19"]
    assert odradek("consume", topic, "-o", "-5", "-n", "2").stdout.split() == ["15", "16"]
    assert odradek(*how, "-0").stdout == ""
    assert odradek(*how, "end").stdout == ""
    assert len(odradek(*how, "beginning").stdout.split()) == 20


def test_the_last_records_where_offsets_are_not_records(
    broker: RunningBroker, odradek: Odradek, topic: str
) -> None:
    """Markers of transactions take offsets, and aborted records are not shown."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, str(number).encode(), partition=0)
        producer.commit_transaction(30)
    producer.begin_transaction()
    for _ in range(10):
        producer.produce(topic, b"aborted", partition=0)
    producer.flush(30)
    producer.abort_transaction(30)
    assert odradek("consume", topic, "-e", "-o", "-3").stdout.split() == ["3", "4", "5"]
    (described,) = json.loads(odradek("topics", "describe", topic, "--json").stdout)
    assert described["partitions"][0]["records_at_most"] == 23  # 6 + 6 markers + 10 + 1 marker


def test_reading_goes_on_after_the_last_records(odradek: Odradek, topic: str) -> None:
    odradek("produce", topic, "-p", "0", stdin="a\nb\nc\n")
    command = [sys.executable, "-m", "odradek_cli", "consume", topic, "-o", "-2", "-n", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["b\n", "c\n"]
        odradek("produce", topic, "-p", "0", stdin="d\n")
        assert process.stdout.read() == "d\n"
        assert process.wait() == 0


def test_formats(odradek: Odradek, topic: str) -> None:
    line = {"key": "k", "value": "v\u00e9", "partition": 1, "timestamp_ms": 1_700_000_000_000,
            "headers": [["a", "1"], ["b", None]]}  # fmt: skip
    odradek("produce", topic, "--json", stdin=json.dumps(line) + "\n")

    def read(template: str) -> str:
        return odradek("consume", topic, "-o", "beginning", "-e", "-f", template).stdout

    assert read(r"%t %p %o %T %k %v %h\n") == f"{topic} 1 0 1700000000000 k v\u00e9 a=1,b=\n"
    assert read(r"%K\t%V\t%s\t%S\\%%\x41") == "1\t3\tv\u00e9\t3\\%A"


def test_keys_of_plain_lines(odradek: Odradek, topic: str) -> None:
    odradek("produce", topic, "-p", "0", "--key", "k", stdin="one\n")
    odradek("produce", topic, "-p", "0", "--key", "k", "--null-value", "", stdin="\n")
    odradek("produce", topic, "-p", "0", "-K", r"\t", stdin="tab\ttwo\n")
    found = [(r["key"], r["value"]) for r in records(odradek, topic)]
    assert found == [("k", "one"), ("k", None), ("tab", "two")]


def test_a_mistyped_topic_is_not_created(
    odradek: Odradek, as_json: Callable[..., Any], topic: str
) -> None:
    wrong = topic.replace("mistyped", "mistypd")
    refused = odradek("produce", wrong, stdin="x\n", code=1).stderr
    assert refused == (
        f"odradek: topic {wrong}: there is no such topic (there is {topic}); create it with "
        f"`odradek topics create {wrong}`, or give --create\n"
    )
    assert wrong not in {t["name"] for t in as_json("topics", "list", "--internal")}
    odradek("produce", f"{topic}.new", "--create", stdin="x\n")
    assert [r["value"] for r in records(odradek, f"{topic}.new")] == ["x"]


def test_records_before_a_bad_line_are_written(odradek: Odradek, topic: str) -> None:
    refused = odradek("produce", topic, "-K", ":", stdin="a:1\nb:2\nnothing\n", code=1).stderr
    assert "line 3" in refused
    assert sorted(r["value"] for r in records(odradek, topic)) == ["1", "2"]
