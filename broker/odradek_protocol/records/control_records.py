"""Control records: the key with the purpose of a control batch. Consumers do not see them.

key    version i16 (0), type i16: 0 abort, 1 commit, 2 leader change, 3 snapshot header,
       4 snapshot footer, 5 KRaft version, 6 KRaft voters

Example: the key of a commit marker is 0000 0001. The values are with their users: the broker's
`log/control.py` (abort, commit) and `raft/control_codec.py` (all others).
"""

from struct import Struct, error

from odradek_protocol.errors import DecodeError

ABORT, COMMIT, LEADER_CHANGE, SNAPSHOT_HEADER, SNAPSHOT_FOOTER, KRAFT_VERSION, KRAFT_VOTERS = range(
    7
)

_KEY = Struct(">hh")


def control_key(control_type: int) -> bytes:
    return _KEY.pack(0, control_type)


def control_type_of(key: bytes | None) -> int:
    """The type of a control record; DecodeError if this is not the key of one."""
    try:
        return int(_KEY.unpack_from(key or b"")[1])
    except error as e:
        raise DecodeError(f"control record: {e}") from None
