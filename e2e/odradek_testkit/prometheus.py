"""A real Prometheus for tests, from the PATH or from Debian's package (unpacked, not installed: an
installed one would start a service).

    with Prometheus(directory, targets=["127.0.0.1:9404"], rules="groups: …") as prometheus:
        prometheus.query("sum(up)")           # [({}, 1.0)]
        prometheus.firing()                   # {"KafkaBrokerFenced"}
"""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from odradek_testkit.caching import cache_home
from odradek_testkit.ports import free_port
from odradek_testkit.waiting import wait_until

SCRAPE_INTERVAL = "1s"


class PrometheusMissingError(Exception):
    """Prometheus is not on this machine and cannot be had; the text says what to do."""


@cache
def program(name: str) -> Path:
    """`prometheus` or `promtool`."""
    if found := shutil.which(name):
        return Path(found)
    unpacked = cache_home() / "prometheus"
    path = unpacked / "usr" / "bin" / name
    if not path.exists():
        if not (shutil.which("apt-get") and shutil.which("dpkg")):
            raise PrometheusMissingError(f"{name} is not on the PATH: install Prometheus")
        _unpack(unpacked)
    return path


def _unpack(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    try:
        _run(["apt-get", "download", "prometheus"], directory)
    except PrometheusMissingError:  # the package lists may be missing or old
        _run(["apt-get", "update", "-qq"], directory)
        _run(["apt-get", "download", "prometheus"], directory)
    for package in directory.glob("prometheus_*.deb"):
        _run(["dpkg", "-x", package.name, "."], directory)
        package.unlink()


def _run(command: Sequence[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PrometheusMissingError(f"{' '.join(command)} failed: {done.stderr.strip()}")


class Prometheus:
    """A server with a data directory of its own; scrapes once a second."""

    def __init__(self, directory: Path, targets: Sequence[str], rules: str) -> None:
        self._directory = directory
        self._targets = list(targets)
        self._rules = rules
        self._address = f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / "rules.yaml").write_text(self._rules)
        config = {
            "global": {"scrape_interval": SCRAPE_INTERVAL, "evaluation_interval": SCRAPE_INTERVAL},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [
                {"job_name": "kafka", "static_configs": [{"targets": self._targets}]}
            ],
        }
        (self._directory / "prometheus.yaml").write_text(yaml.safe_dump(config))
        with (self._directory / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    program("prometheus"),
                    f"--config.file={self._directory / 'prometheus.yaml'}",
                    f"--storage.tsdb.path={self._directory / 'data'}",
                    f"--web.listen-address={self._address}",
                ],
                stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        wait_until(self._ready, deadline_s=60)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait()

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series."""
        found = self._get("query", query=expression)["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]

    def firing(self) -> set[str]:
        return {
            alert["labels"]["alertname"]
            for alert in self._get("alerts")["alerts"]
            if alert["state"] == "firing"
        }

    def _get(self, what: str, **query: str) -> Any:
        url = f"http://{self._address}/api/v1/{what}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as response:
            return json.load(response)["data"]

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._directory / "log").read_text()
        try:
            with urllib.request.urlopen(f"http://{self._address}/-/ready", timeout=5):
                return True
        except OSError:
            return False
