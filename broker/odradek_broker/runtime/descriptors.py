"""How the file descriptors of this process are divided: storage first, the rest for clients.

    ulimit -n 1024 → 400 segment files, 48 other files, 128 for brokers, 48 for the process itself,
                     400 client connections

A storage engine that cannot open its files cannot serve any client, so connections are refused
before that can happen. `main.py` raises the limit, `log/manager.py` bounds its open files,
`network/server.py` its connections.
"""

import resource
from dataclasses import dataclass
from typing import Final

# Segment files that are kept open at most: more would not help.
SEGMENT_FILES_MAX: Final = 4096
# Used if the limit is "unlimited".
LIMIT_MAX: Final = 1 << 20
# Standard streams, event loop, listeners (16) and the connections of the admin endpoints (32).
PROCESS_FILES: Final = 48
# Locks, the metadata log and its snapshots, checkpoints, indexes and directories while they are
# written, compaction: each for a short time, in a few threads.
STORAGE_FILES: Final = 48
# Connections from and to other brokers: about 16 for each of them.
BROKERS_SHARE: Final = 8
BROKERS_MAX: Final = 512
# A limit that leaves fewer than this is a mistake of the administrator, and is logged.
CONNECTIONS_MIN: Final = 8


@dataclass(frozen=True, slots=True)
class Descriptors:
    limit: int  # ulimit -n
    segment_files: int  # kept open at most
    connections: int  # of clients at most
    brokers: int  # for connections from and to other brokers

    @property
    def kept(self) -> int:
        """Descriptors that are reserved: clients never get them."""
        return self.limit - self.connections

    @property
    def reserve(self) -> int:
        """Clients are refused when no more than this many are free, whatever uses the others.

        Segment files count as open: they are opened when they are needed, and stay open.
        """
        return (STORAGE_FILES + PROCESS_FILES) // 2 + self.brokers // 2


def share(limit: int, segment_files_wanted: int = SEGMENT_FILES_MAX) -> Descriptors:
    """Divides `limit` descriptors."""
    brokers = min(BROKERS_MAX, limit // BROKERS_SHARE)
    rest = limit - PROCESS_FILES - STORAGE_FILES - brokers
    segment_files = max(CONNECTIONS_MIN, min(segment_files_wanted, rest // 2))
    connections = max(CONNECTIONS_MIN, rest - segment_files)
    return Descriptors(limit, segment_files, connections, brokers)


def raise_limit() -> None:
    """Raises ulimit -n to the hard limit: a file per active segment, a socket per client."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def current_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return LIMIT_MAX if soft == resource.RLIM_INFINITY else soft
