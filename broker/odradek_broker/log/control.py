"""End-transaction markers: control batches with one record.

Key `version: int16 (0), type: int16 (0 abort, 1 commit)`, value `version: int16 (0),
coordinator_epoch: int32`. Example, a commit by coordinator epoch 3: key 00000001, value
000000000003.
"""

from struct import Struct

from odradek_broker.log.producer_state import EndTxnMarker
from odradek_broker.runtime.disk import Buffer
from odradek_protocol.ids import ProducerId
from odradek_protocol.records.record_batch import TRANSACTIONAL_BIT, read_header
from odradek_protocol.records.records import Record, build_batch, read_records

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_VERSION = 0
ABORT, COMMIT = 0, 1


def parse_marker(batch: Buffer) -> EndTxnMarker | None:
    """The marker of a control batch; None if it holds another control record, or none any more."""
    if not read_header(batch).attributes & TRANSACTIONAL_BIT:
        return None
    for record in read_records(batch):
        if record.key is None or record.value is None or len(record.key) < _KEY.size:
            return None
        kind = _KEY.unpack_from(record.key)[1]
        if kind not in (ABORT, COMMIT) or len(record.value) < _VALUE.size:
            return None
        return EndTxnMarker(kind == COMMIT, _VALUE.unpack_from(record.value)[1])
    return None


def build_marker(
    producer_id: ProducerId, producer_epoch: int, marker: EndTxnMarker, timestamp: int
) -> bytes:
    """A whole batch with base offset 0, ready to be appended."""
    key = _KEY.pack(_VERSION, COMMIT if marker.commit else ABORT)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    return build_batch(
        [Record(0, timestamp, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
