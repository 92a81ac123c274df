"""The load of one replica on this broker: counters that the hot path can afford.

A request costs a few integer additions here. The counters only grow and begin at 0 when the broker
opens the replica; `load_history.py` makes rates of them. A replica that leads and follows in turn
counts both: the first five while it leads, `replicated_in` while it follows.

Consumers may also read from a follower (KIP-392), so `bytes_out` and `fetches` grow there too.
"""

from typing import Final

COUNTERS: Final = (
    "bytes_in",  # of record batches, from producers and from this broker itself
    "messages_in",
    "produces",  # partitions in produce requests, and own appends
    "bytes_out",  # to consumers
    "fetches",  # partitions in answers to consumers
    "replicated_out",  # bytes to followers
    "replicated_in",  # bytes from the leader
    "replications",  # reads of followers here, and answers of the leader that had records
)


class ReplicaLoad:
    """Owned by the event loop."""

    __slots__ = (
        "at",
        "bytes_in",
        "bytes_out",
        "fetches",
        "messages_in",
        "produces",
        "replicated_in",
        "replicated_out",
        "replications",
        "since_ms",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        self.messages_in = 0
        self.produces = 0
        self.bytes_out = 0
        self.fetches = 0
        self.replicated_out = 0
        self.replicated_in = 0
        self.replications = 0
        self.at = -1  # its place in the samples of load_history.py; -1: none yet
        self.since_ms = 0.0  # when the broker opened the replica, with all counters at 0

    def counters(self) -> tuple[int, ...]:
        """In the order of COUNTERS."""
        return (
            self.bytes_in,
            self.messages_in,
            self.produces,
            self.bytes_out,
            self.fetches,
            self.replicated_out,
            self.replicated_in,
            self.replications,
        )

    def appended(self, size: int, messages: int) -> None:
        self.bytes_in += size
        self.messages_in += messages
        self.produces += 1
