"""How the descriptors of this process are shared: storage first, clients with what is left.

    ulimit -n 1024 → 400 segment files, 48 other files, 128 for brokers, 48 for the process itself,
                     400 client connections

A storage engine that cannot open a file cannot serve anybody, so connections are refused before
it could come to that. `main.py` raises the limit, `log/manager.py` bounds its open files,
`network/server.py` its connections.
"""

import resource
from dataclasses import dataclass
from typing import Final

# Segment files that are kept open at most: more would bring nothing.
SEGMENT_FILES_MAX: Final = 4096
# "Unlimited" counts as this.
LIMIT_MAX: Final = 1 << 20
# Standard streams, event loop, listeners (16) and the connections of the admin endpoints (32).
PROCESS_FILES: Final = 48
# Locks, the metadata log and its snapshots, checkpoints, indexes and directories while they are
# written, compaction: each for a moment, in a few threads.
STORAGE_FILES: Final = 48
# Connections from and to other brokers: about 16 for each of them.
BROKERS_SHARE: Final = 8
BROKERS_MAX: Final = 512
# With fewer than this nobody could work: a limit this small is a mistake that is logged.
CONNECTIONS_MIN: Final = 8


@dataclass(frozen=True, slots=True)
class Descriptors:
    limit: int  # ulimit -n
    segment_files: int  # kept open at most
    connections: int  # of clients at most
    brokers: int  # for connections from and to other brokers

    @property
    def kept(self) -> int:
        """That clients never get."""
        return self.limit - self.connections

    @property
    def reserve(self) -> int:
        """Clients are refused when no more than this many are free, whatever took the others.

        The segment files count as used: they are opened as they are needed, and stay open.
        """
        return (STORAGE_FILES + PROCESS_FILES) // 2 + self.brokers // 2


def share(limit: int, segment_files_wanted: int = SEGMENT_FILES_MAX) -> Descriptors:
    """Who gets how many of `limit` descriptors."""
    brokers = min(BROKERS_MAX, limit // BROKERS_SHARE)
    rest = limit - PROCESS_FILES - STORAGE_FILES - brokers
    segment_files = max(CONNECTIONS_MIN, min(segment_files_wanted, rest // 2))
    connections = max(CONNECTIONS_MIN, rest - segment_files)
    return Descriptors(limit, segment_files, connections, brokers)


def raise_limit() -> None:
    """To what the system allows: a file per active segment and a socket per client."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def current_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return LIMIT_MAX if soft == resource.RLIM_INFINITY else soft
