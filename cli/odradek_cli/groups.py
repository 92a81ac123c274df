"""`odradek groups`: consumer groups, how far behind they are, and where they go on reading.

    odradek groups list                                   all groups and their states
    odradek groups describe billing                       offsets and lag of each partition
    odradek groups reset billing --to-earliest --dry-run  what would be committed
    odradek groups reset billing --topic orders:0 --to-timestamp 2026-01-31T12:00:00
    odradek groups delete billing

Offsets can be set only while nobody reads with the group: its members would go on from where
they are and commit over it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek_cli.errors import CliError
from odradek_cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, complete_group
from odradek_cli.output import print_json, print_table
from odradek_cli.partitions import Target

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, OffsetSpec

app = typer.Typer(
    help="List, describe, reset and delete consumer groups; see their lag.", no_args_is_help=True
)

Group = Annotated[
    str, typer.Argument(help="Name of the group.", autocompletion=complete_group, metavar="GROUP")
]
Groups = Annotated[
    list[str],
    typer.Argument(help="Names of groups.", autocompletion=complete_group, metavar="GROUP…"),
]

Place = tuple[str, int]

# Groups without members, in which offsets may be set; DEAD is one that is not there (yet).
IDLE = ("EMPTY", "DEAD")


@dataclass(frozen=True)
class Progress:
    """One partition in the eyes of a group; None where there is nothing to say."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    member_id: str | None = None
    client_id: str | None = None
    host: str | None = None


@app.command("list")
def list_groups(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List groups, with their protocol and state."""
    from odradek_cli.client import connect, settle

    admin = connect(bootstrap)
    answer = settle("groups", admin.list_consumer_groups())
    if answer.errors:
        raise CliError(f"groups: {answer.errors[0]}")
    found = [
        {
            "group": listing.group_id,
            "type": _name(listing.type),
            "state": _name(listing.state),
        }
        for listing in sorted(answer.valid, key=lambda listing: str(listing.group_id))
    ]
    if as_json:
        print_json(found)
    elif not found:
        print("There are no groups.")
    else:
        print_table(["group", "type", "state"], [tuple(group.values()) for group in found])


@app.command()
def describe(
    names: Groups,
    members: Annotated[
        bool, typer.Option("--members", "-m", help="Who reads what, instead of offsets.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show state, committed offsets and lag, or with --members who reads which partitions."""
    from odradek_cli.client import connect

    admin = connect(bootstrap)
    described = [_described(admin, name) for name in names]
    if as_json:
        print_json(described)
        return
    for group in described:
        lag = "unknown" if group["lag"] is None else group["lag"]
        print(
            f"{group['group']}: {group['state']}, {group['type']} protocol, assignor "
            f"{group['assignor'] or '(none)'}, coordinator {group['coordinator']}, "
            f"{len(group['members'])} members, lag {lag}"
        )
        if members:
            columns = ["member", "instance", "client", "host", "partitions"]
            print_table(
                columns,
                [
                    (m["member_id"], m["instance_id"], m["client_id"], m["host"], _short(m))
                    for m in group["members"]
                ],
            )
        elif group["partitions"]:
            columns = ["partition", ">committed", ">end", ">lag", "client", "host"]
            rows = [
                (f"{p['topic']}-{p['partition']}", _dash(p["committed"]), _dash(p["end"]),
                 _dash(p["lag"]), p["client_id"], p["host"])
                for p in group["partitions"]
            ]  # fmt: skip
            print_table(columns, rows)


@app.command()
def reset(
    group: Group,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:PARTITION]",
            help="Repeatable. Default: all that the group has offsets of.",
        ),
    ] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the oldest.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end.")] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", help="To this offset.")] = None,
    to_timestamp: Annotated[
        str | None,
        typer.Option("--to-timestamp", help="To this time: 2026-01-31T12:00:00, or ms since 1970."),
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option("--by-duration", help="Back by 90s, 30m, 12h, 7d or PT1H30M.")
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", help="Forwards, or backwards if negative.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Set where a group goes on reading. Nobody may be reading with it meanwhile."""
    from odradek_cli.client import connect

    ways = (to_offset, to_timestamp, by_duration, shift_by)
    if sum((to_earliest, to_latest, *(way is not None for way in ways))) != 1:
        raise CliError(
            "say where to: one of --to-earliest, --to-latest, --to-offset, --to-timestamp, "
            "--by-duration, --shift-by"
        )
    admin = connect(bootstrap)
    committed = _committed(admin, group)
    places = _places(admin, group, topic, committed)
    _check_idle(admin, group)
    if to_timestamp is not None or by_duration is not None:
        wanted = _at_time(admin, places, _moment_ms(to_timestamp, by_duration))
    else:
        low, high = _ends(admin, places)
        wanted = {}
        for place in places:
            if to_earliest:
                offset = low[place]
            elif to_latest:
                offset = high[place]
            elif to_offset is not None:
                offset = to_offset
            else:
                if committed.get(place) is None:
                    raise CliError(f"--shift-by: {_text(place)} has no committed offset")
                offset = committed[place] + (shift_by or 0)
            wanted[place] = min(max(offset, low[place]), high[place])
    if not dry_run:
        _commit(admin, group, wanted)
    _print_reset(wanted, committed, as_json, dry_run)


@app.command()
def delete(
    names: Groups,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete groups with all their offsets. Groups with members are refused."""
    from odradek_cli.client import connect, settle

    admin = connect(bootstrap)
    deleted = []
    for name, answer in admin.delete_consumer_groups(names).items():
        settle(f"group {name}", answer)
        deleted.append(name)
        if not as_json:
            print(f"Deleted group {name}.")
    if as_json:
        print_json({"deleted": deleted})


def _described(admin: AdminClient, name: str) -> dict[str, Any]:
    group = _describe(admin, name)
    if _name(group.state) == "Dead":
        raise CliError(f"group {name}: there is no such group")
    owners = {
        (place.topic, place.partition): member
        for member in group.members
        for place in member.assignment.topic_partitions
    }
    committed = _committed(admin, name)
    places = sorted(set(committed) | set(owners))
    _, high = _ends(admin, places, missing_ok=True)
    progress = []
    for place in places:
        at, end, member = committed.get(place), high.get(place), owners.get(place)
        lag = None if at is None or end is None else max(end - at, 0)
        who = (member.member_id, member.client_id, member.host) if member else ()
        progress.append(Progress(*place, at, end, lag, *who))
    lags = [one.lag for one in progress if one.lag is not None]
    return {
        "group": name,
        "state": _name(group.state),
        "type": _name(group.type),
        "assignor": group.partition_assignor,
        "coordinator": group.coordinator.id if group.coordinator else None,
        "lag": sum(lags) if lags else None,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "partitions": _pairs(member.assignment),
                "target_partitions": _pairs(member.target_assignment),
            }
            for member in group.members
        ],
        "partitions": [asdict(one) for one in progress],
    }


