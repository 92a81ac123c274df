"""`odradek groups`: consumer groups, their lag, and their committed offsets.

    odradek groups list                                   all groups and their states
    odradek groups describe billing                       offsets and lag of each partition
    odradek groups reset billing --to-earliest --dry-run  what would be committed
    odradek groups reset billing --topic orders:0 --to-timestamp 2026-01-31T12:00:00
    odradek groups delete-offsets billing --topic orders  a topic that it no longer reads
    odradek groups delete billing

Offsets can be set only while the group has no members: members would go on from where they are
and overwrite what was set with their next commit.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek_cli.errors import CliError, UsageError
from odradek_cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Yes, complete_group, confirm
from odradek_cli.output import print_json, print_table
from odradek_cli.partitions import Target

if TYPE_CHECKING:
    from odradek_protocol.client.admin.groups import GroupDescription, Member
    from odradek_protocol.client.kafka_client import KafkaClient
    from odradek_protocol.ids import TopicPartition

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

DEAD = "Dead"  # the state of a group that does not exist
# States of groups without members, in which offsets may be set.
IDLE = ("Empty", DEAD)


@dataclass(frozen=True)
class Progress:
    """One partition as a group sees it; None where nothing is committed, known or assigned."""

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
    from odradek_cli.client import about, connect
    from odradek_protocol.client.admin import groups

    with connect(bootstrap) as client, about("groups"):
        listed = groups.list_groups(client)
    found = [
        {"group": one.group_id, "type": one.type or "Unknown", "state": one.state}
        for one in listed
        if one.is_consumer
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
        bool,
        typer.Option(
            "--members", "-m", help="Show members and their partitions instead of offsets."
        ),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show state, committed offsets and lag; with --members the members and their partitions."""
    from odradek_cli.client import connect

    with connect(bootstrap) as client:
        described = [_described(client, name) for name in names]
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
            help="Repeatable. Default: all partitions that have a committed offset.",
        ),
    ] = None,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the oldest record.")
    ] = False,
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
    """Set the offsets at which a group goes on. The group must have no members."""
    from odradek_cli.client import connect

    ways = (to_offset, to_timestamp, by_duration, shift_by)
    if sum((to_earliest, to_latest, *(way is not None for way in ways))) != 1:
        raise UsageError(
            "say where to: one of --to-earliest, --to-latest, --to-offset, --to-timestamp, "
            "--by-duration, --shift-by"
        )
    with connect(bootstrap) as client:
        committed = _committed(client, group)
        places = _places(client, group, topic, committed)
        _check_idle(client, group)
        if to_timestamp is not None or by_duration is not None:
            wanted = _at_time(client, places, _moment_ms(to_timestamp, by_duration))
        else:
            low, high = _ends(client, places)
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
            _commit(client, group, wanted)
    _print_reset(wanted, committed, as_json, dry_run)


@app.command("delete-offsets")
def delete_offsets(
    group: Group,
    topic: Annotated[
        list[str],
        typer.Option("--topic", "-t", metavar="TOPIC[:PARTITION]", help="Repeatable."),
    ],
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete committed offsets of topics that the group no longer reads."""
    from odradek_cli.client import about, connect
    from odradek_protocol.client.admin import groups
    from odradek_protocol.ids import TopicPartition

    with connect(bootstrap) as client:
        committed = _committed(client, group)
        wanted = [
            TopicPartition(*place)
            for target in map(Target.parse, topic)
            for place in sorted(committed)
            if place[0] == target.topic and target.partition in (None, place[1])
        ]
        if not wanted:
            raise CliError(f"group {group}: there are no offsets of {', '.join(topic)}")
        confirm(f"Delete the offsets of group {group} for {', '.join(topic)}?", yes)
        with about(f"group {group}"):
            refused = groups.delete_offsets(client, group, wanted)
    if refused:
        raise CliError("; ".join(f"group {group}: {p}: {e}" for p, e in refused.items()))
    if as_json:
        print_json({"deleted": [place._asdict() for place in wanted]})
    else:
        for place in wanted:
            print(f"Deleted the offset of {place}.")


@app.command()
def delete(
    names: Groups,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete groups with all their offsets. Groups with members are refused."""
    from odradek_cli.client import connect, raise_first
    from odradek_protocol.client.admin.groups import delete_groups

    confirm(f"Delete {', '.join(names)} with all committed offsets?", yes)
    with connect(bootstrap) as client:
        refused = delete_groups(client, names)
    deleted = [name for name in names if name not in refused]
    if not as_json:
        for name in deleted:
            print(f"Deleted group {name}.")
    raise_first("group", refused)
    if as_json:
        print_json({"deleted": deleted})


def _described(client: KafkaClient, name: str) -> dict[str, Any]:
    group = _describe(client, name)
    if group.state == DEAD:
        raise CliError(f"group {name}: there is no such group")
    owners: dict[Place, Member] = {
        place: member for member in group.members for place in member.assignment
    }
    committed = _committed(client, name)
    places = sorted(set(committed) | set(owners))
    _, high = _ends(client, places, missing_ok=True)
    progress = []
    for place in places:
        at, end, member = committed.get(place), high.get(place), owners.get(place)
        lag = None if at is None or end is None else max(end - at, 0)
        who = (member.member_id, member.client_id, member.host) if member else ()
        progress.append(Progress(*place, at, end, lag, *who))
    lags = [one.lag for one in progress if one.lag is not None]
    return {
        "group": name,
        "state": group.state,
        "type": group.type,
        "assignor": group.assignor,
        "coordinator": group.coordinator_id,
        "lag": sum(lags) if lags else None,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "partitions": _pairs(member.assignment),
                "target_partitions": _pairs(member.target_assignment or ()),
            }
            for member in group.members
        ],
        "partitions": [asdict(one) for one in progress],
    }


def _describe(client: KafkaClient, name: str) -> GroupDescription:
    from odradek_cli.client import about
    from odradek_protocol.client.admin.groups import describe_group

    with about(f"group {name}"):
        return describe_group(client, name)


def _check_idle(client: KafkaClient, name: str) -> None:
    group = _describe(client, name)
    if group.state not in IDLE:
        raise CliError(
            f"group {name} has {len(group.members)} active members (state {group.state}): "
            "stop them first, or they will commit over what is set"
        )


def _committed(client: KafkaClient, name: str) -> dict[Place, int]:
    from odradek_cli.client import about
    from odradek_protocol.client.admin.groups import committed_offsets

    with about(f"group {name}"):
        return {place: found.offset for place, found in committed_offsets(client, name).items()}


def _places(
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


def _ends(
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


def _commit(client: KafkaClient, group: str, wanted: dict[Place, int]) -> None:
    from odradek_cli.client import about
    from odradek_protocol.client.admin.groups import CommittedOffset, commit_offsets
    from odradek_protocol.ids import TopicPartition

    offsets = {TopicPartition(*place): CommittedOffset(at) for place, at in wanted.items()}
    with about(f"group {group}"):
        refused = commit_offsets(client, group, offsets)
    if refused:
        raise CliError("; ".join(f"{place}: {error}" for place, error in refused.items()))


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


def _pairs(places: tuple[TopicPartition, ...]) -> list[dict[str, Any]]:
    return [place._asdict() for place in places]


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
