"""One user's view of the cluster: answers that are kept for some seconds, and the last hour.

Nothing is shared between users: what one may see, another may not.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from odradek_cli.health import ClusterHealth, look
from odradek_console.cluster.access import Access
from odradek_console.cluster.cache import Cache
from odradek_console.cluster.history import History
from odradek_protocol.acl_codes import AclOperation
from odradek_protocol.client.admin.brokers import (
    ClusterDescription,
    allowed_on_cluster,
    describe_cluster,
)
from odradek_protocol.client.admin.configs import Configs, ResourceType, describe_configs
from odradek_protocol.client.admin.groups import GroupListing, list_groups
from odradek_protocol.client.admin.log_dirs import LogDirInfo, describe_log_dirs
from odradek_protocol.client.admin.partitions import list_reassignments
from odradek_protocol.client.errors import ClientError
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.metadata import Metadata
from odradek_protocol.ids import TopicPartition

if TYPE_CHECKING:
    from odradek_console.cluster.balance import Balance

METADATA_AGE_S = 5.0
GROUPS_AGE_S = 5.0
HEALTH_AGE_S = 8.0
LOG_DIRS_AGE_S = 20.0  # the largest answer: a line per replica
CONFIGS_AGE_S = 5.0
IDLE_S = 120.0  # a view that nobody looks at gives its memory back

LogDirs = dict[int, list[LogDirInfo] | ClientError]


@dataclass
class Sampled:
    """The last sample: log ends, its time, and the parts that could not be read."""

    ends: dict[TopicPartition, int] = field(default_factory=dict)
    at_s: float = 0.0
    problem: str | None = None
    left_out: int = 0  # partitions past the limit of a sample


class ClusterView:
    """Safe for threads."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.client: KafkaClient = access.client()
        self.history = History()
        self.sampled = Sampled()
        self.rates: dict[str, float] = {}  # topic → records/s of the last sample
        self.used_at = time.monotonic()
        self.sampling = threading.Lock()
        self.closed = False
        self._balance: Balance | None = None
        self._cache = Cache()

    def close(self) -> None:
        """Calls that run meanwhile may open connections again; `settle` closes those."""
        self.closed = True
        self.client.close()

    def settle(self) -> None:
        """After work in the background."""
        if self.closed:
            self.client.close()
        elif time.monotonic() - self.used_at > IDLE_S:
            self.forget()

    def forget(self) -> None:
        """After a change: the next page shows it."""
        self._cache.forget()

    def metadata(self) -> Metadata:
        return self._cache.get("metadata", METADATA_AGE_S, self.client.metadata)

    def description(self) -> ClusterDescription:
        return self._cache.get(
            "description", METADATA_AGE_S, partial(describe_cluster, self.client)
        )

    @property
    def balance(self) -> Balance:
        """Imports numpy, which only those who open the page for rebalancing need."""
        from odradek_console.cluster.balance import Balance

        if self._balance is None:
            self._balance = Balance()
        return self._balance

    def require_describe_cluster(self) -> None:
        """Raises the broker's refusal if the user may not DESCRIBE the cluster."""
        self._cache.get("moves", METADATA_AGE_S, partial(list_reassignments, self.client))

    def allowed_on_cluster(self) -> frozenset[AclOperation]:
        return self._cache.get("allowed", METADATA_AGE_S, partial(allowed_on_cluster, self.client))

    def health(self) -> ClusterHealth:
        return self._cache.get("health", HEALTH_AGE_S, lambda: look(self.client, self.metadata()))

    def groups(self) -> list[GroupListing]:
        return self._cache.get("groups", GROUPS_AGE_S, partial(list_groups, self.client))

    def log_dirs(self) -> LogDirs:
        return self._cache.get("log dirs", LOG_DIRS_AGE_S, partial(describe_log_dirs, self.client))

    def topic_sizes(self) -> dict[str, int]:
        """Topic → bytes of all its replicas; {} if the user may not ask for it."""
        return self._cache.get("sizes", LOG_DIRS_AGE_S, self._topic_sizes)

    def _topic_sizes(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for directories in self.log_dirs().values():
            if isinstance(directories, ClientError):
                continue
            for directory in directories:
                for place, size in directory.replica_bytes.items():
                    sizes[place.topic] = sizes.get(place.topic, 0) + size
        return sizes

    def configs(self, kind: ResourceType, name: str) -> Configs | ClientError:
        return self._cache.get(
            (kind, name),
            CONFIGS_AGE_S,
            lambda: describe_configs(self.client, kind, [name])[name],
        )
