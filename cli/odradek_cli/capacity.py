"""`odradek capacity`: when disks are full, what the loss of a rack does, how many brokers to add.

    odradek capacity                                     from what the brokers measured in a day
    odradek capacity --metrics 9404 --window hour        at a port that they do not tell
    odradek capacity --times 3 --network 250

Works with any Kafka cluster, and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek_cli.broker_loads import Metrics, Sample, Window, loads_of
from odradek_cli.errors import UsageError
from odradek_cli.extras import needs_extra
from odradek_cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from odradek_cli.output import bytes_text, print_json, print_table
from odradek_cli.rebalance import MB

if TYPE_CHECKING:
    from odradek_operator.kafka.balance.capacity import Filling, Loss, Need

DAY_S = 86_400.0


def capacity(
    times: Annotated[
        float, typer.Option("--times", help="How many brokers are needed for so much more load.")
    ] = 2.0,
    network: Annotated[
        float,
        typer.Option("--network", metavar="MB/s", help="What a broker may send, and receive."),
    ] = 100.0,
    metrics: Metrics = "",
    window: Window = "day",
    sample: Sample = 2.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """When disks are full, what the loss of a rack does, how many brokers for more load."""
    from odradek_cli.client import connect

    with needs_extra("balance", "odradek capacity"):
        from odradek_operator.admin.balance import observe
        from odradek_operator.admin.capacity import retentions
        from odradek_operator.kafka.balance import capacity as answers
        from odradek_operator.kafka.balance.model import build, number_racks

    import numpy as np

    if times <= 0 or network <= 0 or sample < 0:
        raise UsageError("--times and --network have to be positive, and --sample at least 0")
    with connect(bootstrap) as client:
        try:
            measured = loads_of(client, metrics, window)
        except ValueError as error:
            raise UsageError(str(error)) from None
        seen = observe(client, sample_s=sample, loads=measured)
        kept = retentions(client, {p.id.topic for p in seen.partitions})
    cluster = build(seen.brokers, seen.partitions)
    limits = answers.limits_of(cluster, kept)
    names = {int(n): b.rack or f"(broker {b.id})"
             for n, b in zip(number_racks([b.rack for b in seen.brokers]), seen.brokers,
                             strict=True)}  # fmt: skip
    min_isr = np.array([p.min_isr for p in seen.partitions], dtype=np.int32)
    known = measured is not None and measured.know(b.id for b in seen.brokers if b.live)
    cores = sum(measured.cpu.values()) if measured is not None and known and measured.cpu else None
    filling = answers.fillings(cluster, limits)
    lost = answers.losses(cluster, [names[n] for n in sorted(names)], min_isr)
    found = answers.need(cluster, limits, answers.Wanted(times, network * MB, cores))
    if as_json:
        print_json(_document(filling, lost, found, times))
        return
    _show_disks(filling)
    _show_losses(lost)
    _show_need(found, times)


def _document(
    filling: list[Filling], lost: list[Loss], found: Need, times: float
) -> dict[str, Any]:
    from dataclasses import asdict

    def finite(value: Any) -> Any:
        """JSON has no infinity: the room of a disk that is not known is null."""
        return None if value in (float("inf"), float("-inf")) else value

    brokers = [{name: finite(value) for name, value in asdict(f).items()} for f in filling]
    return {"brokers": brokers, "racks": [asdict(one) for one in lost],
            "need": {"times": times, **asdict(found)}}  # fmt: skip


def _show_disks(filling: list[Filling]) -> None:
    rows = []
    for one in filling:
        known = one.room_bytes < float("inf")
        final = one.final_bytes < float("inf")
        rows.append(
            (
                one.broker,
                bytes_text(one.used_bytes),
                bytes_text(one.room_bytes) if known else "unknown",
                f"{one.used_bytes / one.room_bytes:.0%}" if known and one.room_bytes else "",
                f"{bytes_text(one.grows_by * DAY_S)}/day",
                bytes_text(one.final_bytes) if final else "no limit",
                duration(one.full_in_s) if known else "unknown",
            )
        )
    print_table([">broker", ">used", ">room", ">%", ">grows", ">with retention", "full in"], rows)


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "never at this rate"
    if seconds <= 0:
        return "now"
    for unit, length in (("days", DAY_S), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _show_losses(lost: list[Loss]) -> None:
    rows = []
    for one in lost:
        broker, now, after = one.busiest_out
        busiest = f"broker {broker}: {bytes_text(now)}/s → {bytes_text(after)}/s"
        disk = "unknown" if one.disk_after is None else f"{one.disk_after:.0%}"
        rebuilt = disk if one.fits else "not possible"
        rows.append((one.rack, one.brokers, one.offline, one.not_writable, busiest, rebuilt))
    columns = ["rack lost", ">brokers", ">offline", ">not writable", "busiest of the others sends"]
    print_table([*columns, ">fullest disk when rebuilt"], rows)


def _show_need(found: Need, times: float) -> None:
    parts = ", ".join(f"{name} {count}" for name, count in found.by.items())
    more = found.brokers - found.now
    text = f"For {times:g} times the load: {found.brokers} brokers"
    text += f" ({more} more; {found.decided_by} decides)" if more else ", as now"
    print(f"{text}. Brokers needed by resource: {parts}.")
    if found.out_after is not None:
        disk = "" if found.disk_after is None else f"the fullest disk has {found.disk_after:.0%}, "
        print(f"Balanced over so many: {disk}the busiest sends {bytes_text(found.out_after)}/s.")
    for problem in found.problems:
        print(f"Problem: {problem}")
