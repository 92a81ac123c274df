"""The vote of a voter: the content of the file `quorum-state`, in Kafka's own JSON.

    {"leaderId":2,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA",
     "data_version":1}

A voter that lost it could vote twice in an epoch, and two leaders could be elected.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from uuid import UUID

from odradek_broker.raft.values import NodeId, ReplicaKey
from odradek_protocol.ids import ZERO_UUID, LeaderEpoch

_NOBODY = -1


@dataclass(frozen=True, slots=True)
class VoteState:
    epoch: LeaderEpoch = 0
    leader_id: NodeId | None = None
    voted: ReplicaKey | None = None

    def to_json(self) -> str:
        voted = self.voted or ReplicaKey(_NOBODY, ZERO_UUID)
        fields = {
            "leaderId": _NOBODY if self.leader_id is None else self.leader_id,
            "leaderEpoch": self.epoch,
            "votedId": voted.id,
            "votedDirectoryId": _encode_uuid(voted.directory_id),
            "data_version": 1,
        }
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> VoteState:
        """Raises ValueError for anything that is not such a file."""
        try:
            fields = json.loads(text)
            leader_id = int(fields["leaderId"])
            voted_id = int(fields["votedId"])
            directory_id = _decode_uuid(fields.get("votedDirectoryId"))
            epoch = int(fields["leaderEpoch"])
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"not the content of a quorum-state file: {error!r}") from error
        return cls(
            epoch=epoch,
            leader_id=None if leader_id == _NOBODY else leader_id,
            voted=None if voted_id == _NOBODY else ReplicaKey(voted_id, directory_id),
        )


def _encode_uuid(value: UUID) -> str:
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def _decode_uuid(text: str | None) -> UUID:
    if text is None:  # data_version 0 has none
        return ZERO_UUID
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
