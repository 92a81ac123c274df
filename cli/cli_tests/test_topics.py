"""odradek topics and odradek configs against a running broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cli_tests.conftest import Odradek


def test_create_list_describe_delete(odradek: Odradek, as_json: Callable[..., Any]) -> None:
    done = odradek("topics", "create", "a1", "a2", "-p", "3", "--config", "retention.ms=60000")
    assert done.stdout == "Created topic a1.\nCreated topic a2.\n"
    listed = as_json("topics", "list")
    assert {"name": "a1", "partitions": 3} in listed
    (described,) = as_json("topics", "describe", "a1")
    assert described["configs"]["retention.ms"] == "60000"
    assert [p["partition"] for p in described["partitions"]] == [0, 1, 2]
    assert described["partitions"][0] == {
        "partition": 0,
        "leader": 1,
        "replicas": [1],
        "isr": [1],
        "first_offset": 0,
        "end_offset": 0,
        "records_at_most": 0,
    }
    table = odradek("topics", "describe", "a1").stdout
    assert "retention.ms=60000" in table
    assert "partition" in table
    assert as_json("topics", "delete", "a1", "a2", "--yes") == {"deleted": ["a1", "a2"]}
    assert not {"a1", "a2"} & {t["name"] for t in as_json("topics", "list")}


def test_alter(odradek: Odradek, as_json: Callable[..., Any], topic: str) -> None:
    after = as_json("topics", "alter", topic, "--partitions", "5", "--config", "flush.ms=7")
    assert len(after["partitions"]) == 5
    assert after["configs"]["flush.ms"] == "7"
    after = as_json("topics", "alter", topic, "--delete-config", "flush.ms")
    assert "flush.ms" not in after["configs"]
    refused = odradek("topics", "alter", topic, "--partitions", "2", code=1)
    assert refused.stderr.startswith(f"odradek: topic {topic}: --partitions 2: ")
    assert "INVALID_PARTITIONS" in refused.stderr
    nothing = odradek("topics", "alter", topic, code=2)
    assert "--partitions" in nothing.stderr


def test_errors_are_one_sentence_that_names_the_object(odradek: Odradek, topic: str) -> None:
    cases = [
        (("topics", "create", topic), f"topic {topic}", "TOPIC_ALREADY_EXISTS"),
        (("topics", "create", "x/y"), "topic x/y", "TOPIC_EXCEPTION"),
        (("topics", "create", "x", "-C", "retention.ms=a"), "topic x", "INVALID_CONFIG"),
        (("topics", "describe", "nope"), "topic nope", "UNKNOWN_TOPIC"),
        (("topics", "delete", "nope", "-y"), "topic nope", "UNKNOWN_TOPIC"),
        (("configs", "describe", "topic", "nope"), "topic nope", "UNKNOWN_TOPIC"),
    ]
    wrong_usage = [
        (("topics", "create", "x", "-C", "novalue"), "--config novalue", "NAME=VALUE"),
        (("configs", "alter", "topic", topic), "--set", "nothing to alter"),
        (("configs", "alter", "topic", topic, "--set", "retention.ms"), "--set", "NAME=VALUE"),
        (("configs", "describe", "topic"), "topic", "expected the name"),
        (("configs", "describe", "broker", "one"), "broker one", "id"),
        (("topics", "delete", topic), topic, "--yes"),
        (("topics", "delete-records", topic, "--before", "end"), topic, "--yes"),
        (("topics", "delete-records", topic, "--yes"), "--before", "up to where"),
        (("topics", "delete-records", topic, "--before", "x", "-y"), "--before x", "offset"),
        (("groups", "delete", "g"), "g", "--yes"),
        (("partitions", "elect", "--unclean"), "in sync", "--yes"),
    ]
    for args, named, why in [*cases, *wrong_usage]:
        refused = odradek(*args, code=2 if (args, named, why) in wrong_usage else 1)
        assert refused.stderr.startswith("odradek: "), refused.stderr
        assert refused.stderr.count("\n") == 1
        assert named in refused.stderr
        assert why in refused.stderr


def test_no_broker_there(odradek: Odradek) -> None:
    refused = odradek("topics", "list", "--bootstrap", "127.0.0.1:1", code=1)
    expected = "odradek: --bootstrap 127.0.0.1:1: no broker answers there: cannot connect to"
    assert refused.stderr.startswith(expected)
    assert refused.stderr.count("\n") == 1
    wrong = odradek("topics", "list", "--bootstrap", "nowhere", code=2)
    assert "expected host:port" in wrong.stderr


def test_wrong_usage_has_exit_code_2(odradek: Odradek) -> None:
    odradek("topics", "create", code=2)
    odradek("no-such-command", code=2)
    odradek("configs", "describe", "planet", "x", code=2)


def test_create_if_not_exists(odradek: Odradek, as_json: Callable[..., Any], topic: str) -> None:
    assert as_json("topics", "create", topic, "--if-not-exists") == {"created": []}


def test_topic_configs(odradek: Odradek, as_json: Callable[..., Any], topic: str) -> None:
    odradek("configs", "alter", "topic", topic, "-s", "retention.ms=5000", "-s", "flush.ms=9",
            "--append", "cleanup.policy=compact")  # fmt: skip
    shown = {s["name"]: s for s in as_json("configs", "describe", "topic", topic)}
    assert shown["retention.ms"]["value"] == "5000"
    assert shown["retention.ms"]["source"] == "dynamic_topic_config"
    assert shown["cleanup.policy"]["value"] == "delete,compact"
    odradek("configs", "alter", "topic", topic, "--delete", "flush.ms",
            "--subtract", "cleanup.policy=delete")  # fmt: skip
    shown = {s["name"]: s for s in as_json("configs", "describe", "topic", topic)}
    assert "flush.ms" not in shown
    assert shown["cleanup.policy"]["value"] == "compact"
    assert "retention.ms" in odradek("configs", "describe", "topic", topic).stdout


def test_broker_configs(odradek: Odradek, as_json: Callable[..., Any]) -> None:
    shown = {s["name"]: s for s in as_json("configs", "describe", "broker", "1", "--all")}
    assert shown["node.id"]["value"] == "1"
    assert shown["log.dirs"]["read_only"] is True
    odradek("configs", "alter", "broker", "1", "--set", "log.cleaner.threads=2")
    shown = {s["name"]: s for s in as_json("configs", "describe", "broker", "1")}
    assert shown["log.cleaner.threads"]["value"] == "2"
    refused = odradek("configs", "alter", "broker", "1", "--set", "node.id=9", code=1)
    assert "node.id" in refused.stderr
    missing = odradek("configs", "describe", "broker", "99", code=1)
    assert "broker 99: there is no live broker 99 in the cluster; live are: 1" in missing.stderr


def test_the_default_of_all_brokers(odradek: Odradek, as_json: Callable[..., Any]) -> None:
    assert "all settings have their defaults." in odradek("configs", "describe", "broker").stdout
    odradek("configs", "alter", "broker", "--set", "log.retention.ms=7200000")
    assert as_json("configs", "describe", "broker") == [
        {
            "name": "log.retention.ms",
            "value": "7200000",
            "source": "dynamic_default_broker_config",
            "read_only": False,
        }
    ]
    odradek("configs", "alter", "broker", "--delete", "log.retention.ms")
    assert as_json("configs", "describe", "broker") == []


def test_describe_without_names_shows_all_topics(
    odradek: Odradek, as_json: Callable[..., Any], topic: str
) -> None:
    odradek("consume", topic, "--group", "makes-the-internal-topic", "--until-end")
    names = [t["name"] for t in as_json("topics", "describe")]
    assert topic in names
    assert names == [t["name"] for t in as_json("topics", "list")], "no internal topics"


def test_delete_records(odradek: Odradek, as_json: Callable[..., Any], topic: str) -> None:
    odradek("produce", topic, "-p", "0", stdin="a\nb\nc\nd\n")
    odradek("produce", topic, "-p", "1", stdin="x\n")
    how = ("topics", "delete-records")
    assert as_json(*how, f"{topic}:0", "--before", "2", "--yes") == [
        {"topic": topic, "partition": 0, "first_offset_before": 0, "first_offset": 2}
    ]
    left = odradek("consume", topic, "-o", "beginning", "--until-end").stdout.split()
    assert sorted(left) == ["c", "d", "x"]
    odradek(*how, topic, "--before", "1", "--yes")  # partition 0 begins at 2: nothing to delete
    assert odradek("consume", topic, "-o", "beginning", "-e").stdout.split() == ["c", "d"]
    refused = odradek(*how, f"{topic}:0", "--before", "99", "--yes", code=1).stderr
    assert f"topic {topic}-0: --before 99: " in refused
    assert "OFFSET_OUT_OF_RANGE" in refused
    odradek(*how, topic, "--before-timestamp", "2001-01-01T00:00:00", "-y")
    assert odradek("consume", topic, "-o", "beginning", "-e").stdout.split() == ["c", "d"]
    table = odradek(*how, topic, "--before", "end", "--yes").stdout
    assert f"{topic}-0" in table
    (described,) = as_json("topics", "describe", topic)
    assert [p["records_at_most"] for p in described["partitions"]] == [0, 0]
    missing = odradek(*how, "nope", "--before", "end", "-y", code=1).stderr
    assert missing == "odradek: topic nope: there is no such topic\n"
