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

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek_cli.errors import CliError
from odradek_cli.offset_plans import (
    ByDuration,
    DryRun,
    OffsetTarget,
    Place,
    ShowMembers,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTimestamp,
    dash,
    ends,
    pairs,
    places_of,
    print_reset,
    short,
)
from odradek_cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Yes, complete_group, confirm
from odradek_cli.output import print_json, print_listed, print_table
from odradek_cli.partitions import Target

if TYPE_CHECKING:
    from odradek_protocol.client.admin.groups import GroupDescription, Member
    from odradek_protocol.client.kafka_client import KafkaClient

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

EMPTY = "Empty"  # the state of a group without members, in which offsets may be set


@dataclass(frozen=True)
class PartitionProgress:
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
    print_listed(found, as_json, ["group", "type", "state"], "There are no groups.")


@app.command()
def describe(
    names: Groups,
    members: ShowMembers = False,
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
                    (m["member_id"], m["instance_id"], m["client_id"], m["host"], short(m))
                    for m in group["members"]
                ],
            )
        elif group["partitions"]:
            columns = ["partition", ">committed", ">end", ">lag", "client", "host"]
            rows = [
                (f"{p['topic']}-{p['partition']}", dash(p["committed"]), dash(p["end"]),
                 dash(p["lag"]), p["client_id"], p["host"])
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
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_offset: ToOffset = None,
    to_timestamp: ToTimestamp = None,
    by_duration: ByDuration = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", help="Forwards, or backwards if negative.")
    ] = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Set the offsets at which a group goes on. The group must have no members."""
    from odradek_cli.client import connect

    goal = OffsetTarget(to_earliest, to_latest, to_offset, to_timestamp, by_duration, shift_by)
    goal.check("--shift-by")
    with connect(bootstrap) as client:
        committed = _committed(client, group)
        places = places_of(client, group, topic, committed)
        _check_idle(client, group)
        wanted = goal.resolve(client, places, committed)
        if not dry_run:
            _commit(client, group, wanted)
    print_reset(wanted, committed, as_json, dry_run)


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
    from odradek_cli.client import connect, report_deleted
    from odradek_protocol.client.admin.groups import delete_groups

    confirm(f"Delete {', '.join(names)} with all committed offsets?", yes)
    with connect(bootstrap) as client:
        refused = delete_groups(client, names)
    report_deleted("group", names, refused, as_json)


def _described(client: KafkaClient, name: str) -> dict[str, Any]:
    group = _describe(client, name)
    if not group.exists:
        raise CliError(f"group {name}: there is no such group")
    owners: dict[Place, Member] = {
        place: member for member in group.members for place in member.assignment
    }
    committed = _committed(client, name)
    places = sorted(set(committed) | set(owners))
    _, high = ends(client, places, missing_ok=True)
    progress = []
    for place in places:
        at, end, member = committed.get(place), high.get(place), owners.get(place)
        lag = None if at is None or end is None else max(end - at, 0)
        who = (member.member_id, member.client_id, member.host) if member else ()
        progress.append(PartitionProgress(*place, at, end, lag, *who))
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
                "partitions": pairs(member.assignment),
                "target_partitions": pairs(member.target_assignment or ()),
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
    if group.exists and group.state != EMPTY:
        raise CliError(
            f"group {name} has {len(group.members)} active members (state {group.state}): "
            "stop them first, or they will commit over what is set"
        )


def _committed(client: KafkaClient, name: str) -> dict[Place, int]:
    from odradek_cli.client import about
    from odradek_protocol.client.admin.groups import committed_offsets

    with about(f"group {name}"):
        return {place: found.offset for place, found in committed_offsets(client, name).items()}


def _commit(client: KafkaClient, group: str, wanted: dict[Place, int]) -> None:
    from odradek_cli.client import about
    from odradek_protocol.client.admin.groups import CommittedOffset, commit_offsets
    from odradek_protocol.ids import TopicPartition

    offsets = {TopicPartition(*place): CommittedOffset(at) for place, at in wanted.items()}
    with about(f"group {group}"):
        refused = commit_offsets(client, group, offsets)
    if refused:
        raise CliError("; ".join(f"{place}: {error}" for place, error in refused.items()))
