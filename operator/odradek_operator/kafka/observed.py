"""The observed state: nodes as the platform reports them, and the cluster as Kafka describes it.

Written by admin/, kubernetes/ and local/, read by the plan and the status. `Observed.kafka` is None
if no broker answers: then nothing about partitions is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from odradek_protocol.ids import TopicPartition

NO_LEADER = -1
# Exit codes of our broker: its last log directory failed (sysexits.h: EX_IOERR), or has no room
# left (EX_TEMPFAIL).
EX_IOERR, EX_TEMPFAIL = 74, 75


class Phase(Enum):
    STOPPED = "stopped"  # it does not run, and the platform does not start it
    STARTING = "starting"
    READY = "ready"
    CRASHED = "crashed"  # it ends repeatedly, or cannot be started


@dataclass(frozen=True, slots=True)
class Ended:
    """How the process of a broker ended by itself; dropped when it is ready again."""

    exit_code: int  # -9: by SIGKILL
    words: str  # "it ended with exit code 75: …; next start after 4 s, at 12:00:04 UTC"

    @property
    def for_storage(self) -> bool:
        return self.exit_code in (EX_IOERR, EX_TEMPFAIL)


@dataclass(frozen=True, slots=True)
class ObservedBroker:
    id: int
    rack: str
    phase: Phase
    since: float = 0.0  # unix seconds: start of this phase
    started_with: Mapping[str, str] = field(default_factory=dict)  # as DesiredBroker.settings
    detail: str = ""  # why it is not ready, as far as it is known
    address: str = ""
    node_rack: str = ""  # the current rack of its node; empty: unknown
    file_unseen: bool = False  # `started_with` has only the @-settings
    wants_restart: str = ""  # why the platform needs a restart, independent of settings
    ended: Ended | None = None
    host_ip: str = ""  # of its machine, for listeners with node ports; empty: not known


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition. While it is moving, `replicas` has the old and the new ones."""

    id: TopicPartition
    leader: int
    replicas: tuple[int, ...]
    isr: frozenset[int]
    min_isr: int = 1
    adding: frozenset[int] = frozenset()
    removing: frozenset[int] = frozenset()

    @property
    def moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def settled(self) -> tuple[int, ...]:
        """The replicas without those that are being added."""
        return tuple(r for r in self.replicas if r not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the move."""
        return tuple(r for r in self.replicas if r not in self.removing)


@dataclass(frozen=True, slots=True)
class ObservedTopic:
    name: str
    topic_id: str = ""
    internal: bool = False
    partitions: int = 0
    config: Mapping[str, str] = field(default_factory=dict)  # only settings of the topic itself


@dataclass(frozen=True, slots=True)
class BrokerSetting:
    value: str | None
    read_only: bool
    dynamic: bool = False  # set for all brokers at run time


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log directory as its broker describes it (DescribeLogDirs); -1: not reported."""

    path: str
    offline: bool = False
    total_bytes: int = -1  # of its file system
    usable_bytes: int = -1


@dataclass(frozen=True, slots=True)
class SizedDir:
    """A log directory with the bytes of its replicas."""

    path: str
    offline: bool = False
    usable_bytes: int = -1
    replica_bytes: Mapping[TopicPartition, int] = field(default_factory=dict)
    # Copies that replace a replica in another directory when they are complete.
    future_bytes: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogSizes:
    at: float  # time.monotonic()
    brokers: Mapping[int, tuple[SizedDir, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Loads:
    """Bytes per second as brokers measured them. Ours know each replica, Apache Kafka's each topic.

    A window is shorter on a broker that has just started; `seconds` has the real length.
    """

    window: str = ""  # minute, hour or day
    seconds: Mapping[int, float] = field(default_factory=dict)  # of brokers that answered
    # Sums over the replicas: what producers sent, and what consumers got.
    bytes_in: Mapping[TopicPartition, float] = field(default_factory=dict)
    bytes_out: Mapping[TopicPartition, float] = field(default_factory=dict)
    # (broker, topic) → bytes in and out of the partitions that the broker leads; Apache Kafka.
    topics: Mapping[tuple[int, str], tuple[float, float]] = field(default_factory=dict)
    cpu: Mapping[int, float] = field(default_factory=dict)  # broker → cores

    def know(self, brokers: Iterable[int]) -> bool:
        return set(brokers) <= self.seconds.keys()


@dataclass(frozen=True, slots=True)
class ObservedKafka:
    cluster_id: str = ""
    controller: int = -1
    voters: frozenset[int] = frozenset()
    lagging_voters: frozenset[int] = frozenset()
    # Voter → listeners at which the others know it.
    voter_listeners: Mapping[int, frozenset[str]] = field(default_factory=dict)
    registered: Mapping[int, str] = field(default_factory=dict)  # broker → rack; or fenced
    live: frozenset[int] = frozenset()  # registered and not fenced
    partitions: tuple[Partition, ...] = ()
    topics: Mapping[str, ObservedTopic] = field(default_factory=dict)
    settings: Mapping[int, Mapping[str, BrokerSetting]] = field(default_factory=dict)
    # Of all brokers that answered, fenced ones included.
    log_dirs: Mapping[int, tuple[LogDir, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observed:
    now: float
    brokers: Mapping[int, ObservedBroker] = field(default_factory=dict)
    kafka: ObservedKafka | None = None
    unreachable: str = ""  # why `kafka` is None
    dynamic_config: frozenset[str] = frozenset()  # settings that the operator altered itself
    # Topic name → key of the resource that manages it, and the settings that it set.
    managed_topics: Mapping[str, str] = field(default_factory=dict)
    managed_settings: Mapping[str, frozenset[str]] = field(default_factory=dict)
    controllers: Mapping[int, ObservedBroker] = field(default_factory=dict)  # dedicated ones
