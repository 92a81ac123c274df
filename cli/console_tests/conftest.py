"""A console as its users start it, a client of HTTP that can lie, and Debian's Chromium.

Most tests speak HTTP: what the server refuses, it must refuse to a client that is no browser.
"""

from __future__ import annotations

import http.client
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import urlencode, urlsplit

import pytest

from odradek_protocol.client import KafkaClient
from odradek_protocol.client.admin.topics import NewTopic, create_topics
from odradek_protocol.client.admin.users import SaltedPassword, set_password
from odradek_protocol.client.fetching import FETCH_BYTES_MAX
from odradek_protocol.client.metadata import NO_LEADER
from odradek_protocol.client.producing import produce_batches
from odradek_protocol.ids import TopicPartition
from odradek_protocol.records.records import Record, build_batch
from odradek_protocol.security.scram import salted_password
from odradek_testkit.engines import RunningBroker, ToolsMissingError
from odradek_testkit.kubernetes.control_plane import ControlPlane
from odradek_testkit.kubernetes.world import three_zones
from odradek_testkit.ports import free_port
from odradek_testkit.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

START_S = 60.0
CHROMIUM_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


class Console:
    """`odradek console` as a process on a free port of loopback."""

    def __init__(self, bootstrap: str, directory: Path, *options: str, **config: str) -> None:
        self.port = free_port()
        self.directory = directory
        self.audit = directory / "audit.log"
        command = [sys.executable, "-m", "odradek_cli"]
        if config:
            path = directory / "client.properties"
            path.write_text("".join(f"{k.replace('_', '.')}={v}\n" for k, v in config.items()))
            command += ["--client-config", str(path)]
        self._command = [
            *command, "console", "--bootstrap", bootstrap, "--listen", f"127.0.0.1:{self.port}",
            "--audit-log", str(self.audit), *options,
        ]  # fmt: skip
        self.log_path = directory / "console.out"
        self.process: subprocess.Popen[str] | None = None
        self.address = f"http://127.0.0.1:{self.port}"
        self.url = ""

    def __enter__(self) -> Self:
        log = self.log_path.open("w")
        self.process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=self.directory
        )
        log.close()
        assert self.process.stdout is not None
        guard = threading.Timer(START_S, self.process.kill)
        guard.start()
        line = ""
        try:
            line = self.process.stdout.readline()
        finally:
            guard.cancel()
            if not line.startswith("ready: "):
                self.process.kill()
                self.process.wait()
                self.process.stdout.close()
        assert line, self.log_path.read_text()
        self.url = line.removeprefix("ready: ").strip()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self.process.stdout.close()
        if kind is None:
            assert code == 0, self.log_path.read_text()
            assert "Traceback" not in self.log_path.read_text(), self.log_path.read_text()


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str


@dataclass
class Visitor:
    """A client with cookies; sends what the test says, whatever a browser would do."""

    console: Console
    cookies: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return self._send("GET", path, None, headers or {})

    def sees(self, path: str, text: str) -> Answer:
        """The page once it shows `text`: lists of topics and groups are some seconds old."""
        answers: list[Answer] = []

        def shown() -> bool:
            answers[:] = [self.get(path)]
            return text in answers[0].text

        wait_until(shown, f"{path} shows {text!r}")
        return answers[0]

    def post(
        self, path: str, fields: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> Answer:
        own = {"Content-Type": "application/x-www-form-urlencoded",
               "Origin": self.console.address}  # fmt: skip
        return self._send("POST", path, urlencode(fields), {**own, **(headers or {})})

    def enter(self) -> Self:
        parts = urlsplit(self.console.url)
        answer = self.get(f"/?{parts.query}")
        assert answer.status == 303, answer.text
        return self

    def login(self, user: str, password: str) -> Answer:
        return self.post("/login", {"user": user, "password": password, "next": "/"})

    def upload(self, fields: Mapping[str, bytes]) -> Answer:
        """The form of the login with files: each field is one."""
        mark = "odradek-form-boundary"
        kind = "Content-Disposition: form-data; filename=f"
        body = b"".join(
            f"--{mark}\r\n{kind}; name={name}\r\n\r\n".encode() + content + b"\r\n"
            for name, content in fields.items()
        )
        own = {"Content-Type": f"multipart/form-data; boundary={mark}",
               "Origin": self.console.address}  # fmt: skip
        return self._send("POST", "/login", body + f"--{mark}--\r\n".encode(), own)

    def csrf(self, path: str = "/topics/-/create") -> str:
        found = re.search(r'name="csrf" value="([^"]+)"', self.get(path).text)
        assert found is not None
        return unescape(found[1])

    def submit(self, path: str, fields: Mapping[str, str]) -> Answer:
        """A form of ours, followed to the page of the change or to where it leads."""
        answer = self.post(path, {**fields, "csrf": self.csrf()})
        return self.get(answer.headers["location"]) if answer.status == 303 else answer

    def change(self, path: str, fields: Mapping[str, str], typed: str = "") -> Answer:
        """Previewed and confirmed."""
        proposed = self.post(path, {**fields, "csrf": self.csrf()})
        where = proposed.headers["location"]
        assert where.startswith("/changes/"), self.get(where).text
        done = self.post(where, {"csrf": self.csrf(), "typed": typed})
        return self.get(done.headers["location"]) if done.status == 303 else done

    def _send(
        self, method: str, path: str, body: str | bytes | None, headers: Mapping[str, str]
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.console.port, timeout=60)
        sent = dict(headers)
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        for cookie in answer.headers.get_all("Set-Cookie", []):
            name, _, value = cookie.split(";")[0].partition("=")
            self.cookies[name] = value.strip('"')
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, found, text)


