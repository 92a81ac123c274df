"""The console in a real Chromium, against real clusters of both engines.

The long tests write the screenshots of the documentation into docs/assets/console if
ODRADEK_SCREENSHOTS is set (`make console-screenshots`).
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from console_tests.conftest import Console, Kafka, Visitor
from console_tests.reports import written_runtime
from odradek_operator.local.runtime import read_report
from odradek_protocol.client import KafkaClient
from odradek_protocol.client.admin.groups import CommittedOffset, commit_offsets, committed_offsets
from odradek_protocol.ids import TopicPartition
from odradek_testkit.cluster import Cluster
from odradek_testkit.engines import RunningApacheKafka
from odradek_testkit.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

ASSETS = Path(__file__).parents[2] / "docs" / "assets" / "console"
WAIT_MS = 60_000  # on a loaded machine
DESKTOP, PHONE = (1280, 720), (390, 844)


@dataclass
class Seen:
    """A page, and what a browser complained about: errors, refused by the CSP, failed loads."""

    page: Page
    address: str
    complaints: list[str] = field(default_factory=list)

    def open(self, path: str) -> Page:
        self.page.goto(self.address + path)
        return self.page


@contextmanager
def looking(
    browser: Browser, console: Console, size: tuple[int, int] = DESKTOP, theme: Any = "light"
) -> Iterator[Seen]:
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=theme
    )
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    seen = Seen(page, console.address)

    def heard(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            seen.complaints.append(message.text)

    page.on("console", heard)
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    page.goto(console.url)
    yield seen
    context.close()
    assert not seen.complaints


def test_a_browser_shows_and_searches(browser: Browser, console: Console, kafka: Kafka) -> None:
    """Search as you type, a filter, and Stop for a live tail; nothing is refused by the CSP."""
    topic = kafka.topic("seen", 2)
    kafka.topic("unseen", 1)
    kafka.produce(topic, [json.dumps({"n": i}).encode() for i in range(200)])
    from playwright.sync_api import expect

    with looking(browser, console) as seen:
        page = seen.page
        expect(page.locator(".verdict h2")).to_have_text("Healthy", timeout=WAIT_MS)
        page.keyboard.press("g")
        page.keyboard.press("t")
        page.wait_for_url("**/topics")
        page.locator("input[type=search]").press_sequentially("unse")
        # The address first: the console may not have seen the second topic before the search.
        page.wait_for_url("**/topics?q=unse")
        expect(page.locator("#topics tbody tr")).to_have_count(1, timeout=WAIT_MS)
        expect(page.locator("#topics tbody tr")).to_contain_text("unseen", timeout=WAIT_MS)
        seen.open(f"/topics/{topic}/records?filter=value.n+%3E+197")
        page.wait_for_selector("#records[data-ended]")
        expect(page.locator(".record")).to_have_count(2, timeout=WAIT_MS)
        page.locator(".record > summary").first.click()
        expect(page.locator(".tree").first).to_contain_text("199", timeout=WAIT_MS)
        seen.open(f"/topics/{topic}/records?start=tail")
        expect(page.locator("#progress")).to_contain_text("read", timeout=WAIT_MS)
        kafka.produce(topic, [b"a new one"], 1)
        page.locator(".record", has_text="a new one").wait_for()
        page.locator("#cancel").click()
        page.wait_for_selector("#records[data-ended]")
        page.locator("#theme").click()
        chosen = re.compile("light|dark")
        expect(page.locator("html")).to_have_attribute("data-theme", chosen, timeout=WAIT_MS)


# -- both engines ----------------------------------------------------------------------------------


@dataclass
class World:
    engine: str
    bootstrap: str
    kafka: Kafka
    console: Console
    replicas: int


@pytest.fixture(scope="module", params=["embedded", "apache"])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    directory = tmp_path_factory.mktemp(request.param)
    running: Any = (
        Cluster(3) if request.param == "embedded" else RunningApacheKafka(directory=directory / "k")
    )
    with running, KafkaClient(running.bootstrap) as client:
        replicas = 3 if request.param == "embedded" else 1
        kafka = Kafka(client)
        _fill(kafka, replicas)
        masked = ("--mask", "orders:customer.card")
        with (
            written_runtime(directory / "shop"),
            Console(running.bootstrap, directory, *masked, "--local", "shop") as console,
            _load(kafka),
            _member(running.bootstrap),
        ):
            yield World(request.param, running.bootstrap, kafka, console, replicas)


def order(number: int) -> bytes:
    return json.dumps(
        {
            "id": number,
            "amount": number % 1000 / 10,
            "status": ("paid", "sent", "failed")[number % 3],
            "customer": {"name": f"customer {number % 50}", "card": "4111111111111111"},
            "items": [{"sku": f"A-{number % 20}", "count": number % 3 + 1}],
        }
    ).encode()


def _fill(kafka: Kafka, replicas: int) -> None:
    for name, partitions in (("orders", 6), ("payments", 12), ("shipments", 3), ("audit", 1),
                             ("customers", 4), ("page-views", 8)):  # fmt: skip
        kafka.topic(name, partitions, replicas)
    for partition in range(6):
        values: list[bytes | None] = [order(i) for i in range(partition, 3_000, 6)]
        kafka.produce("orders", values, partition, b"eu-", time.time_ns() // 1_000_000)
    kafka.produce("payments", [b"x" * 500] * 1_500, 3)
    kafka.client.metadata()
    for group, behind in (("billing", 120), ("reports", 400), ("search-index", 0)):
        offsets = {TopicPartition("orders", n): CommittedOffset(500 - behind) for n in range(6)}
        _retry_commit(kafka, group, offsets)


def _retry_commit(kafka: Kafka, group: str, offsets: dict[TopicPartition, CommittedOffset]) -> None:
    refused = commit_offsets(kafka.client, group, offsets)
    assert not refused, refused


@contextmanager
def _load(kafka: Kafka) -> Iterator[None]:
    """A few records each 0.3 s, with a client of its own."""
    end = threading.Event()
    bootstrap = ",".join(map(str, kafka.client.bootstrap))

    def write() -> None:
        with KafkaClient(bootstrap) as client:
            own, number = Kafka(client), 3_000
            while not end.wait(0.3):
                values: list[bytes | None] = [order(number + i) for i in range(20 + number % 15)]
                own.produce("orders", values, number % 6, b"eu-", time.time_ns() // 1_000_000)
                own.produce(
                    "page-views", [b"/home"] * 30, number % 8, b"k", time.time_ns() // 10**6
                )
                number += 35

    thread = threading.Thread(target=write)
    thread.start()
    yield
    end.set()
    thread.join()


@contextmanager
def _member(bootstrap: str) -> Iterator[None]:
    """A real consumer in group `shipping`."""
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "shipping",
                         "auto.offset.reset": "earliest", "client.id": "shipping-1",
                         "auto.commit.interval.ms": 500, "log_level": 2})  # fmt: skip
    consumer.subscribe(["orders", "page-views"])
    end = threading.Event()

    def poll() -> None:
        while not end.is_set():
            consumer.poll(0.1)

    thread = threading.Thread(target=poll)
    thread.start()
    yield
    end.set()
    thread.join()
    consumer.close()


PATHS = {
    "overview": "/",
    "brokers": "/brokers",
    "broker": "/brokers/1?all=1",
    "topics": "/topics",
    "create-topic": "/topics/-/create",
    "topic": "/topics/orders",
    "records": "/topics/orders/records",
    "produce": "/topics/orders/produce",
    "topic-groups": "/topics/orders/groups",
    "topic-settings": "/topics/orders/settings?all=1",
    "producers": "/topics/orders/producers",
    "groups": "/groups",
    "group": "/groups/billing",
    "security": "/security",
    "users": "/security?tab=users",
    "quotas": "/security?tab=quotas",
    "certificates": "/security?tab=certificates",
    "plan": "/plan",
    "pipelines": "/pipelines",
    "pipeline": "/pipelines/default/views-by-country",
    "rebalance": "/rebalance",
    "nothing": "/topics?q=nothing-is-called-so",
}
# Those of the documentation: name → also dark, also on a phone.
SHOTS = {"overview": True, "topic": False, "records": True, "groups": False, "group": False,
         "plan": True, "pipeline": True}  # fmt: skip


@pytest.mark.long  # axe over every page of both engines takes a minute
def test_pages_are_accessible(browser: Browser, world: World) -> None:
    from axe_playwright_python.sync_playwright import Axe

    found = []
    for theme in ("light", "dark"):
        with looking(browser, world.console, theme=theme) as seen:
            for name, path in PATHS.items():
                result = Axe().run(seen.open(path)).response
                found += [
                    (theme, name, one["id"], one["nodes"][0]["html"][:200])
                    for one in result["violations"]
                    if one["impact"] in ("serious", "critical")
                ]
    assert not found


@pytest.mark.long  # two clusters
def test_pages_fit_a_desktop_and_a_phone(browser: Browser, world: World) -> None:
    for size in (DESKTOP, PHONE):
        with looking(browser, world.console, size) as seen:
            for name, path in PATHS.items():
                page = seen.open(path)
                wide = page.evaluate("document.documentElement.scrollWidth")
                assert wide <= size[0], (name, wide)


@pytest.mark.long  # two clusters
def test_offsets_are_reset_with_the_keyboard_and_mouse(browser: Browser, world: World) -> None:
    from playwright.sync_api import expect

    with looking(browser, world.console) as seen:
        page = seen.open("/groups/reports")
        page.locator("select[name=to]").select_option("earliest")
        page.get_by_role("button", name="Preview…").click()
        page.wait_for_url("**/changes/*")
        expect(page.locator("tbody tr")).to_have_count(6, timeout=WAIT_MS)
        page.get_by_role("button", name="Set these offsets").click()
        page.get_by_text("Set the offsets of group reports").wait_for()
    offsets = committed_offsets(world.kafka.client, "reports")
    assert {one.offset for one in offsets.values()} == {0}


@pytest.mark.long  # two clusters
def test_topics_are_made_and_deleted(browser: Browser, world: World) -> None:
    from playwright.sync_api import expect

    with looking(browser, world.console) as seen:
        page = seen.open("/topics/-/create")
        page.get_by_label("Name", exact=True).fill("made-here")
        page.get_by_label("Partitions").fill("3")
        page.get_by_role("button", name="Preview").click()
        page.get_by_role("button", name="Create topic").click()
        page.get_by_text("Created topic made-here").wait_for()
        expect(page.locator("#map tbody tr")).to_have_count(3, timeout=WAIT_MS)
        page.get_by_role("button", name="Delete topic…").click()
        page.locator("input[name=typed]").fill("made-here")
        page.get_by_role("button", name="Delete topic").click()
        page.get_by_text("Deleted topic made-here").wait_for()


MANIFEST = """\
apiVersion: odradek.dev/v1alpha1
kind: KafkaCluster
metadata: {{name: main}}
spec:
  brokers: 3
  racks: {{names: [a, b, c]}}
  config: {{queued.max.requests: {requests}}}
