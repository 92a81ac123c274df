"""`odradek top`: the console's overview in a terminal, live, for any Kafka cluster.

    odradek top                        until Ctrl-C
    odradek top --once                 once, as text
    odradek top --json                 once, for scripts

Kafka's protocol has no rates: they are the growth between two looks, `--interval` apart.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek_cli import session
from odradek_cli.errors import CliError
from odradek_cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from odradek_cli.output import bytes_text, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from odradek_console.cluster.brokers import BrokerRow
    from odradek_console.cluster.overview import Overview
    from odradek_console.cluster.view import ClusterView

BROKERS_SHOWN = 20
BARS = "▁▂▃▄▅▆▇█"
BARS_SHOWN = 60
COLOURS = {"healthy": "green", "degraded": "yellow", "unavailable": "red"}


def top(
    interval: Annotated[
        float,
        typer.Option("--interval", min=0.5, metavar="SECONDS", help="Between two looks."),
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print it once, and end.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show the health and the load of a cluster in the terminal; for any Kafka cluster."""
    from odradek_console.cluster.access import Access
    from odradek_console.cluster.view import ClusterView

    view = ClusterView(Access(bootstrap, session.current().security()))
    try:
        if once or as_json or not sys.stdout.isatty():
            _show_once(view, interval, as_json=as_json)
        else:
            _show_live(view, interval)
    finally:
        view.close()


def _show_once(view: ClusterView, interval: float, *, as_json: bool) -> None:
    from rich.console import Console

    from odradek_console.cluster import brokers, overview
    from odradek_console.cluster.sampling import sample
    from odradek_protocol.client.errors import ClientError

    try:
        view.metadata()  # a cluster that does not answer is an error of the command
        sample(view)
        time.sleep(interval)
        sample(view)
        found, rows = overview.collect(view), brokers.collect(view)[0]
    except ClientError as error:
        raise CliError(str(error)) from None
    if as_json:
        print_json(_as_json(view, found, rows))
    else:
        console = Console()
        if not console.is_terminal:
            console = Console(width=160)
        console.print(_screen(view, found, rows))


def _show_live(view: ClusterView, interval: float) -> None:
    from rich.live import Live

    from odradek_console.cluster.sampling import sample

    stopped = False

    def stop(*_: object) -> None:
        """An exception that is raised amid a destructor gets lost: the flag ends the loop then."""
        nonlocal stopped
        stopped = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, stop)
    with Live(screen=True, auto_refresh=False) as live:
        try:
            while not stopped:
                began = time.monotonic()
                view.used_at = began
                sample(view)
                live.update(_look(view), refresh=True)
                time.sleep(max(interval - (time.monotonic() - began), 0.1))
        except KeyboardInterrupt:
            return


def _look(view: ClusterView) -> RenderableType:
    from rich.text import Text

    from odradek_console.cluster import brokers, overview
    from odradek_protocol.client.errors import ClientError

    try:
        return _screen(view, overview.collect(view), brokers.collect(view)[0])
    except ClientError as error:
        return Text(f"The cluster does not answer: {error}. Trying again …", style="red")


def _as_json(view: ClusterView, found: Overview, rows: Sequence[BrokerRow]) -> dict[str, Any]:
    from odradek_console.cluster.sampling import RECORDS, ROUND_TRIP

    health = found.health
    return {
        "cluster_id": found.cluster_id,
        "state": health.state if health is not None else "unknown",
        "sentence": found.sentence,
        "topics": found.topics,
        "partitions": found.partitions,
        "under_replicated": health.under_replicated if health is not None else None,
        "without_leader": health.without_leader if health is not None else None,
        "moving": found.moves,
        "bytes": found.bytes_total,
        "records_per_second": view.history.last(RECORDS),
        "brokers": [
            {
                "id": row.broker.broker_id,
                "address": str(row.broker.address),
                "rack": row.broker.rack,
                "running": not row.broker.fenced,
                "controller": row.is_controller,
                "leaders": row.leaders,
                "replicas": row.replicas,
                "behind": row.behind,
                "bytes": row.bytes_used if row.directories else None,
                "round_trip_ms": view.history.last((ROUND_TRIP, row.broker.broker_id)),
            }
            for row in rows
        ],
        "lagging_groups": [{"group": group, "lag": int(lag)} for group, lag in found.lagging],
        "busiest_topics": [
            {"topic": topic, "records_per_second": rate} for topic, rate in found.busiest
        ],
    }


