"""Committed offsets of consumer groups: read in the source, translated, set in the destination."""

from __future__ import annotations

from dataclasses import dataclass

from odradek_cli.client import about
from odradek_cli.errors import CliError
from odradek_cli.migrate.clusters import MigrationSide
from odradek_cli.migrate.state import Place
from odradek_cli.migrate.verify import Checked
from odradek_protocol.client.admin import groups as admin
from odradek_protocol.client.admin.groups import CommittedOffset
from odradek_protocol.ids import TopicPartition

OURS = "odradek-migrate-"


@dataclass(frozen=True)
class Committed:
    group: str
    place: Place
    offset: int
    metadata: str


def committed_offsets(source: MigrationSide, places: set[Place]) -> list[Committed]:
    """The offsets of all groups that have committed offsets of these partitions."""
    with about("groups of the source"):
        listed = admin.list_groups(source.client)
    found = []
    for group in (one.group_id for one in listed if one.is_consumer):
        if group.startswith(OURS):
            continue
        with about(f"group {group}"):
            offsets = admin.committed_offsets(source.client, group, require_stable=True)
        found += [
            Committed(group, place, committed.offset, committed.metadata)
            for place, committed in offsets.items()
            if place in places
        ]
    return found


def translated(
    committed: list[Committed],
    counts: dict[Place, dict[int, int]],
    checked: dict[Place, Checked],
) -> list[Committed]:
    """The same commits with the destination's offsets."""
    return [
        Committed(
            c.group,
            c.place,
            checked[c.place].offset_after(counts[c.place][c.offset]),
            c.metadata,
        )
        for c in committed
    ]


def set_offsets(destination: MigrationSide, committed: list[Committed]) -> None:
    """Group by group; a group that has members in the destination already is an error."""
    by_group: dict[str, dict[TopicPartition, CommittedOffset]] = {}
    for c in committed:
        offset = CommittedOffset(c.offset, c.metadata)
        by_group.setdefault(c.group, {})[TopicPartition(*c.place)] = offset
    for group, offsets in sorted(by_group.items()):
        what = f"group {group} in the destination"
        with about(what):
            refused = admin.commit_offsets(destination.client, group, offsets)
        for place, error in refused.items():
            raise CliError(f"{what}: {place}: {error}") from error
