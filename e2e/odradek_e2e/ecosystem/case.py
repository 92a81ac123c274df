"""A case: one client or framework, and how it is run against a server."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from odradek_e2e.ecosystem.contract import Check, Look, parse, prepare
from odradek_testkit.engines import RunningApacheKafka, RunningBroker

PROGRAM_S = 900.0  # a program that hangs fails its case instead of blocking the run


@dataclass(frozen=True)
class Place:
    """Where a case runs: a server, a directory for logs, a prefix for topics."""

    server: RunningApacheKafka | RunningBroker
    directory: Path
    prefix: str


@dataclass(frozen=True)
class Case:
    """`run` does everything and returns the checks."""

    name: str
    title: str  # for the table: the client, its version, where it comes from
    run: Callable[[Place], list[Check]]
    checks: tuple[str, ...] = ()  # each has to be reported, so that a silent program fails


# The report of a client.
CLIENT = ("admin", "records none", "records gzip", "records snappy", "records lz4", "records zstd",
          "others", "group", "idempotent", "transactions")  # fmt: skip


def program_case(
    name: str, title: str, command: Callable[[], Sequence[str]], checks: tuple[str, ...] = CLIENT
) -> Case:
    """A program that follows the contract: its own report, confirmed from outside."""

    def run(place: Place) -> list[Check]:
        started = list(command())  # builds, if needed, before any topic exists
        prepare(place.server.bootstrap, place.prefix)
        log_path = place.directory / f"{name}.log"
        with open(log_path, "w") as log:
            done = subprocess.run(
                [*started, place.server.bootstrap, place.prefix],
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=place.directory,
                text=True,
                timeout=PROGRAM_S,
                check=False,
            )
        look = Look(place.server.bootstrap, place.server.data_dir, place.prefix)
        found = [look.confirm(check) for check in parse(done.stdout)]
        if done.returncode != 0:
            last = f"{done.stdout[-500:]}{log_path.read_text()[-1500:]}"
            found.append(Check("exit", "failed", f"exit code {done.returncode}: {last}"))
        return found

    return Case(name, title, run, checks=checks)


def complete(case: Case, found: list[Check]) -> list[Check]:
    """The checks, and a failure for each that the case should have reported."""
    reported = {check.name for check in found}
    lost = [name for name in case.checks if name not in reported]
    return found + [Check(name, "failed", "was not reported") for name in lost]
