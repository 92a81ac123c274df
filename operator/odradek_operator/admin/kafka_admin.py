"""Observes a Kafka cluster through its admin protocol, and carries out changes.

    with KafkaAdmin("127.0.0.1:9092") as admin:
        kafka = admin.observe(settings={"log.cleaner.threads"}, topic_settings={"retention.ms"})
        admin.elect([TopicPartition("orders", 0)])

The only module of the operator that talks to brokers. Works alike with both engines. Calls block,
each request for at most REQUEST_TIMEOUT_S; callers run them in a thread where that matters. Calls
that change something return what was refused, by topic, partition or broker, in the broker's own
words; AdminError means that no broker answered.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from odradek_operator.admin.log_dirs import ask_log_dirs
from odradek_operator.kafka.observed import (
    BrokerSetting,
    Kafka,
    LogDir,
    ObservedTopic,
    Partition,
)
from odradek_protocol import ids
from odradek_protocol.client import BrokerError, ClientError, ClientSettings, KafkaClient
from odradek_protocol.client.admin import brokers, configs, log_dirs, partitions, quorum, topics
from odradek_protocol.client.admin.configs import (
    ConfigChange,
    ConfigOperation,
    ConfigSource,
    ResourceType,
)
from odradek_protocol.client.admin.partitions import ElectionType, Reassignment
from odradek_protocol.client.admin.topics import BROKER_DEFAULT, NewTopic
from odradek_protocol.client.metadata import TopicInfo
from odradek_protocol.ids import TopicPartition

CONNECT_TIMEOUT_S = 2.0
REQUEST_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 3.0  # of one broker: one that hangs costs a pass no more, then another is asked
VOTER_LAG_MAX_MS = 10_000  # a voter that was last caught up longer ago does not count as available
LOG_DIRS_EVERY_S = 2.0  # passes may follow one another faster than disks fill
MIN_ISR = "min.insync.replicas"
# Codes of topics that are created, grown or deleted already: the same as done.
_DONE = frozenset({"TOPIC_ALREADY_EXISTS", "UNKNOWN_TOPIC_OR_PARTITION"})
_NO_MOVE = Reassignment((), (), ())


class NotYetError(Exception):
    """Something else has to happen first, and nothing is wrong: the next pass tries again."""


class AdminError(Exception):
    """The cluster did not answer; the message is a sentence."""


class KafkaAdmin:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap  # may be changed between calls
        self._client: KafkaClient | None = None
        self._client_bootstrap = ""
        self._log_dirs: dict[int, tuple[LogDir, ...]] = {}
        self._log_dirs_until = 0.0  # time.monotonic(): when they are asked for again

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    @contextlib.contextmanager
    def _connected(self) -> Iterator[KafkaClient]:
        """The client of the current bootstrap addresses; its errors become AdminErrors."""
        try:
            if self._client is None or self._client_bootstrap != self.bootstrap:
                self.close()
                self._client = KafkaClient(
                    self.bootstrap,
                    ClientSettings(
                        client_id="odradek-operator",
                        connect_timeout_s=CONNECT_TIMEOUT_S,
                        request_timeout_s=REQUEST_TIMEOUT_S,
                        read_timeout_s=READ_TIMEOUT_S,
                        deadline_s=REQUEST_TIMEOUT_S,
                    ),
                )
                self._client_bootstrap = self.bootstrap
            yield self._client
        except BrokerError as error:
            raise AdminError(str(error)) from error
        except ClientError as error:
            raise AdminError(f"{self.bootstrap} does not answer: {error}") from error

    # -- observe -----------------------------------------------------------------------------------

    def observe(self, settings: Iterable[str] = (), topic_settings: Iterable[str] = ()) -> Kafka:
        """All that a plan needs; of topics and brokers only the settings that are named."""
        with self._connected() as client:
            cluster = brokers.describe_cluster(client)
            state = quorum.describe_quorum(client)
            # Listed before and after the topics, so that a reassignment that begins or ends
            # meanwhile is not taken for extra replicas.
            moves = partitions.list_reassignments(client)
            found = {n: t for n, t in client.metadata().topics.items() if t.error is None}
            moves |= partitions.list_reassignments(client)
            topic_configs = self._topic_configs(client, found, {MIN_ISR, *topic_settings})
            live = frozenset(b.broker_id for b in cluster.brokers.values() if not b.fenced)
            return Kafka(
                cluster_id=cluster.cluster_id,
                controller=state.leader_id,
                voters=frozenset(voter.node_id for voter in state.voters),
                lagging_voters=_lagging(state.voters),
                registered={b.broker_id: b.rack or "" for b in cluster.brokers.values()},
                live=live,
                partitions=tuple(_partitions(found, moves, topic_configs)),
                topics={name: _topic(topic, topic_configs[name]) for name, topic in found.items()},
                settings=self._broker_settings(client, live, settings),
                log_dirs=self._ask_log_dirs(client, cluster),
            )

    def _ask_log_dirs(
        self, client: KafkaClient, cluster: brokers.ClusterDescription
    ) -> dict[int, tuple[LogDir, ...]]:
        if time.monotonic() >= self._log_dirs_until:
            addresses = {b.broker_id: b.address for b in cluster.brokers.values()}
            self._log_dirs = ask_log_dirs(client, addresses)
            self._log_dirs_until = time.monotonic() + LOG_DIRS_EVERY_S
        return self._log_dirs

    def _topic_configs(
        self, client: KafkaClient, names: Iterable[str], keys: set[str]
    ) -> dict[str, configs.Configs]:
        """Topic → its settings; none of a topic that was deleted meanwhile."""
        found: dict[str, configs.Configs] = {}
        for name, answer in configs.describe_configs(
            client, ResourceType.TOPIC, names, keys
        ).items():
            if isinstance(answer, ClientError) and not isinstance(answer, BrokerError):
                raise answer
            found[name] = {} if isinstance(answer, BrokerError) else answer
        return found

    def _broker_settings(
        self, client: KafkaClient, live: Iterable[int], keys: Iterable[str]
    ) -> dict[int, dict[str, BrokerSetting]]:
        """Broker → its settings; a broker that does not answer is left out."""
        wanted = sorted(keys)
        if not wanted:
            return {}
        names = [str(broker) for broker in sorted(live)]
        answers = configs.describe_configs(client, ResourceType.BROKER, names, wanted)
        return {
            int(broker): {
                name: BrokerSetting(
                    entry.value,
                    entry.read_only,
                    entry.source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
                )
                for name, entry in answer.items()
            }
            for broker, answer in answers.items()
            if not isinstance(answer, ClientError)  # shutting down: nothing is concluded
        }

    def log_dir_bytes(self) -> dict[int, dict[str, int]]:
        """Broker → directory → bytes of its replicas; failed directories are left out."""
        with self._connected() as client:
            return {
                broker: {d.path: sum(d.replica_bytes.values()) for d in found if not d.offline}
                for broker, found in log_dirs.describe_log_dirs(client).items()
                if not isinstance(found, ClientError)
            }

    # -- change ------------------------------------------------------------------------------------

    def create_topics(self, wanted: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
        """name → num_partitions, replication_factor, configs. Returns name → why not."""
        new = [
            NewTopic(
                name,
                options.get("num_partitions", BROKER_DEFAULT),
                options.get("replication_factor", BROKER_DEFAULT),
                options.get("configs", {}),
            )
            for name, options in wanted.items()
        ]
        with self._connected() as client:
            return _not_done(topics.create_topics(client, new))

    def grow_topics(self, counts: Mapping[str, int]) -> dict[str, str]:
        with self._connected() as client:
            return _not_done(topics.create_partitions(client, counts))

    def delete_topics(self, names: Sequence[str]) -> dict[str, str]:
        with self._connected() as client:
            return _not_done(topics.delete_topics(client, names))

    def alter_topic_configs(
        self, changes: Mapping[str, Mapping[str, str | None]]
    ) -> dict[str, str]:
        return self._alter(ResourceType.TOPIC, changes)

    def alter_broker_configs(self, changes: Mapping[str, str | None]) -> dict[str, str]:
        """For all brokers, also for those that join later."""
        refused = self._alter(ResourceType.BROKER, {configs.ALL_BROKERS: changes})
        return {"all brokers": refused[configs.ALL_BROKERS]} if refused else {}

    def _alter(
        self, kind: ResourceType, changes: Mapping[str, Mapping[str, str | None]]
    ) -> dict[str, str]:
        operations = {
            name: [
                ConfigChange(key, ConfigOperation.DELETE)
                if value is None
                else ConfigChange(key, ConfigOperation.SET, value)
                for key, value in entries.items()
            ]
            for name, entries in changes.items()
        }
        with self._connected() as client:
            refused = configs.alter_configs(client, kind, operations)
        return {name: error.detail for name, error in refused.items()}

    def elect(self, wanted: Iterable[TopicPartition]) -> dict[str, str]:
        """The preferred replica of each partition becomes its leader; never an unclean one."""
        places = [ids.TopicPartition(*place) for place in wanted]
        with self._connected() as client:
            outcome = partitions.elect_leaders(client, ElectionType.PREFERRED, places)
        return {str(place): error.detail for place, error in outcome.items() if error is not None}

    def reassign(self, moves: Mapping[TopicPartition, Sequence[int]]) -> dict[str, str]:
        wanted = {ids.TopicPartition(*place): replicas for place, replicas in moves.items()}
        with self._connected() as client:
            refused = partitions.alter_reassignments(client, wanted)
        return {str(place): error.detail for place, error in refused.items()}

    def unregister(self, broker: int) -> dict[str, str]:
        with self._connected() as client, _unless("BROKER_ID_NOT_REGISTERED", broker) as refused:
            brokers.unregister_broker(client, broker)
        return refused

    def add_voter(self, broker: int) -> dict[str, str]:
        """An observer of our engine becomes a voter; it is reached as the other voters are."""
        with self._connected() as client:
            state = quorum.describe_quorum(client)
            registered = brokers.describe_cluster(client).brokers
            observer = next((o for o in state.observers if o.node_id == broker), None)
            if observer is None or not state.listener_names or broker not in registered:
                return {f"broker {broker}": "it does not follow the metadata quorum yet"}
            with _unless("DUPLICATE_VOTER", broker) as refused:
                address = registered[broker].address
                quorum.add_voter(client, observer, state.listener_names[0], address)
            return refused

    def remove_voter(self, broker: int) -> dict[str, str]:
        with self._connected() as client:
            state = quorum.describe_quorum(client)
            voter = next((v for v in state.voters if v.node_id == broker), None)
            if voter is None:
                return {}
            with _unless("VOTER_NOT_FOUND", broker) as refused:
                quorum.remove_voter(client, voter)
            return refused


# -- answers ---------------------------------------------------------------------------------------


def _partitions(
    found: Mapping[str, TopicInfo],
    moves: Mapping[ids.TopicPartition, Reassignment],
    topic_configs: Mapping[str, configs.Configs],
) -> Iterator[Partition]:
    for name, topic in found.items():
        min_isr_entry = topic_configs[name].get(MIN_ISR)
        min_isr = int((min_isr_entry.value if min_isr_entry else None) or 1)
        for info in topic.partitions.values():
            move = moves.get(ids.TopicPartition(name, info.partition), _NO_MOVE)
            if move.removing and not set(move.removing) & set(info.replicas):
                move = _NO_MOVE  # it ended before the topic was described
            yield Partition(
                TopicPartition(name, info.partition),
                info.leader,
                info.replicas,
                frozenset(info.isr),
                min_isr,
                frozenset(move.adding) & set(info.replicas),
                frozenset(move.removing),
            )


def _topic(found: TopicInfo, config: configs.Configs) -> ObservedTopic:
    return ObservedTopic(
        found.name,
        str(found.topic_id),
        found.internal,
        len(found.partitions),
        {
            name: entry.value
            for name, entry in config.items()
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG and entry.value is not None
        },
    )


def _lagging(voters: Sequence[quorum.QuorumReplica]) -> frozenset[int]:
    """Voters that were last caught up long before the leader; -1 (never) is the longest ago."""
    newest = max((voter.last_caught_up_ms for voter in voters), default=-1)
    return frozenset(v.node_id for v in voters if newest - v.last_caught_up_ms > VOTER_LAG_MAX_MS)


def _not_done(refused: Mapping[str, BrokerError]) -> dict[str, str]:
    return {name: e.detail for name, e in refused.items() if e.name not in _DONE}


@contextlib.contextmanager
def _unless(same_as_done: str, broker: int) -> Iterator[dict[str, str]]:
    """What the broker refuses inside of the block; an error that means "done already" is none."""
    refused: dict[str, str] = {}
    try:
        yield refused
    except BrokerError as error:
        if error.name != same_as_done:
            refused[f"broker {broker}"] = error.detail
