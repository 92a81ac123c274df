"""Where a reset would set the offsets of a group: a plan from → to for each partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odradek_cli.errors import CliError
from odradek_cli.offset_plans import OffsetTarget
from odradek_protocol.client.admin.groups import (
    DEAD,
    CommittedOffset,
    commit_offsets,
    committed_offsets,
    describe_group,
)
from odradek_protocol.client.admin.share_groups import alter_start_offsets, start_offsets
from odradek_protocol.client.errors import ClientError
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.ids import TopicPartition

IDLE = ("Empty", DEAD)
Offsets = dict[TopicPartition, int]


class ResetError(Exception):
    """A sentence: why the group cannot be reset."""


@dataclass(frozen=True)
class Reset:
    group: str
    share: bool
    before: Mapping[TopicPartition, int]
    after: Mapping[TopicPartition, int]


def goal_of(way: str, argument: str) -> OffsetTarget:
    """ "earliest", "latest", "offset", "time", "duration" or "shift"."""
    if way in ("offset", "shift"):
        sign = argument.removeprefix("-") if way == "shift" else argument
        if not sign.isdecimal():
            raise ResetError(f"{way}: expected a number, not {argument!r}")
        number = int(argument)
        return OffsetTarget(offset=number) if way == "offset" else OffsetTarget(shift_by=number)
    if way == "time":
        return OffsetTarget(timestamp=argument)
    if way == "duration":
        return OffsetTarget(duration=argument)
    if way not in ("earliest", "latest"):
        raise ResetError(f"to: {way!r} is unknown")
    return OffsetTarget(earliest=way == "earliest", latest=way == "latest")


def plan(client: KafkaClient, group: str, share: bool, goal: OffsetTarget, topic: str) -> Reset:
    """`topic` "": all that the group has offsets of."""
    current = _current(client, group, share)
    if topic:
        found = client.metadata([topic]).topics[topic]
        if found.error is not None:
            raise found.error
        places = [TopicPartition(topic, number) for number in found.partitions]
    else:
        places = sorted(current)
    if not places:
        raise ResetError(f"group {group} has no offsets; name a topic")
    if not share:
        check_idle(client, group)
    try:
        wanted = goal.resolve(client, [(p.topic, p.partition) for p in places], {
            (p.topic, p.partition): at for p, at in current.items()
        })  # fmt: skip
    except CliError as error:
        raise ResetError(str(error)) from None
    after = {TopicPartition(*place): offset for place, offset in wanted.items()}
    before = {place: current[place] for place in places if place in current}
    return Reset(group, share, before, after)


def check_idle(client: KafkaClient, group: str) -> None:
    described = describe_group(client, group)
    if described.state not in IDLE:
        raise ResetError(
            f"group {group} has {len(described.members)} active members (state "
            f"{described.state}): stop them first, or they commit over what is set"
        )


def _current(client: KafkaClient, group: str, share: bool) -> Offsets:
    if not share:
        return {place: one.offset for place, one in committed_offsets(client, group).items()}
    found = start_offsets(client, group)
    return {
        place: one.offset
        for place, one in found.items()
        if not isinstance(one, ClientError) and one.offset is not None
    }


def carry_out(client: KafkaClient, reset: Reset) -> None:
    """Refuses if the group has moved since the plan was shown."""
    now = _current(client, reset.group, reset.share)
    moved = [place for place, at in reset.before.items() if now.get(place) != at]
    if moved:
        raise ResetError(f"the group has moved since this plan was made ({moved[0]}): plan again")
    if reset.share:
        refused = alter_start_offsets(client, reset.group, reset.after)
    else:
        check_idle(client, reset.group)
        wanted = {place: CommittedOffset(at) for place, at in reset.after.items()}
        refused = commit_offsets(client, reset.group, wanted)
    for error in refused.values():
        raise error
