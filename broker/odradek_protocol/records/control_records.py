"""Control batches: records that the brokers write for themselves, which no consumer sees.

key    version i16 (0), type i16: 0 abort, 1 commit, 2 leader change, 3 snapshot header,
       4 snapshot footer, 5 KRaft version, 6 KRaft voters
value  of abort and commit: version i16 (0), coordinator epoch i32
"""

from struct import Struct, error
from typing import NamedTuple

from odradek_protocol.errors import DecodeError
from odradek_protocol.records.records import Record, build_batch

ABORT, COMMIT, LEADER_CHANGE, SNAPSHOT_HEADER, SNAPSHOT_FOOTER, KRAFT_VERSION, KRAFT_VOTERS = range(
    7
)

_KEY = Struct(">hh")
_END_TXN = Struct(">hi")


class EndTxnMarker(NamedTuple):
    commit: bool
    coordinator_epoch: int


def control_key(control_type: int) -> bytes:
    return _KEY.pack(0, control_type)


def control_type_of(key: bytes | None) -> int:
    """The type of a control record; DecodeError if this is no key of one."""
    try:
        return int(_KEY.unpack_from(key or b"")[1])
    except error as e:
        raise DecodeError(f"control record: {e}") from None


def read_end_txn_marker(record: Record) -> EndTxnMarker:
    """The marker in the one record of a control batch; DecodeError if it is none."""
    control_type = control_type_of(record.key)
    if control_type not in (ABORT, COMMIT):
        raise DecodeError(f"control record of type {control_type} does not end a transaction")
    try:
        _, coordinator_epoch = _END_TXN.unpack_from(record.value or b"")
    except error as e:
        raise DecodeError(f"end-transaction marker: {e}") from None
    return EndTxnMarker(control_type == COMMIT, coordinator_epoch)


def end_txn_marker(
    producer_id: int,
    producer_epoch: int,
    *,
    commit: bool,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """The batch that ends a producer's transaction in one partition."""
    key = control_key(COMMIT if commit else ABORT)
    record = Record(base_offset, timestamp_ms, key, _END_TXN.pack(0, coordinator_epoch))
    return build_batch(
        [record],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        transactional=True,
        control=True,
    )
