"""`odradek share-groups`: share groups (KIP-932), their members, start offsets and lag.

    odradek share-groups list                                   all share groups and their states
    odradek share-groups describe orders                        start offset and lag per partition
    odradek share-groups describe orders --members              members and their partitions
    odradek share-groups reset orders --to-earliest --dry-run   what would be set
    odradek share-groups reset orders --topic orders:0 --to-timestamp 2026-01-31T12:00:00
    odradek share-groups delete-offsets orders --topic orders   a topic that it no longer reads
    odradek share-groups delete orders

Start offsets can be set and deleted only while the group has no members.
"""

from __future__ import annotations

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
    pairs,
    places_of,
    print_reset,
    short,
)
from odradek_cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Yes, complete_group, confirm
from odradek_cli.output import print_json, print_listed, print_table

if TYPE_CHECKING:
    from odradek_protocol.client.admin.share_groups import ShareGroupDescription
    from odradek_protocol.client.kafka_client import KafkaClient

app = typer.Typer(
    help="List, describe, reset and delete share groups (queues); see their lag.",
    no_args_is_help=True,
)

Group = Annotated[
    str,
    typer.Argument(help="Name of the share group.", autocompletion=complete_group, metavar="GROUP"),
]
Groups = Annotated[
    list[str],
    typer.Argument(help="Names of share groups.", autocompletion=complete_group, metavar="GROUP…"),
]


