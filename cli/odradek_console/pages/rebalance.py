"""Rebalance: loads of the brokers now and as proposed, the moves; start and cancel them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from aiohttp import web

from odradek_cli.output import bytes_text
from odradek_console.web.changes import Change, ChangeError, Row
from odradek_console.web.proposing import propose, refuse, text_of
from odradek_console.web.rendering import SESSION, Page, address, number_of, render
from odradek_protocol.client.kafka_client import KafkaClient

if TYPE_CHECKING:  # it imports numpy, which only those who open the page need
    from odradek_console.cluster.access import Access
    from odradek_console.cluster.balance import BrokerLoads
    from odradek_console.cluster.rebalance_run import Runs
    from odradek_operator.kafka.balance.document import Proposal

PAGE_SIZE = 50
HEAT_LEVELS = 9  # of twice the mean, and above
PROBLEMS_SHOWN = 5
MB = 1_000_000
THROTTLE_MB_MAX = 1_000_000
HOME = "/rebalance"


class Rebalances:
    """Of this console; made when the page is used first."""

    def __init__(self) -> None:
        self._runs: Runs | None = None

    @property
    def runs(self) -> Runs:
        if self._runs is None:
            from odradek_console.cluster.rebalance_run import Runs

            self._runs = Runs()
        return self._runs

    def close(self) -> None:
        if self._runs is not None:
            self._runs.close()


REBALANCES = web.AppKey("rebalances", Rebalances)


@dataclass(frozen=True)
class Cell:
    """A load as text and as a colour, relative to the mean of its column."""

    text: str
    level: int
    share: int  # in percent of the mean of the live brokers


async def rebalance(request: web.Request) -> web.Response:
    from odradek_console.cluster.balance import MODES, SHOWN, loads_of

    session = request[SESSION]
    balance = session.view.balance
    await session.run(session.view.require_describe_cluster)
    measured = await session.run(balance.look, session.view.client)
    name = request.query.get("proposal", "")
    proposal = None
    if name in balance.proposals:
        proposal, measured = balance.proposals[name]
    elif balance.is_old:
        loop = asyncio.get_running_loop()
        loop.run_in_executor(session.threads, balance.refresh, session.view.client)
    loads = await session.run(loads_of, measured, proposal.moves if proposal else ())
    moves = Page(proposal.moves if proposal else (), number_of(request, "page", 1), PAGE_SIZE)
    return render(
        request, "rebalance.html", columns=SHOWN, rows=_rows(loads), measured=measured,
        proposal=proposal, name=name, moves=moves, modes=MODES,
        problems_shown=PROBLEMS_SHOWN, expired=bool(name) and proposal is None,
        run=request.app[REBALANCES].runs.last,
    )  # fmt: skip


def _rows(loads: list[BrokerLoads]) -> list[dict[str, Any]]:
    """A row per broker; its cells by the name of the goal: now and then."""
    mean: dict[str, float] = {}
    live = max(sum(row.live for row in loads), 1)
    for row in loads:
        for name in row.now:
            mean[name] = mean.get(name, 0.0) + row.now[name] / live

    def cell(name: str, value: float) -> Cell:
        text = f"{value:,.0f}" if name == "leaders" else bytes_text(value)
        text += "/s" if name.startswith("bytes-") else ""
        share = value / mean[name] if mean[name] > 0 else 0.0
        return Cell(text, min(round(HEAT_LEVELS * share / 2), HEAT_LEVELS), round(100 * share))

    return [
        {"broker": row, "cells": {name: (cell(name, row.now[name]), cell(name, row.then[name]))
                                  for name in row.now}}
        for row in loads
    ]  # fmt: skip


# -- proposals -------------------------------------------------------------------------------------


async def make_proposal(request: web.Request) -> web.StreamResponse:
    from odradek_operator.kafka.balance.make import Wish

    session, balance = request[SESSION], request[SESSION].view.balance
    try:
        wish = Wish(
            mode=await text_of(request, "mode"),
            brokers=_ids(await text_of(request, "brokers")),
            throttle=_throttle(await text_of(request, "throttle")) * MB,
        )
        excluded = frozenset((await text_of(request, "exclude")).replace(",", " ").split())
        name = await session.run(balance.propose, session.view.client, wish, excluded)
    except ValueError as error:
        refuse(request, HOME, f"{str(error)[:1].upper()}{str(error)[1:]}.")
    raise web.HTTPSeeOther(address("rebalance", proposal=name))


def _ids(text: str) -> tuple[int, ...]:
    words = text.replace(",", " ").split()
    if not all(word.isdecimal() and len(word) < 10 for word in words):
        raise ValueError(f"brokers {text}: expected ids of brokers, such as 3, 4")
    return tuple(map(int, words))


def _throttle(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= THROTTLE_MB_MAX:
        raise ValueError(f"throttle {text}: expected MB per second, at least 1")
    return int(text)


def _proposal(request: web.Request, name: str) -> Proposal:
    found = request[SESSION].view.balance.proposals.get(name)
    if found is None:
        refuse(request, HOME, "This proposal is not known any more: make a new one.")
    return found[0]


async def download(request: web.Request) -> web.Response:
    """The document, as `odradek rebalance apply` and `status` read it."""
    from odradek_operator.kafka.balance.document import to_json

    name = request.match_info["id"]
    found = request[SESSION].view.balance.proposals.get(name)
    if found is None:
        raise web.HTTPNotFound
    disposition = {"Content-Disposition": f'attachment; filename="rebalance-{name}.json"'}
    return web.Response(
        text=to_json(found[0]), content_type="application/json", headers=disposition
    )


# -- carrying out ----------------------------------------------------------------------------------


async def apply(request: web.Request) -> web.StreamResponse:
    proposal = _proposal(request, name := await text_of(request, "proposal"))
    rows = [
        Row(f"{m.topic}-{m.partition}, {bytes_text(m.bytes)}", _list(m.before), _list(m.after))
        for m in proposal.moves[:200]
    ]
    more = len(proposal.moves) - len(rows)
    session, runs = request[SESSION], request.app[REBALANCES].runs
    propose(
        request,
        Change(
            "rebalance",
            f"proposal {name}",
            f"Move {len(proposal.moves)} partitions, {bytes_text(proposal.bytes)}",
            tuple(rows),
            partial(_begin, runs=runs, access=session.access, proposal=proposal),
            "The rebalance has begun.",
            address("rebalance", proposal=name),
            HOME,
            warning=f"{more} more partitions are not listed." if more > 0 else "",
            button="Start the moves",
        ),
    )


def _begin(client: KafkaClient, runs: Runs, access: Access, proposal: Proposal) -> None:
    from odradek_console.cluster.rebalance_run import RunError

    try:
        runs.begin(client, access, proposal)
    except RunError as error:
        raise ChangeError(str(error)) from None


async def cancel(request: web.Request) -> web.StreamResponse:
    runs = request.app[REBALANCES].runs
    run = runs.active
    if run is None:
        refuse(request, HOME, "No rebalance is under way.")
    counts = ", ".join(f"{n} {stage}" for stage, n in run.counts.items())
    propose(
        request,
        Change(
            "cancel rebalance",
            f"of {run.user}",
            "Cancel the rebalance",
            (Row("partitions", counts, "what has moved stays; moves under way are undone"),),
            partial(_cancel, runs=runs),
            "The rebalance is cancelled, and its throttle is removed.",
            HOME,
            HOME,
            button="Stop the moves",
        ),
    )


def _cancel(client: KafkaClient, runs: Runs) -> None:
    from odradek_console.cluster.rebalance_run import RunError

    try:
        runs.cancel(client)
    except RunError as error:
        raise ChangeError(str(error)) from None


def _list(brokers: tuple[int, ...]) -> str:
    return f"brokers {', '.join(map(str, brokers))}"