def _describe(admin: AdminClient, name: str) -> ConsumerGroupDescription:
    from odradek_cli.client import settle

    group: ConsumerGroupDescription = settle(
        f"group {name}", admin.describe_consumer_groups([name])[name]
    )
    return group


def _check_idle(admin: AdminClient, name: str) -> None:
    group = _describe(admin, name)
    if group.state.name not in IDLE:
        raise CliError(
            f"group {name} has {len(group.members)} active members (state {_name(group.state)}): "
            "stop them first, or they will commit over what is set"
        )


def _committed(admin: AdminClient, name: str) -> dict[Place, int]:
    from confluent_kafka import ConsumerGroupTopicPartitions

    from odradek_cli.client import settle

    asked = [ConsumerGroupTopicPartitions(name)]
    answer = settle(f"group {name}", admin.list_consumer_group_offsets(asked)[name])
    return {
        (place.topic, place.partition): place.offset
        for place in answer.topic_partitions
        if place.offset >= 0
    }


def _places(
    admin: AdminClient, group: str, topics: list[str] | None, committed: Iterable[Place]
) -> list[Place]:
    from odradek_cli.client import TIMEOUT_S

    if not topics:
        places = sorted(committed)
        if not places:
            raise CliError(f"group {group} has no offsets: name topics with --topic")
        return places
    known = admin.list_topics(timeout=TIMEOUT_S).topics
    places = []
    for target in map(Target.parse, topics):
        if target.topic not in known:
            raise CliError(f"--topic {target.topic}: there is no such topic")
        partitions = known[target.topic].partitions
        if target.partition is not None and target.partition not in partitions:
            raise CliError(f"--topic {target.topic}:{target.partition}: it has {len(partitions)}")
        places += [(target.topic, n) for n in sorted(partitions) if target.partition in (None, n)]
    return places


