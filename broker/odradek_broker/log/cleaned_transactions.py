"""The state of transactions while the cleaner reads a log from start to end.

Records of an aborted transaction are removed. A marker is kept as long as the log has a batch of
its transaction, because readers of that batch need it. The transaction indexes say which
transactions were aborted; those whose marker is kept go to the index of the new segment.

Example: producer 7 aborted offsets 100-119 with a marker at 120. The first run drops the
batches and keeps the marker, because it saw them. The second run sees no batch of producer 7
before the marker, which is then removed after `delete.retention.ms`.
"""

from collections.abc import Iterable

from odradek_broker.log.control import parse_marker
from odradek_broker.log.txn_index import AbortedTxn
from odradek_broker.runtime.disk import Buffer
from odradek_protocol.ids import Offset, ProducerId
from odradek_protocol.records.record_batch import TRANSACTIONAL_BIT, BatchHeader


class CleanedTransactions:
    """Invariants:
    _aborted: aborted transactions that begin after what was read, the first one last
    _committed: producers with a batch but no marker yet, of a transaction that was not aborted
    _ongoing: producers in the middle of an aborted transaction
    _seen: those of them of which a batch was read
    """

    def __init__(self, aborted: Iterable[AbortedTxn], from_offset: Offset) -> None:
        """Reading begins at `from_offset`: transactions that ended before it are left out."""
        relevant = (one for one in aborted if one.last_offset >= from_offset)
        self._aborted = sorted(relevant, key=lambda one: one.first_offset, reverse=True)
        self._committed: set[ProducerId] = set()
        self._ongoing: dict[ProducerId, AbortedTxn] = {}
        self._seen: set[ProducerId] = set()
        self.kept: list[AbortedTxn] = []  # aborted transactions whose marker is kept, by marker

    def read_data(self, header: BatchHeader) -> bool:
        """Note a batch of records; True if its transaction was aborted: it can be removed."""
        if not header.attributes & TRANSACTIONAL_BIT:
            return False
        self._begin_up_to(header.last_offset)
        if header.producer_id in self._ongoing:
            self._seen.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def read_control(self, header: BatchHeader, batch: Buffer) -> bool:
        """Note a control batch; True if nothing in the log needs it any more."""
        self._begin_up_to(header.last_offset)
        if header.record_count == 0:
            return True  # emptied by an earlier run
        marker = parse_marker(batch)
        producer_id = header.producer_id
        if marker is None:
            return False
        if marker.commit:
            needed = producer_id in self._committed
            self._committed.discard(producer_id)
            return not needed
        aborted = self._ongoing.pop(producer_id, None)
        if aborted is None or producer_id not in self._seen:
            return True
        self._seen.discard(producer_id)
        self.kept.append(aborted)
        return False

    def take_kept(self) -> list[AbortedTxn]:
        """The entries for the transaction index of the segment that was just written."""
        kept, self.kept = self.kept, []
        return kept

    def _begin_up_to(self, offset: Offset) -> None:
        while self._aborted and self._aborted[-1].first_offset <= offset:
            begun = self._aborted.pop()
            self._ongoing.setdefault(begun.producer_id, begun)
