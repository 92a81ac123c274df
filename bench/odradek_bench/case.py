"""The interface of a case, and the objects that it may use while it runs.

A case measures one engine once per call; runner.py calls it for both in turn, round after round:

    def run(bench: Bench, engine: str) -> Sample: ...
    CASES = (Case("produce-1k", "librdkafka produce, 1 KB", run, (Metric("MB/s", better="more"),)),)

The first metric is the headline that `make bench-smoke` prints.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from odradek_bench import engines, load
from odradek_bench.engines import ENGINES, Servers
from odradek_bench.usage import Meter

Sample = dict[str, float]  # metric -> value
# Servers are idle while all of them together use less than this share of a core.
RESTING = 0.15
SETTLE_WINDOW_S = 0.4
SETTLE_MAX_S = 5.0
LIMIT = "limit"  # no engine, but a plain loop over sockets and files


class UnavailableError(Exception):
    """This engine cannot run this case; the report shows the reason."""


@dataclass(frozen=True)
class Metric:
    """A number that a case reports, and which direction is better."""

    name: str
    better: Literal["more", "less"]


@dataclass(frozen=True)
class Case:
    """One benchmark; `run` measures one engine once."""

    name: str
    title: str
    run: Callable[[Bench, str], Sample]
    metrics: tuple[Metric, ...]
    rounds: int = 5
    smoke_rounds: int = 1
    servers: Literal["shared", "tls", "cluster", "own"] = "shared"
    limit: str = ""  # the case of limits.py that the report compares it with
    engines: tuple[str, ...] = ENGINES
    budget_s: float = 90.0  # no further round begins after this
    warm_up: bool = True  # shared servers first run a small round that does not count
    warm_rounds: int = 0  # and this many of full size, until the JVM has compiled the hot path


BULK = (Metric("MB/s", "more"), Metric("broker CPU s/GB", "less"), Metric("RSS MB", "less"))


@dataclass
class Bench:
    """One run: its size, its directory and the servers that cases share."""

    directory: Path
    smoke: bool = False  # the run only shows that every case works
    small: bool = False  # a round of a smoke run, or one that warms up
    seed: int = 1
    peaks: dict[bool, float] = field(default_factory=dict)  # latency.py: small? -> half of the peak
    _shared: dict[tuple[str, str], Servers] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def size(self, full: int, smoke: int) -> int:
        return smoke if self.small else full

    def new_directory(self, engine: str) -> Path:
        return self.directory / f"{engine}-{next(self._numbers)}"

    def start_servers(self) -> None:
        """Both engines' shared brokers at the same time, because a JVM starts slowly."""
        with ThreadPoolExecutor(len(ENGINES)) as pool:
            list(pool.map(self.server, ENGINES))

    def server(self, engine: str, *, tls: bool = False) -> Servers:
        """The engine's shared broker (or the one with TLS), from its first use until `close`.

        A broker that died in an earlier case is replaced, so that only that case fails.
        """
        return self._get("tls" if tls else "shared", engine)

    def cluster(self, engine: str) -> Servers:
        """The engine's three brokers, shared between the cases that need a cluster."""
        return self._get("cluster", engine)

    def _get(self, kind: str, engine: str) -> Servers:
        known = self._shared.get((kind, engine))
        if known is not None and not known.alive:
            self._shared.pop((kind, engine)).stop()
        if (kind, engine) not in self._shared:
            directory = self.new_directory(engine)
            if kind in ("shared", "tls"):
                settings = {**TIDY_SETTINGS, **(SMOKE_SETTINGS if self.smoke else {})}
                one = engines.one_with_tls if kind == "tls" else engines.one
                made = one(engine, directory, settings, quick=self.smoke)
            else:
                settings = {**CLUSTER_SETTINGS, **(SMOKE_CLUSTER if self.smoke else {})}
                made = engines.many(engine, directory, 3, settings, quick=self.smoke)
            self._shared[kind, engine] = made
            made.start()
        return self._shared[kind, engine]

    @contextmanager
    def own(self, engine: str, settings: Mapping[str, str] | None = None) -> Iterator[Servers]:
        """A broker for one round, which may be killed; a smoke run uses the shared one."""
        if self.smoke:
            yield self.server(engine)
            return
        with engines.running(engines.one(engine, self.new_directory(engine), settings)) as servers:
            yield servers

    @contextmanager
    def topic(self, servers: Servers, partitions: int = 1, replication_factor: int = 1,
              **config: str) -> Iterator[str]:  # fmt: skip
        """A new topic, deleted at the end (unless the case fails): each round has its own."""
        name = f"bench-{next(self._numbers)}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        load.create_topic(servers.bootstrap, name, partitions, replication_factor, settings)
        yield name
        load.delete_topic(servers.bootstrap, name)

    def settle(self) -> None:
        """Waits until the shared servers are idle.

        Work that an engine still does for its last round (a JVM compiles, files are deleted) would
        otherwise be charged to the next engine.
        """
        pids = [pid for servers in self._shared.values() if servers.alive for pid in servers.pids]
        give_up = time.monotonic() + SETTLE_MAX_S
        while pids and not self.smoke and time.monotonic() < give_up:
            with Meter(pids) as meter:
                time.sleep(SETTLE_WINDOW_S)
            if meter.cpu_s < RESTING * meter.wall_s:
                return

    def close(self, kind: str = "") -> None:
        """Stops the shared servers (of one kind, or all)."""
        for key in [key for key in self._shared if kind in ("", key[0])]:
            self._shared.pop(key).stop()


# Files of a round are deleted before the next one begins, not a minute later (the default) in the
# middle of another round. This also reuses memory: pages that a virtual machine has never touched
# come from its host one by one, which costs 2.5 CPU s/GB.
TIDY_SETTINGS = {
    "log.segment.delete.delay.ms": "500",
    # One broker; ours would have one replica by itself.
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}

CLUSTER_SETTINGS = {
    **TIDY_SETTINGS,
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
}

# The cleaner looks for work at once; a lost broker is fenced within two seconds.
SMOKE_SETTINGS = {"log.cleaner.backoff.ms": "200"}
SMOKE_CLUSTER = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