# -- the screen ------------------------------------------------------------------------------------


def _screen(view: ClusterView, found: Overview, rows: Sequence[BrokerRow]) -> RenderableType:
    from rich.columns import Columns
    from rich.console import Group
    from rich.text import Text

    from odradek_console.cluster.sampling import RECORDS
    from odradek_console.text import count_text, rate_text

    state = found.health.state if found.health is not None else "unknown"
    rate = view.history.last(RECORDS)
    head = Text.assemble(
        ("● ", COLOURS.get(state, "white")),
        (state, f"bold {COLOURS.get(state, 'white')}"),
        f"  cluster {found.cluster_id}\n{found.sentence}\n\n",
        (f"{len(rows)} brokers  {count_text(found.topics)} topics  "
         f"{count_text(found.partitions)} partitions", "bold"),
        f"  {bytes_text(found.bytes_total) if found.bytes_total is not None else '–'} in "
        f"{count_text(found.replicas)} replicas"
        + (f"  {found.moves} partitions move" if found.moves else "")
        + "\n",
        (f"{rate_text(rate)} records written  ", "bold"),
        (_bars([value for _, value in view.history.series(RECORDS)]), "cyan"),
    )  # fmt: skip
    if view.sampled.problem:
        head.append(f"\nThe last sample failed: {view.sampled.problem}", style="red")
    lists = Columns(
        [
            _pairs("groups that lag", "records", [(g, f"{lag:,.0f}") for g, lag in found.lagging]),
            _pairs("busiest topics", "records/s", [(t, rate_text(r)) for t, r in found.busiest]),
        ],
        padding=(0, 6),
    )
    return Group(head, Text(), _brokers(view, rows), Text(), lists)


def _brokers(view: ClusterView, rows: Sequence[BrokerRow]) -> RenderableType:
    from rich.table import Table

    from odradek_console.cluster.sampling import ROUND_TRIP

    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("broker", "address", "rack"):
        table.add_column(column)
    for column in ("leaders", "replicas", "behind", "data", "round trip"):
        table.add_column(column, justify="right")
    table.add_column("")
    for row in rows[:BROKERS_SHOWN]:
        trip = view.history.last((ROUND_TRIP, row.broker.broker_id))
        notes = ["controller"] if row.is_controller else []
        notes += ["[red]does not run[/red]"] if row.broker.fenced else []
        table.add_row(
            str(row.broker.broker_id), str(row.broker.address), row.broker.rack or "–",
            f"{row.leaders:,}", f"{row.replicas:,}",
            f"[yellow]{row.behind:,}[/yellow]" if row.behind else "0",
            bytes_text(row.bytes_used) if row.directories else "–",
            f"{trip:.1f} ms" if trip is not None else "–", ", ".join(notes),
        )  # fmt: skip
    if len(rows) > BROKERS_SHOWN:
        table.add_row(f"… {len(rows) - BROKERS_SHOWN} more")
    return table


def _pairs(title: str, unit: str, found: Sequence[tuple[str, str]]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim", min_width=40)
    table.add_column(title, no_wrap=True)
    table.add_column(unit, justify="right")
    for name, number in found:
        table.add_row(Text(name), number)  # a name is no markup
    if not found:
        table.add_row("none", "")
    return table


def _bars(values: Sequence[float]) -> str:
    """The last values as a line of blocks: 0, 5, 10 → "▁▅█"."""
    shown = values[-BARS_SHOWN:]
    most = max(shown, default=0.0)
    if most <= 0:
        return ""
    return "".join(BARS[round((len(BARS) - 1) * value / most)] for value in shown)
