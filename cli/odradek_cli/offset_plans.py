"""The common part of `groups` and `share-groups`, mostly of `reset`: partitions and targets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek_cli.errors import CliError, UsageError
from odradek_cli.output import print_json, print_table
from odradek_cli.partitions import Target

if TYPE_CHECKING:
    from odradek_protocol.client.kafka_client import KafkaClient
    from odradek_protocol.ids import TopicPartition

Place = tuple[str, int]

ToEarliest = Annotated[bool, typer.Option("--to-earliest", help="Set to the oldest record.")]
ToLatest = Annotated[bool, typer.Option("--to-latest", help="Set to the end.")]
ToOffset = Annotated[int | None, typer.Option("--to-offset", help="Set to this offset.")]
ToTimestamp = Annotated[
    str | None,
    typer.Option("--to-timestamp", help="Set to this time: 2026-01-31T12:00:00, or ms since 1970."),
]
ByDuration = Annotated[
    str | None, typer.Option("--by-duration", help="Back by 90s, 30m, 12h, 7d or PT1H30M.")
]
ShowMembers = Annotated[
    bool,
    typer.Option("--members", "-m", help="Show members and their partitions instead of offsets."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")]


@dataclass(frozen=True)
class OffsetTarget:
    """Where offsets are set to; the fields are the options --to-…, of which one is given."""

    earliest: bool = False
    latest: bool = False
    offset: int | None = None
    timestamp: str | None = None
    duration: str | None = None
    shift_by: int | None = None

    def check(self, *others: str) -> None:
        """`others` are the options that only one of the commands has."""
        ways = (self.offset, self.timestamp, self.duration, self.shift_by)
        if sum((self.earliest, self.latest, *(way is not None for way in ways))) != 1:
            options = ["--to-earliest", "--to-latest", "--to-offset", "--to-timestamp"]
            named = ", ".join([*options, "--by-duration", *others])
            raise UsageError(f"say where to: one of {named}")

    def resolve(
        self, client: KafkaClient, places: list[Place], current: Mapping[Place, int]
    ) -> dict[Place, int]:
        """The offset of each partition, between its first and its last one."""
        if self.timestamp is not None or self.duration is not None:
            return _at_time(client, places, _moment_ms(self.timestamp, self.duration))
        low, high = ends(client, places)
        wanted = {}
        for place in places:
            if self.earliest:
                offset = low[place]
            elif self.latest:
                offset = high[place]
            elif self.offset is not None:
                offset = self.offset
            else:
                if place not in current:
                    raise CliError(f"--shift-by: {place_text(place)} has no committed offset")
                offset = current[place] + (self.shift_by or 0)
            wanted[place] = min(max(offset, low[place]), high[place])
        return wanted


def places_of(
    client: KafkaClient, group: str, topics: list[str] | None, committed: Iterable[Place]
) -> list[Place]:
    if not topics:
        places = sorted(committed)
        if not places:
            raise CliError(f"group {group} has no offsets: name topics with --topic")
        return places
    known = client.metadata().topics
    places = []
    for target in map(Target.parse, topics):
        if target.topic not in known:
            raise CliError(f"--topic {target.topic}: there is no such topic")
        partitions = known[target.topic].partitions
        if target.partition is not None and target.partition not in partitions:
            raise CliError(
                f"--topic {target.topic}:{target.partition}: the topic has {len(partitions)} "
                "partitions"
            )
        places += [(target.topic, n) for n in sorted(partitions) if target.partition in (None, n)]
    return places


def _list_offsets(
    client: KafkaClient, places: Iterable[Place], timestamp_ms: int, missing_ok: bool = False
) -> dict[Place, int]:
    from odradek_cli.client import found
    from odradek_protocol.client.admin.offsets import list_offsets
    from odradek_protocol.client.errors import ClientError
    from odradek_protocol.ids import TopicPartition

    answers = list_offsets(client, [TopicPartition(*place) for place in places], timestamp_ms)
    return {
        place: found(str(place), answer)
        for place, answer in answers.items()
        if not (missing_ok and isinstance(answer, ClientError))
    }


def ends(
    client: KafkaClient, places: Iterable[Place], missing_ok: bool = False
) -> tuple[dict[Place, int], dict[Place, int]]:
    """The first offsets, and the offsets after the last records."""
    from odradek_protocol.client.admin.offsets import EARLIEST, LATEST

    places = list(places)
    low = _list_offsets(client, places, EARLIEST, missing_ok)
    return low, _list_offsets(client, places, LATEST, missing_ok)


def _at_time(client: KafkaClient, places: list[Place], at_ms: int) -> dict[Place, int]:
    """The first record at or after the time; the end where there is none."""
    from odradek_protocol.client.admin.offsets import LATEST

    found = _list_offsets(client, places, at_ms)
    late = [place for place, offset in found.items() if offset < 0]
    return {**found, **_list_offsets(client, late, LATEST)}


def _moment_ms(timestamp: str | None, duration: str | None) -> int:
    from odradek_cli.reading import parse_duration_ms, parse_time

    if timestamp is not None:
        return parse_time(timestamp, "--to-timestamp")
    assert duration is not None
    return int(time.time() * 1000) - parse_duration_ms(duration)


def print_reset(
    wanted: Mapping[Place, int], committed: Mapping[Place, int], as_json: bool, dry_run: bool
) -> None:
    if as_json:
        print_json(
            [
                {"topic": topic, "partition": n, "from": committed.get((topic, n)), "to": to}
                for (topic, n), to in sorted(wanted.items())
            ]
        )
        return
    rows = [
        (place_text(place), dash(committed.get(place)), to) for place, to in sorted(wanted.items())
    ]
    print_table(["partition", ">from", ">to"], rows)
    if dry_run:
        print("Nothing was changed (--dry-run).")


def pairs(places: tuple[TopicPartition, ...]) -> list[dict[str, Any]]:
    return [place._asdict() for place in places]


def short(member: dict[str, Any]) -> str:
    """orders 0,1,2; payments 4"""
    topics: dict[str, list[str]] = {}
    for place in member["partitions"]:
        topics.setdefault(place["topic"], []).append(str(place["partition"]))
    return "; ".join(f"{topic} {','.join(numbers)}" for topic, numbers in topics.items())


def place_text(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


def dash(value: object) -> object:
    return "-" if value is None else value
