"""Share sessions: which partitions a member fetches from this broker. Does no I/O.

A member opens a session with epoch 0, and then names only what changes. Each request has the next
epoch (1, 2, … and 1 again after the largest), so a request that was lost or repeated is noticed.
Epoch -1 closes the session. A session belongs to a connection: when that is closed, the session
ends, and the locks of its member are freed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from odradek_broker.share.state import Key
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.share_codes import EPOCH_MAX, FINAL_EPOCH

PARTITIONS_MAX = 500_000  # in all sessions, some 300 bytes each


@dataclass(slots=True, eq=False, weakref_slot=True)
class ShareSession:
    group_id: str
    member_id: str
    epoch: int = 1  # the epoch that the next request must have
    partitions: dict[Key, None] = field(default_factory=dict)  # in the order of their addition
    turn: int = 0  # the partition that is read first next time

    def in_turn(self) -> list[Key]:
        """All partitions; each request begins with another one, so that none starves."""
        keys = list(self.partitions)
        if keys:
            at = self.turn % len(keys)
            keys = keys[at:] + keys[:at]
            self.turn += 1
        return keys


class ShareSessions:
    """Invariant: at most `limit` sessions, one per group and member, with at most
    `partitions_max` partitions in all: a member may name topics that do not exist."""

    def __init__(self, partitions_max: int = PARTITIONS_MAX) -> None:
        self._partitions_max = partitions_max
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, group_id: str, member_id: str, limit: int) -> ShareSession:
        """Replaces a session that the member had."""
        key = (group_id, member_id)
        if key not in self._sessions and len(self._sessions) >= limit:
            raise KafkaError(ErrorCode.share_session_limit_reached)
        replaced = self._sessions.get(key)
        if replaced is not None:
            self.close(replaced)
        session = self._sessions[key] = ShareSession(group_id, member_id)
        return session

    def find(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """The session of a request that is not the first; FINAL_EPOCH fits every session."""
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise KafkaError(ErrorCode.share_session_not_found)
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.epoch:
            raise KafkaError(ErrorCode.invalid_share_session_epoch)
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        return session

    def change(self, session: ShareSession, added: Iterable[Key], forgotten: Iterable[Key]) -> None:
        """Raises KafkaError, and closes the session, if there are too many partitions."""
        before = len(session.partitions)
        session.partitions.update(dict.fromkeys(added))
        for key in forgotten:
            session.partitions.pop(key, None)
        self._partitions += len(session.partitions) - before
        if self._partitions > self._partitions_max:
            self.close(session)
            raise KafkaError(ErrorCode.share_session_limit_reached)

    def close(self, session: ShareSession) -> bool:
        """False if the member has opened another session since, or it was closed before."""
        key = (session.group_id, session.member_id)
        if not self.is_open(session):
            return False
        del self._sessions[key]
        self._partitions -= len(session.partitions)
        return True

    def is_open(self, session: ShareSession) -> bool:
        return self._sessions.get((session.group_id, session.member_id)) is session

    def has_group(self, group_id: str) -> bool:
        return any(group == group_id for group, _ in self._sessions)
