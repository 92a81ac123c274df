"""Every page over HTTP, on a real broker; changes are previewed, confirmed and audited."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

import pytest

from console_tests.conftest import Console, Kafka, Visitor
from odradek_protocol.client.admin.groups import CommittedOffset, commit_offsets, committed_offsets
from odradek_protocol.ids import TopicPartition

SCRIPT = b'{"name": "<script>alert(1)</script>", "amount": 12.5}'


def events(visitor: Visitor, path: str) -> list[dict[str, object]]:
    answer = visitor.get(path)
    assert answer.status == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def test_pages_of_an_empty_cluster_say_what_to_do(visitor: Visitor) -> None:
    for path, words in (
        ("/", "Healthy"),
        ("/brokers", "controller"),
        ("/brokers/1?all=1", "log.retention.ms"),
        ("/groups", "There are no groups yet"),
        ("/security", "everybody may do everything"),
        ("/security?tab=users", "There are no SCRAM users"),
        ("/security?tab=quotas", "There are no quotas"),
        ("/topics/-/create", "Preview"),
        ("/topics?q=zzz", "No topic has zzz in its name"),
    ):
        answer = visitor.get(path)
        assert answer.status == 200, (path, answer.text)
        assert words in answer.text, path


def test_a_topic_from_creation_to_deletion(visitor: Visitor, console: Console) -> None:
    fields = {"name": "born", "partitions": "3", "replication": "", "configs": "retention.ms=1000"}
    preview = visitor.submit("/topics/-/create", fields)
    assert "Nothing has been changed yet" in preview.text
    assert visitor.get("/topics/born").status == 502  # not yet
    page = visitor.change("/topics/-/create", fields)
    assert "Created topic born." in page.text
    assert page.text.count("cell leader preferred") == 3
    table = visitor.get("/topics/born/settings").text
    assert re.search(r"retention\.ms.*?1000.*?this topic", table, re.DOTALL)
    page = visitor.change("/topics/born/settings", {"name": "retention.ms", "reset": "1"})
    assert "Changed retention.ms" in page.text
    page = visitor.change("/topics/born", {"action": "grow", "partitions": "5"})
    assert "has 5 partitions now" in page.text
    refused = visitor.submit("/topics/born", {"action": "grow", "partitions": "2"})
    assert "can only grow" in refused.text
    page = visitor.change("/topics/born", {"action": "delete"}, typed="bron")
    assert page.status == 400
    page = visitor.change("/topics/born", {"action": "delete"}, typed="born")
    assert "Deleted topic born." in page.text
    lines = [json.loads(line) for line in console.audit.read_text().splitlines()]
    mine = [one for one in lines if one["subject"] in ("born", "topic born")]
    assert [one["action"] for one in mine] == [
        "create topic", "change setting", "add partitions", "delete topic",
    ]  # fmt: skip
    assert {one["outcome"] for one in mine} == {"done"}
    assert mine[2]["changes"] == [{"what": "partitions", "from": "3", "to": "5"}]


def test_records_are_text_never_markup(visitor: Visitor, kafka: Kafka) -> None:
    topic = kafka.topic("markup")
    kafka.produce(topic, [SCRIPT, None, b"\x00\xff" * 20, b"plain <b>text</b>"], key=b"<i>")
    for wanted in ("auto", "text", "json", "hex"):
        page = visitor.get(f"/topics/{topic}/records?format={wanted}").text
        assert "<script>alert" not in page
        assert "<b>text" not in page
        assert "<i>0" not in page
        assert "tombstone" in page
    rows = events(visitor, f"/topics/{topic}/records/stream?q=script")
    assert len([one for one in rows if one["event"] == "record"]) == 1
    assert "<script>alert" not in json.dumps(rows)


def test_where_to_start_and_more(visitor: Visitor, kafka: Kafka) -> None:
    topic = kafka.topic("starts", 1)
    kafka.produce(topic, [f"value-{i:03d}".encode() for i in range(120)])

    def shown(query: str) -> list[str]:
        page = visitor.get(f"/topics/{topic}/records?limit=20&{query}").text
        return re.findall(r'class="value">([^<]+)<', page)

    assert shown("start=newest") == [f"value-{i:03d}" for i in range(119, 99, -1)]
    assert shown("start=oldest") == [f"value-{i:03d}" for i in range(20)]
    assert shown("start=offset&offset=30")[0] == "value-030"
    assert shown("start=time&time=2026-01-01T00:00:00.050")[0] == "value-050"
    page = visitor.get(f"/topics/{topic}/records?limit=20&start=oldest").text
    more = re.search(r'id="more" href="([^"]+)"', page)
    assert more is not None
    assert "at=0-20" in more[1]
    assert shown("start=at&at=0-20")[0] == "value-020"
    assert (
        "expected numbers such as 0,2" in visitor.get(f"/topics/{topic}/records?partition=x").text
    )


def test_a_filter_runs_over_all_records(visitor: Visitor, kafka: Kafka) -> None:
    topic = kafka.topic("filtered", 2)
    for partition in range(2):
        kafka.produce(
            topic, [json.dumps({"n": i, "p": partition}).encode() for i in range(3_000)], partition
        )
    found = events(visitor, f"/topics/{topic}/records/stream?filter={quote('value.n == 7')}")
    progress = [one for one in found if one["event"] == "progress"][-1]
    assert (progress["scanned"], progress["matched"]) == (6_000, 2)
    assert len([one for one in found if one["event"] == "record"]) == 2
    nested = quote('value.p == 1 && value.n > 2990 && headers["source"] == "test"')
    found = events(visitor, f"/topics/{topic}/records/stream?start=oldest&filter={nested}")
    assert len([one for one in found if one["event"] == "record"]) == 9
    (refused,) = events(visitor, f"/topics/{topic}/records/stream?filter={quote('value.n ==')}")
    assert "the filter is not valid" in str(refused["message"])
    (refused,) = events(visitor, f"/topics/{topic}/records/stream?filter=import")
    assert refused["event"] == "error"


def test_records_of_a_key(visitor: Visitor, kafka: Kafka) -> None:
    """The whole key, in all partitions; newest first, so the first is the current value."""
    topic = kafka.topic("keyed", 2)
    kafka.produce(topic, [f"old-{n}".encode() for n in range(12)], 0)
    kafka.produce(topic, [f"new-{n}".encode() for n in range(2)], 1, at_ms=1_767_225_700_000)
    kafka.produce(topic, [b"of a binary key"], 1, key=b"\x00\xff")

    def found(query: str) -> list[str]:
        rows = events(visitor, f"/topics/{topic}/records/stream?{query}")
        pages = [str(one["html"]) for one in rows if one["event"] == "record"]
        return [re.findall(r'class="value">([^<]+)<', page)[0] for page in pages]

    assert found("key=k1") == ["new-1", "old-1"]  # not k10 and k11
    assert found("key=k1&start=oldest&partition=0") == ["old-1"]
    assert found("key=k1&q=old") == ["old-1"]
    assert found("key=0x00ff30") == ["of a binary key"]
    assert found("key=nothing") == []
    page = visitor.get(f"/topics/{topic}/records?key=k1").text
    assert 'name="key" size="8" value="k1"' in page
    exported = visitor.get(f"/topics/{topic}/records/export?as=ndjson&key=k1&start=oldest").text
    assert len(exported.splitlines()) == 2


def test_masked_fields_are_nowhere(visitor: Visitor, kafka: Kafka) -> None:
    topic = kafka.topic("masked", 1)
    secret = "4111222233334444"
    kafka.produce(topic, [json.dumps({"card": {"number": secret, "type": "x"}}).encode(),
                          b'{"card": 1, "card": {"number": "4111222233334444"}}',
                          b'not JSON 4111222233334444'])  # fmt: skip
    base = f"/topics/{topic}"
    for path in (
        f"{base}/records",
        f"{base}/records?format=hex",
        f"{base}/records?format=text",
        f"{base}/records/stream",
        f"{base}/records/export?as=ndjson",
        f"{base}/records/export?as=csv",
        f"{base}/produce?from={topic}&partition=0&offset=0",
    ):
        answer = visitor.get(path)
        assert answer.status == 200, path
        assert secret not in answer.text, path
        assert secret[:8].encode().hex(" ") not in answer.text, path
    probe = quote('value.card.number.startsWith("4")')
    found = events(visitor, f"{base}/records/stream?filter={probe}")
    assert not [one for one in found if one["event"] == "record"]
    assert not [one for one in events(visitor, f"{base}/records/stream?q=4111")
                if one["event"] == "record"]  # fmt: skip


def test_export(visitor: Visitor, kafka: Kafka) -> None:
    topic = kafka.topic("exported", 1)
    kafka.produce(topic, [b"=cmd()", b"\xff", None])
    answer = visitor.get(f"/topics/{topic}/records/export?as=ndjson&start=oldest")
    assert answer.headers["content-disposition"] == 'attachment; filename="exported.ndjson"'
    documents = [json.loads(line) for line in answer.text.splitlines()]
    assert [one["value"] for one in documents] == ["=cmd()", {"base64": "/w=="}, None]
    lines = visitor.get(f"/topics/{topic}/records/export?as=csv&start=oldest").text.splitlines()
    assert len(lines) == 4
    assert ",'=cmd()," in lines[1]  # a spreadsheet does not run it


def test_produce_and_produce_again(visitor: Visitor, kafka: Kafka) -> None:
    topic = kafka.topic("produced", 2)
    fields = {"key": "a", "value": "hello", "headers": '[["h", "1"]]', "encoding": "text",
              "tombstone": "", "partition": "1"}  # fmt: skip
    page = visitor.submit(f"/topics/{topic}/produce", fields)
    assert f"Wrote the record to {topic}-1 at offset 0" in page.text
    again = visitor.get(f"/topics/{topic}/produce?from={topic}&partition=1&offset=0").text
    assert 'value="a"' in again
    assert ">hello</textarea>" in again
    refused = visitor.submit(f"/topics/{topic}/produce", {**fields, "headers": "x"})
    assert refused.status == 400
    refused = visitor.submit(f"/topics/{topic}/produce", {**fields, "partition": "7"})
    assert "the topic has 2" in refused.text


def test_a_group_is_reset_as_it_was_shown(visitor: Visitor, kafka: Kafka) -> None:
    topic, group = kafka.topic("read", 2), "readers"
    kafka.produce(topic, [b"x"] * 10)
    place = TopicPartition(topic, 0)
    assert not commit_offsets(kafka.client, group, {place: CommittedOffset(4)})
    visitor.sees("/groups?q=readers", ">readers<")
    visitor.sees(f"/groups/{group}", 'class="n">6<')
    visitor.sees(f"/topics/{topic}/groups", group)
    fields = {"action": "reset", "to": "earliest", "argument": "", "topic": ""}
    preview = visitor.submit(f"/groups/{group}", fields)
    assert "0 (4 records read again, at most)" in preview.text
    page = visitor.change(f"/groups/{group}", fields)
    assert "Set the offsets" in page.text
    assert committed_offsets(kafka.client, group)[place].offset == 0
    # The group moves between preview and confirmation: nothing is set.
    proposed = visitor.post(f"/groups/{group}", {**fields, "to": "latest", "csrf": visitor.csrf()})
    commit_offsets(kafka.client, group, {place: CommittedOffset(2)})
    done = visitor.post(proposed.headers["location"], {"csrf": visitor.csrf()})
    assert "has moved since this plan" in visitor.get(done.headers["location"]).text
    assert committed_offsets(kafka.client, group)[place].offset == 2
    refused = visitor.submit(f"/groups/{group}", {**fields, "to": "shift", "argument": "much"})
    assert "expected a number" in refused.text
    page = visitor.change(f"/groups/{group}", {"action": "delete"}, typed=group)
    assert "Deleted group" in page.text


@pytest.mark.parametrize("path", ["/topics/none", "/topics/none/records", "/groups/none"])
def test_a_missing_object_shows_a_page_with_a_remedy(visitor: Visitor, path: str) -> None:
    answer = visitor.get(path)
    assert answer.status == 502
    assert "Try again" in answer.text


def test_lists_are_searched_sorted_and_paged_by_the_server(visitor: Visitor, kafka: Kafka) -> None:
    for number in range(55):
        kafka.topic(f"list-{number:02d}", 1)
    visitor.sees("/topics?q=LIST-", "1–50 of 55 topics")
    assert "51–55 of 55 topics" in visitor.get("/topics?q=list-&page=2").text
    assert "51–55 of 55 topics" in visitor.get("/topics?q=list-&page=99").text
    names = re.findall(r">(list-\d\d)<", visitor.get("/topics?q=list-&order=desc").text)
    assert names[0] == "list-54"
