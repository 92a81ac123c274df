"""The screen of `odradek local demo` while brokers restart.

On a terminal: a table of the brokers and a line about the clients, always up to date, and above
them what has happened. In a pipe or a log: one line per step, nothing else.

       8.6 s  restart brokers 2 and 5: a restart was requested
              leaders at home 100 %, replicas behind 0; 5,227 acknowledged, 0 errors
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from odradek_cli.output import remarks

if TYPE_CHECKING:
    from odradek_operator.local.runtime import ClusterReport


@dataclass
class BrokerTimes:
    """Seconds since the beginning of the roll; None: not yet."""

    rack: str
    asked: float
    up: float | None = None  # ready again
    home: float | None = None  # all its replicas in sync, all its leaders back


class RollScreen:
    """Follows the runtime's reports; keeps the times of each broker that restarts."""

    def __init__(self, clients_line: Callable[[], str] = lambda: "") -> None:
        from rich.live import Live

        self.began = time.monotonic()
        self.steps = 0
        self.times: dict[int, BrokerTimes] = {}
        self._pids: dict[int, int] = {}
        self._clients_line = clients_line
        self._console = remarks()
        self._live = Live(console=self._console, refresh_per_second=4, transient=True)
        self._said = ""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def show(self, cluster: ClusterReport) -> None:
        now = time.monotonic() - self.began
        self._note(cluster, now)
        line = ([*cluster.failures, *cluster.plan] or ["nothing left to do"])[0]
        if line != self._said:
            self._said = line
            self._console.print(f"   {now:5.1f} s  {line}", markup=False, soft_wrap=True)
            if (
                self._clients_line() and not self._console.is_terminal
            ):  # on a terminal the table shows it
                text = f"{'':12}{self._summary(cluster)}"
                self._console.print(text, style="dim", markup=False, soft_wrap=True)
        if self._console.is_terminal:
            self._live.update(self._table(cluster))

    def _note(self, cluster: ClusterReport, now: float) -> None:
        status = cluster.status
        rolling = status.rolling
        if rolling is not None and rolling.state == "Restarting":
            fresh = [b for b in rolling.brokers if b not in self.times]
            self.steps += bool(fresh)
            for broker in status.brokers:
                if broker.id in fresh:
                    self.times[broker.id] = BrokerTimes(broker.rack, now)
                    self._pids[broker.id] = cluster.pids.get(broker.id, 0)
        for broker in status.brokers:
            found = self.times.get(broker.id)
            if found is None or cluster.pids.get(broker.id) in (None, self._pids[broker.id]):
                continue
            if broker.ready and found.up is None:
                found.up = now
            whole = broker.ready and not broker.under_replicated
            if whole and broker.leaders >= broker.preferred_leaders and found.home is None:
                found.home = now

    def _summary(self, cluster: ClusterReport) -> str:
        behind = sum(b.under_replicated for b in cluster.status.brokers)
        return (
            f"leaders at home {cluster.status.preferred_leaders_percent} %, replicas behind "
            f"{behind}{self._clients_line()}"
        )

    def _table(self, cluster: ClusterReport) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for column in ("   broker", "rack", "state", "leaders", "not in sync", "restarted in"):
            table.add_column(column, style="bold" if column == "   broker" else "")
        for b in cluster.status.brokers:
            times = self.times.get(b.id)
            role = " controller" if b.id == cluster.status.controller else ""
            state = "[green]ready[/]" if b.ready else "[yellow]away[/]"
            took = f"{times.home - times.asked:.1f} s" if times and times.home else ""
            waiting = b.pending and not times
            table.add_row(
                f"   {b.id}{role}", b.rack, f"{state}{', to be restarted' if waiting else ''}",
                f"{b.leaders} of {b.preferred_leaders}", str(b.under_replicated or ""), took,
            )  # fmt: skip
        return Group(table, Text(f"   {self._summary(cluster)}", style="dim"))
