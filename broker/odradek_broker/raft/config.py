"""Settings of the quorum. `opening.py` reads them from the broker's settings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SnapshotPolicy:
    """A snapshot is written after so many bytes of records, or after so much time."""

    record_bytes_max: int = 20 * 1024 * 1024
    interval_ms: int = 3_600_000  # 0: only by bytes


@dataclass(frozen=True, slots=True)
class QuorumConfig:
    """The first four timeouts are Kafka's controller.quorum.* with its defaults."""

    election_timeout_ms: int = 1000
    election_backoff_max_ms: int = 1000
    fetch_timeout_ms: int = 2000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 50
    fetch_max_wait_ms: int = 500
    fetch_bytes_max: int = 1 << 20
    snapshot_chunk_bytes: int = 1 << 20
    snapshots: SnapshotPolicy = SnapshotPolicy()

    @property
    def check_quorum_ms(self) -> float:
        """A leader that gets no fetches from a majority for this long resigns.

        Longer than the fetch timeout, so that a follower gives up first only if the leader
        really is unreachable.
        """
        return self.fetch_timeout_ms * 1.5

    @property
    def begin_epoch_ms(self) -> float:
        """How often a leader sends BeginQuorumEpoch to voters that do not fetch: twice per fetch
        timeout."""
        return self.fetch_timeout_ms / 2
