"""Planted bugs: a broker that is wrong on purpose, for tests of `make chaos`.

    ODRADEK_COMPILED=0 python -m odradek_e2e.chaos.world.planted_broker BUG [flags of a broker]

Each replaces one function of the broker with a faulty one. A campaign that cannot find
them proves nothing. Compiled functions cannot be replaced, so it runs from the sources only.
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from odradek_broker import main as broker
from odradek_broker.controller import partition_changes
from odradek_broker.controller.elections import Elected, elect_for_offline_partition
from odradek_broker.group.offsets import OffsetTable
from odradek_broker.handlers import fetch_consumer, fetch_follower, fetch_records, list_offsets
from odradek_broker.log.cleaner import BatchCleaner
from odradek_broker.log.producer_state import ProducerState
from odradek_broker.log.reading import LogReader
from odradek_broker.log.trimming import Trimmer
from odradek_broker.partition.leader_state import LeaderState
from odradek_broker.partition.partition import Partition
from odradek_broker.txn import markers
from odradek_protocol.error_codes import ErrorCode

EVERY = 40  # a wrong commit every so often: a campaign must not need luck


class UnknownBugError(Exception):
    """There is no planted bug of that name, or the function that it replaces does not exist."""


def plant(name: str) -> None:
    """Installs the bug for the rest of this process."""
    if name not in BUGS:
        raise UnknownBugError(f"bug {name}: there are {', '.join(BUGS)}")
    BUGS[name]()


def _acks_before_commit() -> None:
    """acks=all is acknowledged when the leader has written."""
    settle = Partition.settle

    def too_early(partition: Partition) -> None:
        state = partition.leading
        waiters = partition._commit_waiters
        while state is not None and waiters and waiters[0][0] < state.log_end_offset:
            _, waiter, index = waiters.popleft()
            waiter.acknowledged(index, ErrorCode.none)
        settle(partition)

    _replace(Partition, "settle", too_early)


def _unclean_election() -> None:
    """A replica out of the ISR may become the leader, although that is not allowed."""

    def elect(live: Any, isr: Any, eligible: Any = (), **_: Any) -> Elected:
        return elect_for_offline_partition(live, isr, eligible, unclean=True)

    _replace(partition_changes, "elect_for_offline_partition", elect)


def _no_sequences() -> None:
    """Retries of an idempotent producer are appended again."""
    _replace(ProducerState, "check", lambda *_, **__: None)


def _no_truncation() -> None:
    """A leader never tells a follower that their logs diverge."""
    _replace(fetch_follower, "divergence", lambda _partition, _asked: None)


def _reads_past_the_high_watermark() -> None:
    """Consumers get records that are written and not committed."""

    def end(partition: Partition, read_committed: bool) -> int:
        end = partition.log.written_offset
        return min(end, partition.log.last_stable_offset) if read_committed else end

    _replace(Partition, "last_fetchable_offset", end)


def _reads_open_transactions() -> None:
    """read_committed ends at the high watermark, not at the last stable offset."""
    _replace(
        Partition, "last_fetchable_offset", lambda partition, _committed: partition.high_watermark
    )


def _aborted_are_forgotten() -> None:
    """A fetch lists no aborted transactions, so that consumers return their records."""
    _replace(LogReader, "aborted_in", lambda *_: [])


def _markers_lie() -> None:
    """Every so often a marker says commit instead of abort, or abort instead of commit."""
    encode, count = markers._encode, [0]

    def wrong(piece: Any) -> Any:
        count[0] += 1
        found = encode(piece)
        if count[0] % EVERY == 0:
            found.transaction_result = not found.transaction_result
        return found

    _replace(markers, "_encode", wrong)


def _aborts_commit_offsets() -> None:
    """The offsets of an aborted transaction are committed too."""
    end = OffsetTable.end_transaction

    def always(offsets: OffsetTable, producer_id: int, **_: Any) -> list[str]:
        return end(offsets, producer_id, committed=True)

    _replace(OffsetTable, "end_transaction", always)


def _offsets_in_memory() -> None:
    """Every so often a replayed offset is forgotten, as by a coordinator that lost a record."""
    replay, count = OffsetTable.replay, [0]

    def forgetful(offsets: OffsetTable, *rest: Any, **more: Any) -> None:
        count[0] += 1
        if count[0] % EVERY:
            replay(offsets, *rest, **more)

    _replace(OffsetTable, "replay", forgetful)


def _cleaner_keeps_the_oldest() -> None:
    """Compaction removes the last record of each key of a batch."""
    kept = BatchCleaner._kept

    def wrong(cleaner: BatchCleaner, *rest: Any) -> Sequence[int]:
        return kept(cleaner, *rest)[:-1]

    _replace(BatchCleaner, "_kept", wrong)


def _deleted_records_return() -> None:
    """DeleteRecords is confirmed and moves nothing."""
    _replace(Trimmer, "advance_log_start_offset", lambda _trimmer, _offset: None)
    _replace(LeaderState, "low_watermark", lambda _state, _start: 1 << 60)


def _offsets_of_a_new_leader() -> None:
    """A new leader answers ListOffsets before its high watermark has caught up (KIP-207)."""
    _replace(list_offsets, "_check_high_watermark", lambda _partition: None)


def _skips_a_batch() -> None:
    """A consumer's fetch begins one record late now and then."""
    read, count = fetch_records.read_records, [0]

    def late(partition: Any, asked: Any, budget: Any, end: int) -> Any:
        count[0] += 1
        if count[0] % EVERY == 0 and asked.fetch_offset + 50 < end:
            asked = asked._replace(fetch_offset=asked.fetch_offset + 50)
        return read(partition, asked, budget, end)

    _replace(fetch_consumer, "read_records", late)


def _replace(target: Any, name: str, replacement: Any) -> None:
    if not hasattr(target, name):
        raise UnknownBugError(f"{target.__name__} has no {name} any more")
    setattr(target, name, replacement)


BUGS: Final[dict[str, Callable[[], None]]] = {
    "acks-before-commit": _acks_before_commit,
    "unclean-election": _unclean_election,
    "no-sequences": _no_sequences,
    "no-truncation": _no_truncation,
    "reads-past-the-high-watermark": _reads_past_the_high_watermark,
    "reads-open-transactions": _reads_open_transactions,
    "aborted-are-forgotten": _aborted_are_forgotten,
    "markers-lie": _markers_lie,
    "aborts-commit-offsets": _aborts_commit_offsets,
    "offsets-are-forgotten": _offsets_in_memory,
    "cleaner-removes-the-newest": _cleaner_keeps_the_oldest,
    "deleted-records-return": _deleted_records_return,
    "offsets-of-a-new-leader": _offsets_of_a_new_leader,
    "fetch-skips": _skips_a_batch,
}


def main() -> int:
    if os.environ.get("ODRADEK_COMPILED") != "0":
        print("set ODRADEK_COMPILED=0: compiled functions cannot be replaced", file=sys.stderr)
        return 2
    plant(sys.argv.pop(1))
    return broker.main()


if __name__ == "__main__":
    sys.exit(main())
