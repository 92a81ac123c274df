"""Numbers in the requests of share groups (KIP-932)."""

from enum import IntEnum
from typing import Final

# Of a share session; the requests in between have 1, 2, … and 1 again after the largest.
INITIAL_EPOCH: Final = 0  # opens it
FINAL_EPOCH: Final = -1  # closes it
EPOCH_MAX: Final = 2**31 - 1

RECORD_LIMIT: Final = 1  # share_acquire_mode: never more than max_records


class AcknowledgeType(IntEnum):
    GAP = 0  # there is no record with this offset
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4  # the lock is extended, the state stays