def add_user(client: KafkaClient, user: str, password: str) -> None:
    """With SCRAM-SHA-512."""
    salt = b"salt" * 4
    salted = salted_password("sha512", password, salt, 4096)
    set_password(client, user, SaltedPassword(2, 4096, salt, salted))


@dataclass
class Kafka:
    """Topics and records for tests, over a client of the cluster's administrator."""

    client: KafkaClient

    def topic(self, name: str, partitions: int = 2, replicas: int = 1) -> str:
        kept = {"retention.ms": "-1"}  # the records of tests are as old as their timestamps say
        refused = create_topics(self.client, [NewTopic(name, partitions, replicas, kept)])
        assert not refused, refused
        wait_until(lambda: self._is_known(name), f"the brokers know topic {name}")
        return name

    def _is_known(self, name: str) -> bool:
        """With leaders. Brokers learn from the controller what it has made."""
        found = self.client.metadata([name]).topics.get(name)
        leaders = [one.leader for one in found.partitions.values()] if found is not None else []
        return bool(leaders) and NO_LEADER not in leaders

    def produce(
        self,
        topic: str,
        values: Sequence[bytes | None],
        partition: int = 0,
        key: bytes = b"k",
        at_ms: int = 1_767_225_600_000,
    ) -> None:
        wait_until(lambda: self._is_known(topic), f"the brokers know topic {topic}")
        info = self.client.metadata([topic]).topics[topic]
        records = [
            Record(i, at_ms + i, key + str(i).encode(), value, [(b"source", b"test")])
            for i, value in enumerate(values)
        ]
        assert sum(len(value or b"") for value in values) < FETCH_BYTES_MAX
        place = TopicPartition(topic, partition)
        outcome = produce_batches(self.client, info, {place: build_batch(records)})
        assert isinstance(outcome[place], int), outcome


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(directory=tmp_path_factory.mktemp("console-broker")) as running:
        yield running


@pytest.fixture(scope="module")
def kafka(broker: RunningBroker) -> Iterator[Kafka]:
    with KafkaClient(broker.bootstrap) as client:
        yield Kafka(client)


@pytest.fixture(scope="module")
def console(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    directory = tmp_path_factory.mktemp("console")
    with Console(broker.bootstrap, directory, "--mask", "masked:card.number") as running:
        yield running


@pytest.fixture
def visitor(console: Console) -> Visitor:
    return Visitor(console).enter()


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A real API server with our CRDs."""
    with ControlPlane(tmp_path_factory.mktemp("kubernetes")) as running:
        three_zones(running)
        yield running


@pytest.fixture
def namespace(kubernetes: ControlPlane, request: pytest.FixtureRequest) -> str:
    """A namespace of the test's own."""
    name = str(request.node.name).replace("_", "-").lower()[:60].strip("-")
    kubernetes.kubectl("create", "namespace", name)
    return name


def chromium() -> str:
    found = shutil.which("chromium")
    if found is None:
        raise ToolsMissingError("chromium is missing: .ci/setup packages")
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    path = chromium()
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=list(CHROMIUM_FLAGS))
        yield running
        running.close()
