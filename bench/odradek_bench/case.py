"""What a case is, and what it may use while it runs.

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
# Servers rest while all of them together need less than this share of a core.
RESTING = 0.15
SETTLE_WINDOW_S = 0.4
SETTLE_MAX_S = 5.0
LIMIT = "limit"  # the engine that is none: a plain loop over sockets and files


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
    servers: Literal["shared", "cluster", "own"] = "shared"
    limit: str = ""  # the physical limit (a case of limits.py) beside which the report puts it
    engines: tuple[str, ...] = ENGINES
    budget_s: float = 90.0  # no further round begins after so long
    warm_up: bool = True  # a small round first that does not count, where servers are shared
    warm_rounds: int = 0  # and so many of full size: what a JVM has not compiled is no measure


BULK = (Metric("MB/s", "more"), Metric("broker CPU s/GB", "less"), Metric("RSS MB", "less"))


@dataclass
class Bench:
    """One run: its size, its directory and the servers that cases share."""

    directory: Path
    smoke: bool = False  # the whole run only shows that everything works
    small: bool = False  # this round does: a smoke run's, or one that warms up
    seed: int = 1
    peaks: dict[bool, float] = field(default_factory=dict)  # latency.py: small? -> half of the peak
    _shared: dict[tuple[str, str], Servers] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def size(self, full: int, smoke: int) -> int:
        return smoke if self.small else full

    def new_directory(self, engine: str) -> Path:
        return self.directory / f"{engine}-{next(self._numbers)}"

    def start_servers(self) -> None:
        """Both engines' shared brokers at once: a JVM takes its time."""
        with ThreadPoolExecutor(len(ENGINES)) as pool:
            list(pool.map(self.server, ENGINES))

    def server(self, engine: str) -> Servers:
        """The engine's broker that lives from the first case that asks for it to `close`.

        One that died in an earlier case is replaced: that case failed, this one may not.
        """
        return self._get("shared", engine)

    def cluster(self, engine: str) -> Servers:
        """The engine's three brokers, shared between the cases that need a cluster."""
        return self._get("cluster", engine)

    def _get(self, kind: str, engine: str) -> Servers:
        known = self._shared.get((kind, engine))
        if known is not None and not known.alive:
            self._shared.pop((kind, engine)).stop()
        if (kind, engine) not in self._shared:
            directory = self.new_directory(engine)
            if kind == "shared":
                settings = {**TIDY_SETTINGS, **(SMOKE_SETTINGS if self.smoke else {})}
                made = engines.one(engine, directory, settings, quick=self.smoke)
            else:
                settings = {**CLUSTER_SETTINGS, **(SMOKE_CLUSTER if self.smoke else {})}
                made = engines.many(engine, directory, 3, settings, quick=self.smoke)
            self._shared[kind, engine] = made
            made.start()
        return self._shared[kind, engine]

    @contextmanager
    def own(self, engine: str, settings: Mapping[str, str] | None = None) -> Iterator[Servers]:
        """A broker for one round, to be stopped and killed; a smoke run spares the start."""
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
        """Waits until the shared servers rest.

        What an engine still does about its last round (a JVM compiles, files are deleted) would
        be charged to the one that comes next.
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


# What a round wrote is deleted before the next one begins, and not a minute later (the default)
# in the middle of somebody's round. Also, memory that a virtual machine has never used comes
# from its host page by page, at 2.5 CPU s/GB for whoever's turn it is: so the same is used again.
TIDY_SETTINGS = {"log.segment.delete.delay.ms": "500"}

CLUSTER_SETTINGS = {
    **TIDY_SETTINGS,
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
}

# Compaction looks for work at once; a lost broker is noticed within two seconds.
SMOKE_SETTINGS = {"log.cleaner.backoff.ms": "200"}
SMOKE_CLUSTER = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