"""


@contextmanager
def _local_up(directory: Path) -> Iterator[str]:
    """`odradek local up` of a cluster; its addresses, once it is ready."""
    manifest = directory / "cluster.yaml"
    manifest.write_text(MANIFEST.format(requests=500))
    log = (directory.parent / "local.out").open("w")
    command = [sys.executable, "-m", "odradek_cli", "local", "up", "-f", str(directory)]
    with log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            wait_until(lambda: _addresses(directory) != "", "local up", 120.0)
            yield _addresses(directory)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _addresses(directory: Path) -> str:
    report = read_report(directory / ".odradek")
    if report is None or not report.settled:
        return ""
    return report.clusters["default/main"].status.bootstrap_servers


@pytest.mark.long  # three brokers are restarted, one after the other
def test_a_roll_is_watched(browser: Browser, tmp_path: Path) -> None:
    """A change of the manifest; the open page follows the real roll to its end, untouched."""
    from playwright.sync_api import expect

    manifests = tmp_path / "manifests"
    manifests.mkdir()
    with (
        _local_up(manifests) as bootstrap,
        Console(bootstrap, tmp_path, "--local", str(manifests)) as console,
        looking(browser, console) as seen,
    ):
        page = seen.open("/plan")
        expect(page.locator("#plan")).to_contain_text("Nothing is to be done", timeout=WAIT_MS)
        page.evaluate(WATCH_THE_PLAN)
        (manifests / "cluster.yaml").write_text(MANIFEST.format(requests=501))
        page.wait_for_function(SAW_A_STEP)
        expect(page.locator("#plan")).to_contain_text("Nothing is to be done", timeout=WAIT_MS)


# The page asks every five seconds; a roll of three empty brokers may take less. What it showed is
# kept: the roll may be over before the test looks.
WATCH_THE_PLAN = """() => {
  window.shown = [];
  setInterval(async () => {
    const text = await (await fetch(location.href, {headers: {"X-Live": "1"}})).text();
    const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("plan");
    document.getElementById("plan").innerHTML = fresh.innerHTML;
    window.shown.push([fresh.textContent, fresh.querySelector(".now .chip") !== null]);
  }, 200);
}"""
SAW_A_STEP = """() => window.shown.some(
  ([text, step]) => step && text.includes("queued.max.requests changed"))"""


def _propose(page: Page, world: World) -> None:
    """All of a topic is on two brokers: a proposal has moves, and both sides of the map differ."""
    from confluent_kafka.admin import AdminClient, NewTopic

    placed = [[1, 2] if number % 3 else [1, 3] for number in range(12)]
    admin = AdminClient({"bootstrap.servers": world.bootstrap})
    admin.create_topics([NewTopic("clicks", 12, replica_assignment=placed)])["clicks"].result(60)
    for number in range(12):
        world.kafka.produce("clicks", [bytes(20_000)] * (5 + 3 * number), number)
    page.goto(f"{world.console.address}/rebalance")
    page.get_by_role("button", name="Propose").click()
    page.get_by_role("heading", name="Moves", exact=True).wait_for()


@pytest.mark.long  # the ring needs some points before a chart is worth a picture
def test_screenshots(browser: Browser, world: World, tmp_path: Path) -> None:
    if world.engine != "embedded":
        pytest.skip("the documentation shows the cluster with three brokers")
    target = ASSETS if os.environ.get("ODRADEK_SCREENSHOTS") else tmp_path
    target.mkdir(parents=True, exist_ok=True)
    visitor = Visitor(world.console).enter()

    def has_points() -> bool:  # the sampler adds one per ten seconds
        found = re.search(r'class="line s0" points="([^"]+)"', visitor.get("/").text)
        return found is not None and len(found[1].split()) >= 6

    wait_until(has_points, "the charts have points", deadline_s=200)
    for theme, size, suffix in (("light", DESKTOP, ""), ("dark", DESKTOP, "-dark"),
                                ("light", PHONE, "-phone")):  # fmt: skip
        with looking(browser, world.console, size, theme) as seen:
            for name, everywhere in SHOTS.items():
                if suffix and not everywhere:
                    continue
                page = seen.open(PATHS[name])
                if name == "records":
                    page.locator(".record > summary").nth(1).click()
                page.screenshot(path=target / f"{name}{suffix}.png")
    with looking(browser, world.console) as seen:
        page = seen.open("/groups/billing")
        page.get_by_role("button", name="Preview…").click()
        page.wait_for_url("**/changes/*")
        page.screenshot(path=target / "change.png")
        _propose(page, world)
        page.screenshot(path=target / "rebalance.png")
        page = seen.open("/topics/orders/records?filter=value.status+%3D%3D+%22failed%22")
        page.wait_for_selector("#records[data-ended]")
        page.screenshot(path=target / "filter.png")
    assert len(list(target.glob("*.png"))) >= len(SHOTS)
