"""Committed offsets of all groups of a shard, and those that open transactions will commit.

Changed only by replay. A transaction's offsets are pending until its marker: a commit makes them
the committed ones, unless a plain commit of the same partition is later in the log; an abort drops
them. A partition with pending offsets is unstable.
"""

from odradek_broker.group.records import Key, OffsetAndMetadata, Offsets
from odradek_protocol.ids import NO_PRODUCER_ID, Offset, ProducerId


class OffsetTable:
    """Invariant: no empty inner dict is kept in `_committed` or `_pending`; `_unstable` counts
    the open transactions that have an offset for a partition."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[Key, tuple[Offset, OffsetAndMetadata]]] = {}
        self._pending: dict[
            ProducerId, dict[str, dict[Key, tuple[Offset, OffsetAndMetadata | None]]]
        ] = {}
        self._unstable: dict[tuple[str, Key], int] = {}
        self.count = 0  # committed offsets, for metrics

    # --- queries ----------------------------------------------------------------------------

    def get(self, group: str, key: Key) -> OffsetAndMetadata | None:
        found = self._committed.get(group, {}).get(key)
        return found[1] if found else None

    def of_group(self, group: str) -> Offsets:
        return {key: value for key, (_, value) in self._committed.get(group, {}).items()}

    def groups(self) -> list[str]:
        return list(self._committed)

    def is_unstable(self, group: str, key: Key) -> bool:
        return (group, key) in self._unstable

    def has_pending(self, group: str) -> bool:
        return any(group in groups for groups in self._pending.values())

    def unstable_keys(self, group: str) -> list[Key]:
        return [key for name, key in self._unstable if name == group]

    # --- replaying --------------------------------------------------------------------------

    def replay(
        self,
        offset: Offset,
        producer_id: ProducerId,
        group: str,
        key: Key,
        value: OffsetAndMetadata | None,
    ) -> None:
        """`offset` is that of the record in the log: it decides which commit is later."""
        if producer_id != NO_PRODUCER_ID:
            keys = self._pending.setdefault(producer_id, {}).setdefault(group, {})
            if key not in keys:
                self._unstable[group, key] = self._unstable.get((group, key), 0) + 1
            keys[key] = offset, value
            return
        if value is None:
            self._drop_pending(group, key)
        self._set(offset, group, key, value)

    def _drop_pending(self, group: str, key: Key) -> None:
        """The offset is deleted: a transaction that ends later must not restore it."""
        if self._unstable.pop((group, key), None) is None:
            return
        for producer_id, groups in list(self._pending.items()):
            keys = groups.get(group)
            if keys is None or keys.pop(key, None) is None or keys:
                continue
            del groups[group]
            if not groups:
                del self._pending[producer_id]

    def end_transaction(self, producer_id: ProducerId, *, committed: bool) -> list[str]:
        """Ends the producer's transaction; returns the groups whose offsets it had."""
        pending = self._pending.pop(producer_id, {})
        for group, keys in pending.items():
            for key, (offset, value) in keys.items():
                left = self._unstable[group, key] - 1
                if left:
                    self._unstable[group, key] = left
                else:
                    del self._unstable[group, key]
                if committed:
                    self._set(offset, group, key, value)
        return list(pending)

    def _set(self, offset: Offset, group: str, key: Key, value: OffsetAndMetadata | None) -> None:
        keys = self._committed.setdefault(group, {})
        found = keys.get(key)
        if found is None or found[0] < offset:
            if value is not None:
                keys[key] = offset, value
                self.count += found is None
            elif found is not None:
                del keys[key]
                self.count -= 1
        if not keys:
            del self._committed[group]

    def validate(self) -> None:
        assert all(self._committed.values())
        assert self.count == sum(len(keys) for keys in self._committed.values())
        counted: dict[tuple[str, Key], int] = {}
        for groups in self._pending.values():
            for group, keys in groups.items():
                for key in keys:
                    counted[group, key] = counted.get((group, key), 0) + 1
        assert counted == self._unstable
