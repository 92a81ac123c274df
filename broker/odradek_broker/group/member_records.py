"""Records of share and streams groups in `__consumer_offsets`: what both have in common.

The type of a record is the version of its key. A key has the group and, for some types, the
member; a value has its fields in version 0. Example, a share group's epoch (type 11):

    key    000b 0002 "g1"        value  0000 epoch, metadata_hash
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from odradek_broker.coordinator.record_schema import F, RecordSchema, version_of
from odradek_broker.coordinator.result import CoordinatorRecord
from odradek_protocol.messages.struct import Struct

VALUE_VERSION = 0


class MemberRecord(NamedTuple):
    """`member_id` is "" where the key has none. No value: a tombstone."""

    kind: int
    group_id: str
    member_id: str
    value: Any


class RecordCodec:
    """`names` and `fields` by type, with Kafka's names; `of_member`: types with a member."""

    def __init__(
        self,
        names: Mapping[int, str],
        fields: Mapping[int, tuple[F, ...]],
        of_member: Collection[int],
    ) -> None:
        self._of_member = of_member
        group, member = F("group_id", "string"), F("member_id", "string")
        self.keys = {
            kind: RecordSchema(
                f"{name}Key",
                range(kind, kind + 1),
                (group, member) if kind in of_member else (group,),
            )
            for kind, name in names.items()
        }
        self.values = {
            kind: RecordSchema(f"{name}Value", range(0, 1), fields[kind], flexible_from=0)
            for kind, name in names.items()
        }

    def encode(self, record: MemberRecord) -> CoordinatorRecord:
        key = Struct(group_id=record.group_id)
        if record.kind in self._of_member:
            key.member_id = record.member_id
        value = record.value
        return CoordinatorRecord(
            self.keys[record.kind].write(record.kind, key),
            None if value is None else self.values[record.kind].write(VALUE_VERSION, value),
        )

    def decode(self, record: CoordinatorRecord) -> MemberRecord:
        """DecodeError if the value has an unknown version."""
        kind = version_of(record.key)
        key = self.keys[kind].read(record.key)
        member_id = key.member_id if kind in self._of_member else ""
        value = None if record.value is None else self.values[kind].read(record.value)
        return MemberRecord(kind, key.group_id, member_id, value)


def tombstone(kind: int, group_id: str, member_id: str = "") -> MemberRecord:
    return MemberRecord(kind, group_id, member_id, None)
