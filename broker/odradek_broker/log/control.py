"""End-transaction markers: control batches with one record.

Key as in `control_records.py` (type 0 abort, 1 commit), value `version: int16 (0),
coordinator_epoch: int32`. Example, a commit by coordinator epoch 3: key 00000001, value
000000000003.
"""

from struct import Struct

from odradek_broker.log.producer_state import EndTxnMarker
from odradek_broker.runtime.disk import Buffer
from odradek_protocol.errors import DecodeError
from odradek_protocol.ids import ProducerId
from odradek_protocol.records.control_records import ABORT, COMMIT, control_key, control_type_of
from odradek_protocol.records.record_batch import TRANSACTIONAL_BIT, read_header
from odradek_protocol.records.records import BatchProducer, Record, build_batch, read_records

_VALUE = Struct(">hi")
_VERSION = 0


def parse_marker(batch: Buffer) -> EndTxnMarker | None:
    """The marker of a control batch; None if it has another control record, or none any more."""
    if not read_header(batch).attributes & TRANSACTIONAL_BIT:
        return None
    for record in read_records(batch):
        return _marker_of(record)
    return None


def _marker_of(record: Record) -> EndTxnMarker | None:
    try:
        control_type = control_type_of(record.key)
    except DecodeError:
        return None
    value = record.value
    if control_type not in (ABORT, COMMIT) or value is None or len(value) < _VALUE.size:
        return None
    return EndTxnMarker(control_type == COMMIT, _VALUE.unpack_from(value)[1])


def build_marker(
    producer_id: ProducerId, producer_epoch: int, marker: EndTxnMarker, timestamp: int
) -> bytes:
    """A whole batch with base offset 0, ready to be appended."""
    key = control_key(COMMIT if marker.commit else ABORT)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    return build_batch(
        [Record(0, timestamp, key, value)],
        producer=BatchProducer(producer_id, producer_epoch),
        transactional=True,
        control=True,
    )
