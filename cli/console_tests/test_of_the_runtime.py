"""What a runtime adds to other pages: queries of Spark among the groups, certificates."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from html import unescape

import pytest

from console_tests.conftest import Console, Kafka, Visitor
from console_tests.reports import written_runtime
from odradek_api.base import instant
from odradek_console.text import days_until
from odradek_protocol.client.admin.groups import CommittedOffset, commit_offsets
from odradek_protocol.ids import TopicPartition
from odradek_testkit.engines import RunningBroker

PIPELINE = "default/views-by-country"


@pytest.fixture(scope="module")
def visitor(
    broker: RunningBroker, kafka: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Visitor]:
    directory = tmp_path_factory.mktemp("runtime")
    topic = kafka.topic("orders", 1)
    kafka.produce(topic, [b"x"] * 10)
    for group, offset in (("billing", 4), ("zebra", 10)):
        place = TopicPartition(topic, 0)
        assert not commit_offsets(kafka.client, group, {place: CommittedOffset(offset)})
    with (
        written_runtime(directory / "shop") as shop,
        Console(broker.bootstrap, directory, "--local", str(shop)) as console,
    ):
        yield Visitor(console).enter()


def rows(page: str) -> list[list[str]]:
    found = re.findall(r"<tr>(<td>.*?)</tr>", page, re.DOTALL)
    return [[unescape(re.sub(r"<[^>]+>", "", cell)).strip()
             for cell in re.findall(r"<td.*?</td>", row, re.DOTALL)] for row in found]  # fmt: skip


def test_queries_of_spark_are_in_the_list_of_groups(visitor: Visitor) -> None:
    page = visitor.sees("/groups", ">billing<").text
    found = {row[0]: row for row in rows(page)}
    assert list(found) == ["billing", "default/refunds", PIPELINE, "zebra"]
    assert found[PIPELINE][1:5] == ["Spark query", "Running", "–", "1,274"]
    assert found["billing"][4] == "6"
    assert found["default/refunds"][1:5] == ["Spark query", "Waiting", "–", "–"]
    assert f'href="/pipelines/{PIPELINE.replace("/", "/")}"' in page
    assert [row[0] for row in rows(visitor.get("/groups?q=views").text)] == [PIPELINE]
    only = rows(visitor.get("/groups?kind=Spark+query").text)
    assert [row[0] for row in only] == ["default/refunds", PIPELINE]
    assert rows(visitor.get("/groups?sort=lag").text)[0][0] == PIPELINE
    assert rows(visitor.get("/groups?state=Running").text)[0][0] == PIPELINE


def test_certificates_with_their_expiry(visitor: Visitor) -> None:
    """The first to expire first; 5 days left is an alarm, 29 a warning."""
    page = visitor.get("/security?tab=certificates").text
    found = rows(page)
    assert [row[0] for row in found] == ["broker 2", "broker 1", "cluster CA"]
    assert [row[1] for row in found] == ["default/main"] * 3
    assert re.search(r'class="chip bad">5<', page)
    assert re.search(r'class="chip warn">28<', page)
    assert "TrustBoth: waiting for broker 3" in page


def test_without_a_runtime_there_are_none(console: Console) -> None:
    alone = Visitor(console).enter()
    assert "certificates" not in alone.get("/security").text
    assert alone.get("/security?tab=certificates").status == 404
    assert "Spark query" not in alone.get("/groups").text


def test_days_until() -> None:
    now = time.time()
    assert days_until(instant(now + 86_400 + 60), now) == 1
    assert days_until(instant(now - 60), now) == -1
    assert days_until("soon", now) is None