@app.command("list")
def list_groups(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """List share groups, with their state."""
    from odradek_cli.client import about, connect
    from odradek_protocol.client.admin import groups

    with connect(bootstrap) as client, about("groups"):
        listed = groups.list_groups(client)
    found = [{"group": one.group_id, "state": one.state} for one in listed if one.is_share]
    print_listed(found, as_json, ["group", "state"], "There are no share groups.")


@app.command()
def describe(
    names: Groups,
    members: ShowMembers = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show state, epochs, start offsets and lag; with --members the members."""
    from odradek_cli.client import connect

    with connect(bootstrap) as client:
        described = [_described(client, name) for name in names]
    if as_json:
        print_json(described)
        return
    for group in described:
        lag = "unknown" if group["lag"] is None else group["lag"]
        print(
            f"{group['group']}: {group['state']}, epoch {group['epoch']}, assignment epoch "
            f"{group['assignment_epoch']}, assignor {group['assignor'] or '(none)'}, coordinator "
            f"{group['coordinator']}, {len(group['members'])} members, lag {lag}"
        )
        if members:
            rows = [
                (m["member_id"], m["client_id"], m["host"], m["epoch"], short(m))
                for m in group["members"]
            ]
            print_table(["member", "client", "host", ">epoch", "partitions"], rows)
        elif group["partitions"]:
            rows = [
                (f"{p['topic']}-{p['partition']}", dash(p["leader_epoch"]), dash(p["start"]),
                 dash(p["lag"]), p["error"])
                for p in group["partitions"]
            ]  # fmt: skip
            print_table(["partition", ">leader epoch", ">start", ">lag", "error"], rows)


@app.command()
def reset(
    group: Group,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:PARTITION]",
            help="Repeatable. Default: all partitions that the group has read.",
        ),
    ] = None,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_offset: ToOffset = None,
    to_timestamp: ToTimestamp = None,
    by_duration: ByDuration = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Set the offsets at which a group goes on. The group must have no members.

    The state of single records after the new offset is dropped: they are delivered again.
    """
    from odradek_cli.client import connect

    goal = OffsetTarget(to_earliest, to_latest, to_offset, to_timestamp, by_duration)
    goal.check()
    with connect(bootstrap) as client:
        found = _describe(client, group)
        current = _starts(client, group) if found.exists else {}
        places = places_of(client, group, topic, current)
        if found.members:
            raise CliError(
                f"group {group} has {len(found.members)} active members (state {found.state}): "
                "stop them first"
            )
        wanted = goal.resolve(client, places, {})
        if not dry_run:
            _alter(client, group, wanted)
    before = {place: at for place, at in current.items() if at is not None}
    print_reset(wanted, before, as_json, dry_run)


@app.command("delete-offsets")
def delete_offsets(
    group: Group,
    topic: Annotated[list[str], typer.Option("--topic", "-t", metavar="TOPIC", help="Repeatable.")],
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete all that a group knows of topics that it no longer reads."""
    from odradek_cli.client import about, connect, raise_first
    from odradek_protocol.client.admin.share_groups import delete_start_offsets

    with connect(bootstrap) as client:
        _existing(client, group)
        known = {name for name, _ in _starts(client, group)}
        for name in topic:
            if name not in known:
                raise CliError(f"group {group}: there are no offsets of {name}")
        confirm(f"Delete the offsets of group {group} for {', '.join(topic)}?", yes)
        with about(f"group {group}"):
            refused = delete_start_offsets(client, group, topic)
    deleted = [name for name in topic if name not in refused]
    if not as_json:
        for name in deleted:
            print(f"Deleted the offsets of {name}.")
    raise_first(f"group {group}: topic", refused)
    if as_json:
        print_json({"deleted": deleted})


@app.command()
def delete(
    names: Groups,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete share groups with all their offsets. Groups with members are refused."""
    from odradek_cli.client import connect, report_deleted
    from odradek_protocol.client.admin.groups import delete_groups

    with connect(bootstrap) as client:
        for name in names:  # DeleteGroups deletes groups of any kind
            _existing(client, name)
        confirm(f"Delete {', '.join(names)} with all offsets?", yes)
        refused = delete_groups(client, names)
    report_deleted("group", names, refused, as_json)


def _described(client: KafkaClient, name: str) -> dict[str, Any]:
    from odradek_cli.client import about
    from odradek_protocol.client.admin.share_groups import start_offsets
    from odradek_protocol.client.errors import BrokerError

    group = _existing(client, name)
    with about(f"group {name}"):
        found = start_offsets(client, name)
    partitions: list[dict[str, Any]] = []
    for place, start in sorted(found.items(), key=lambda one: one[0]):
        values: dict[str, Any]
        if isinstance(start, BrokerError):
            values = {"leader_epoch": None, "start": None, "lag": None, "error": str(start)}
        else:
            at, epoch, lag = start
            values = {"leader_epoch": epoch, "start": at, "lag": lag, "error": None}
        partitions.append({**place._asdict(), **values})
    lags = [p["lag"] for p in partitions if p["lag"] is not None]
    return {
        "group": name,
        "state": group.state,
        "epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor": group.assignor,
        "coordinator": group.coordinator_id,
        "lag": sum(lags) if lags else None,
        "members": [
            {
                "member_id": member.member_id,
                "client_id": member.client_id,
                "host": member.host,
                "rack": member.rack,
                "epoch": member.epoch,
                "topics": list(member.topics),
                "partitions": pairs(member.assignment),
            }
            for member in group.members
        ],
        "partitions": partitions,
    }


def _describe(client: KafkaClient, name: str) -> ShareGroupDescription:
    from odradek_cli.client import about
    from odradek_protocol.client.admin.share_groups import describe_share_group

    with about(f"group {name}"):
        return describe_share_group(client, name)


def _existing(client: KafkaClient, name: str) -> ShareGroupDescription:
    group = _describe(client, name)
    if not group.exists:
        raise CliError(f"group {name}: there is no such share group")
    return group


def _starts(client: KafkaClient, name: str) -> dict[Place, int | None]:
    """The start offset of each partition of the group; None where no member has read yet."""
    from odradek_cli.client import about, found
    from odradek_protocol.client.admin.share_groups import start_offsets

    with about(f"group {name}"):
        answers = start_offsets(client, name)
    return {place: found(str(place), answer).offset for place, answer in answers.items()}


def _alter(client: KafkaClient, group: str, wanted: dict[Place, int]) -> None:
    from odradek_cli.client import about
    from odradek_protocol.client.admin.share_groups import alter_start_offsets
    from odradek_protocol.ids import TopicPartition

    with about(f"group {group}"):
        offsets = {TopicPartition(*place): at for place, at in wanted.items()}
        refused = alter_start_offsets(client, group, offsets)
    if refused:
        raise CliError("; ".join(f"{place}: {error}" for place, error in refused.items()))