def _list_offsets(
    admin: AdminClient, places: Iterable[Place], spec: OffsetSpec, missing_ok: bool = False
) -> dict[Place, int]:
    from confluent_kafka import TopicPartition

    from odradek_cli.client import settle

    asked = {TopicPartition(*place): spec for place in places}
    if not asked:
        return {}
    found = {}
    for place, answer in admin.list_offsets(asked).items():
        try:
            offset = settle(f"{place.topic}-{place.partition}", answer).offset
        except CliError:
            if not missing_ok:
                raise
            continue
        found[place.topic, place.partition] = offset
    return found


def _ends(
    admin: AdminClient, places: Iterable[Place], missing_ok: bool = False
) -> tuple[dict[Place, int], dict[Place, int]]:
    """The oldest offsets and those after the newest record."""
    from confluent_kafka.admin import OffsetSpec

    places = list(places)
    low = _list_offsets(admin, places, OffsetSpec.earliest(), missing_ok)
    return low, _list_offsets(admin, places, OffsetSpec.latest(), missing_ok)


def _at_time(admin: AdminClient, places: list[Place], at_ms: int) -> dict[Place, int]:
    """The first record at or after the time; the end where there is none."""
    from confluent_kafka.admin import OffsetSpec

    found = _list_offsets(admin, places, OffsetSpec.for_timestamp(at_ms))
    late = [place for place, offset in found.items() if offset < 0]
    return {**found, **_list_offsets(admin, late, OffsetSpec.latest())}


def _moment_ms(timestamp: str | None, duration: str | None) -> int:
    from odradek_cli.consume import parse_time

    if timestamp is not None:
        return parse_time(timestamp, "--to-timestamp")
    assert duration is not None
    return int(time.time() * 1000) - parse_duration_ms(duration)


def parse_duration_ms(text: str) -> int:
    """90s, 30m, 12h, 7d, or as ISO 8601 has it: P1DT2H30M."""
    units = {"D": 86_400, "H": 3_600, "M": 60, "S": 1}
    iso = re.fullmatch(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?", text.upper())
    short = re.fullmatch(r"(\d+)([SMHD])", text.upper())
    if short is not None:
        return int(short[1]) * units[short[2]] * 1000
    if iso is not None and any(iso.groups()):
        seconds = sum(int(n) * units[u] for n, u in zip(iso.groups(), "DHMS", strict=True) if n)
        return seconds * 1000
    raise CliError(f"--by-duration {text}: expected 90s, 30m, 12h, 7d or PT1H30M")


def _commit(admin: AdminClient, group: str, wanted: dict[Place, int]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    from odradek_cli.client import settle

    offsets = [TopicPartition(*place, offset) for place, offset in wanted.items()]
    asked = [ConsumerGroupTopicPartitions(group, offsets)]
    answer = settle(f"group {group}", admin.alter_consumer_group_offsets(asked)[group])
    refused = [
        f"{place.topic}-{place.partition}: {place.error.str()} ({place.error.name()})"
        for place in answer.topic_partitions
        if place.error is not None
    ]
    if refused:
        raise CliError("; ".join(refused))


def _print_reset(
    wanted: dict[Place, int], committed: dict[Place, int], as_json: bool, dry_run: bool
) -> None:
    if as_json:
        print_json(
            [
                {"topic": topic, "partition": n, "from": committed.get((topic, n)), "to": to}
                for (topic, n), to in sorted(wanted.items())
            ]
        )
        return
    rows = [(_text(place), _dash(committed.get(place)), to) for place, to in sorted(wanted.items())]
    print_table(["partition", ">from", ">to"], rows)
    if dry_run:
        print("Nothing was changed (--dry-run).")


def _name(value: Any) -> str:
    """ConsumerGroupState.PREPARING_REBALANCE -> PreparingRebalance, as Kafka writes it."""
    return "".join(part.capitalize() for part in value.name.split("_"))


def _pairs(assignment: Any) -> list[dict[str, Any]]:
    places = (
        sorted((p.topic, p.partition) for p in assignment.topic_partitions) if assignment else []
    )
    return [{"topic": topic, "partition": partition} for topic, partition in places]


def _short(member: dict[str, Any]) -> str:
    """orders 0,1,2; payments 4"""
    topics: dict[str, list[str]] = {}
    for place in member["partitions"]:
        topics.setdefault(place["topic"], []).append(str(place["partition"]))
    return "; ".join(f"{topic} {','.join(numbers)}" for topic, numbers in topics.items())


def _text(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


def _dash(value: object) -> object:
    return "-" if value is None else value
