"""Leader epochs: which leader wrote from which offset on.

Followers ask for the end of an epoch to find out where their log diverges from the leader's
(KIP-101), and consumers to notice a truncation (KIP-320). File `leader-epoch-checkpoint`:

    0            version
    2            number of entries
    0 0          epoch, its first offset
    3 1520

Here the leader of epoch 0 wrote the offsets 0-1519, that of epoch 3 all from 1520 on. Every batch
has its epoch too, so recovery can restore what a crash kept out of this file.
"""

from itertools import pairwise

from odradek_protocol.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset

NO_OFFSET: Offset = -1
VERSION = 0


class LeaderEpochs:
    """Invariant: epochs and start offsets both ascend strictly."""

    __slots__ = ("dirty", "entries")

    def __init__(self, entries: list[tuple[LeaderEpoch, Offset]] | None = None) -> None:
        self.entries = entries or []
        self.dirty = False  # differs from the file

    @property
    def latest(self) -> LeaderEpoch:
        return self.entries[-1][0] if self.entries else NO_LEADER_EPOCH

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """The leader of `epoch` writes from here on; entries that contradict that are dropped."""
        entries = self.entries
        if epoch < 0 or (entries and entries[-1][0] == epoch and entries[-1][1] <= start_offset):
            return
        kept = [entry for entry in entries if entry[0] < epoch and entry[1] < start_offset]
        self._replace([*kept, (epoch, start_offset)])

    def end_offset_for(
        self, epoch: LeaderEpoch, log_end_offset: Offset
    ) -> tuple[LeaderEpoch, Offset]:
        """The largest known epoch that is at most `epoch`, and where it ends.

        (-1, -1) if the epoch is unknown because it is newer than all known ones, or negative.
        """
        if epoch < 0 or not self.entries:
            return NO_LEADER_EPOCH, NO_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        floor = None
        for known, start_offset in self.entries:
            if known > epoch:
                # Before the first known epoch: it ended where that one began.
                return (epoch if floor is None else floor), start_offset
            floor = known
        return NO_LEADER_EPOCH, NO_OFFSET

    def epoch_of(self, offset: Offset) -> LeaderEpoch:
        """The leader that wrote this offset; -1 if unknown."""
        found = NO_LEADER_EPOCH
        for epoch, start_offset in self.entries:
            if start_offset > offset:
                break
            found = epoch
        return found

    def truncate_from_end(self, end_offset: Offset) -> None:
        if self.entries and self.entries[-1][1] >= end_offset:
            self._replace([entry for entry in self.entries if entry[1] < end_offset])

    def truncate_from_start(self, start_offset: Offset) -> None:
        """The log starts here now; the epoch that covers this offset starts here too."""
        if not self.entries or self.entries[0][1] >= start_offset:
            return
        kept = [entry for entry in self.entries if entry[1] > start_offset]
        self._replace([(self.epoch_of(start_offset), start_offset), *kept])

    def clear(self) -> None:
        if self.entries:
            self._replace([])

    def _replace(self, entries: list[tuple[LeaderEpoch, Offset]]) -> None:
        # A new list each time: the flush thread may be writing the old one.
        self.entries = entries
        self.dirty = True

    def encode(self) -> bytes:
        lines = [f"{epoch} {start_offset}\n" for epoch, start_offset in self.entries]
        return f"{VERSION}\n{len(lines)}\n{''.join(lines)}".encode()


def parse_leader_epochs(data: bytes) -> LeaderEpochs | None:
    """None if the file is damaged: the caller then takes the epochs from the batches."""
    lines = data.decode("ascii", "replace").splitlines()
    try:
        if int(lines[0]) != VERSION or int(lines[1]) != len(lines) - 2:
            return None
        entries = [(int(epoch), int(offset)) for epoch, offset in map(str.split, lines[2:])]
    except (ValueError, IndexError):
        return None
    ascending = all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(entries))
    return LeaderEpochs(entries) if ascending else None
