"""Deletes offsets that expired or whose topic was deleted. Does no I/O."""

from typing import TYPE_CHECKING

from odradek_broker.group.classic_group import ClassicGroup
from odradek_broker.group.records import offset_tombstone
from odradek_broker.group.turn import Turn

if TYPE_CHECKING:
    from odradek_broker.group.shard import GroupShard


def expire_offsets(shard: "GroupShard", turn: Turn) -> None:
    """Deletes offsets that are unused for `offsets.retention.minutes`, and groups without members
    and offsets."""
    retention_ms = turn.config.offsets_retention_ms
    for group_id, group in list(shard.groups.items()):
        offsets = shard.offsets.of_group(group_id)
        left = len(offsets)
        for key, value in offsets.items():
            if shard.offsets.is_unstable(group_id, key):
                continue  # an open transaction has an offset for it
            if group.offset_expires_at_ms(key, value, retention_ms) <= turn.now.wall_ms:
                turn.records.append(offset_tombstone(group_id, key))
                turn.metrics.offset_expirations += 1
                left -= 1
        if left == 0 and group.is_empty and not shard.offsets.has_pending(group_id):
            if isinstance(group, ClassicGroup) and group.pending:
                continue
            turn.records.extend(group.tombstones())
            shard.forget_if_unused(group_id)


def topic_deleted(shard: "GroupShard", turn: Turn, topic: str) -> None:
    """Deletes the offsets of a deleted topic: they would be wrong for a new topic of that name."""
    for group_id in shard.offsets.groups():
        keys = {*shard.offsets.of_group(group_id), *shard.offsets.unstable_keys(group_id)}
        for key in sorted(keys):
            if key[0] == topic:
                turn.records.append(offset_tombstone(group_id, key))
                turn.metrics.offset_deletions += 1
